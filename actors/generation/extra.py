"""`extra_args`, the untyped corner of a request, typed: what this worker reads there.

Keys that stand in no type here are judged by the table of fields, not lost.
"""

from __future__ import annotations

from typing import Any

import msgspec

from openengine_sidecar.actors.generation.terms import Terms


class Address(msgspec.Struct, frozen=True):
    """Where a media part points; inline data was blanked by the frontend."""

    detail: str | None = None
    uuid: str | None = None


class InputAudio(msgspec.Struct, frozen=True):
    """Audio inside a message: base64 text, and a format name."""

    data: str
    format: str


class ContentPart(msgspec.Struct, frozen=True):
    """One part of a message; the field named like its type holds the content."""

    type: str
    image_url: Address | None = None
    video_url: Address | None = None
    audio_url: Address | None = None
    input_audio: InputAudio | None = None
    uuid: str | None = None


class Message(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    content: str | list[ContentPart] | None = None


class NvExt(msgspec.Struct, frozen=True):
    """Extensions that the frontend hands on."""

    cache_salt: str | None = None


class ExtraArgs(msgspec.Struct, frozen=True):
    """Everything this worker reads in `extra_args`."""

    messages: list[Message] | None = None
    metadata: dict[str, str] | None = None
    bypass_prefix_cache: bool | None = None
    disable_prefix_cache: bool | None = None
    nvext: NvExt | None = None


_NONE = ExtraArgs()


def extra_args(values: dict[str, Any] | None, terms: Terms) -> ExtraArgs:
    """Types the values.

    Raises:
        InvalidRequestError: a value of the wrong type; names its path.
    """
    if values is None:
        return _NONE
    try:
        return msgspec.convert(values, ExtraArgs)
    except (msgspec.ValidationError, RecursionError) as error:
        terms.reject("extra_args", list(values), str(error))

"""How one media item travels: by address, as a data URI, or as raw bytes."""

from __future__ import annotations

import binascii
from urllib.parse import unquote_to_bytes

from openengine_sidecar.actors.generation.extra import InputAudio
from openengine_sidecar.actors.generation.terms import Terms
from openengine_sidecar.messages.engine.generation import MediaItem, MediaSource, Modality

_URL = "multi_modal_data.*.Url (http, https)"
_DATA = "multi_modal_data.*.Url (data:)"
_INPUT_AUDIO = "extra_args.messages.input_audio"

AUDIO_TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}
"""MIME types of the formats that OpenAI's `input_audio` names."""


def addressed(kind: Modality, url: str, uuid: str, terms: Terms) -> MediaItem:
    """An item behind an address. A data URI goes as raw bytes where the engine takes only these.

    Raises:
        InvalidRequestError: neither an http(s) address nor a data URI, or one that cannot be decoded.
        UnsupportedFeatureError: the engine does not take media in this form.
    """
    scheme = url.partition(":")[0].lower()
    if scheme in {"http", "https"}:
        terms.require(_URL, url)
        return MediaItem(modality=kind, source=MediaSource.URL, value=url, uuid=uuid)
    if scheme != "data":
        terms.reject("multi_modal_data.*.Url", url, "neither an http(s) address nor a data URI")
    if not _takes(MediaSource.DATA_URI, terms) and _takes(MediaSource.RAW_BYTES, terms):
        mime_type, value = _decoded(url, terms)
        return MediaItem(modality=kind, source=MediaSource.RAW_BYTES, value=value, mime_type=mime_type, uuid=uuid)
    terms.require(_DATA, url)
    return MediaItem(modality=kind, source=MediaSource.DATA_URI, value=url, uuid=uuid)


def input_audio(audio: InputAudio | None, uuid: str, terms: Terms) -> MediaItem:
    """An `input_audio` part.

    Raises:
        InvalidRequestError: no base64, or a format without a known MIME type.
        UnsupportedFeatureError: the engine takes neither raw bytes nor data URIs.
    """
    mime_type = AUDIO_TYPES.get(audio.format) if audio is not None else None
    if audio is None or mime_type is None:
        terms.reject(_INPUT_AUDIO, audio and audio.format, f"the format is not one of {', '.join(AUDIO_TYPES)}")
    if not _takes(MediaSource.RAW_BYTES, terms):
        return addressed(Modality.AUDIO, f"data:{mime_type};base64,{audio.data}", uuid, terms)
    value = _base64(_INPUT_AUDIO, audio.data, terms)
    return MediaItem(modality=Modality.AUDIO, source=MediaSource.RAW_BYTES, value=value, mime_type=mime_type, uuid=uuid)


def _takes(source: MediaSource, terms: Terms) -> bool:
    return source in terms.offer.capabilities.media_sources


def _decoded(uri: str, terms: Terms) -> tuple[str, bytes]:
    head, comma, payload = uri.partition(",")
    if not comma:
        terms.reject(_DATA, uri, "a data URI without a comma")
    mime_type, *parameters = head.partition(":")[2].split(";")
    if "base64" in parameters:
        return mime_type, _base64(_DATA, payload, terms)
    return mime_type, unquote_to_bytes(payload)


def _base64(name: str, text: str, terms: Terms) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        terms.reject(name, text, f"not base64: {error}")

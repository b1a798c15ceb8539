"""GenerateCall -> the bytes of a GenerateRequest."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from google.protobuf.message import Message

from openengine_sidecar.messages.engine.generation import (
    GenerateCall,
    Guide,
    GuideMode,
    MediaItem,
    Sampling,
    Stopping,
)
from openengine_sidecar.proto.fields import writing
from openengine_sidecar.proto.handoff.session_pb2 import KvOptionsView, RequestView
from openengine_sidecar.proto.headers import check_metadata
from openengine_sidecar.proto.rev2.generation_pb2 import GenerateRequest, GuidedDecoding, StoppingOptions
from openengine_sidecar.proto.rev2_dialect.enums import MODALITY_NUMBERS
from openengine_sidecar.proto.structs import fill_struct


def encode(call: GenerateCall) -> bytes:
    """Serialize a generation; what the call does not say is absent on the wire.

    A KV session goes out as the bytes it came in. With a session no rank is sent: the session's own rank decides
    (revision 2, KvOptions).

    Raises:
        FieldError: a value that the schema has no form for, named by its field.
    """
    request = GenerateRequest()
    for fill in _PARTS:
        fill(request, call)
    return request.SerializeToString() + _kv_options(call)


def _basics(request: GenerateRequest, call: GenerateCall) -> None:
    _assign(request, "", {"request_id": call.request_id, "model": call.model, "priority": call.priority})
    with writing("token_ids"):
        request.token_ids.SetInParent()
        request.token_ids.ids.extend(call.token_ids)
    _assign(request, "", {"lora_name": call.lora_name})
    check_metadata(call.metadata)
    with writing("metadata"):
        request.metadata.update(call.metadata)


def _sampling(request: GenerateRequest, call: GenerateCall) -> None:
    if call.sampling != _DEFAULT_SAMPLING:
        _assign(request.sampling, "sampling.", msgspec.structs.asdict(call.sampling))


def _stopping(request: GenerateRequest, call: GenerateCall) -> None:
    if call.stopping != _DEFAULT_STOPPING:
        _fill_stopping(request.stopping, call.stopping)


def _fill_stopping(target: StoppingOptions, stopping: Stopping) -> None:
    scalars = {
        "max_tokens": stopping.max_tokens,
        "min_tokens": stopping.min_tokens,
        "ignore_eos": stopping.ignore_eos,
        "include_stop_in_output": stopping.include_stop,
    }
    _assign(target, "stopping.", scalars)
    with writing("stopping.stop_texts"):
        for text in stopping.stop_texts:
            target.conditions.add(stop_text=text)
    with writing("stopping.stop_token_ids"):
        for token_id in stopping.stop_token_ids:
            target.conditions.add(stop_token_id=token_id)


def _logprobs(request: GenerateRequest, call: GenerateCall) -> None:
    prompt, output = call.prompt_logprobs, call.output_logprobs
    if prompt is not None:
        request.response.return_prompt_logprobs = True
        if prompt.top_n:
            _assign(request.response.prompt_candidates, "prompt_logprobs.", {"top_n": prompt.top_n})
    if output is not None:
        request.response.return_output_logprobs = True
        if output.top_n:
            _assign(request.response.output_candidates, "output_logprobs.", {"top_n": output.top_n})


def _guided(request: GenerateRequest, call: GenerateCall) -> None:
    if call.guide is not None:
        with writing("guide"):
            _fill_guide(request.guided, call.guide)


def _fill_guide(target: GuidedDecoding, guide: Guide) -> None:
    match guide.mode:
        case GuideMode.CHOICE:
            target.choice.SetInParent()
            target.choice.choices.extend(guide.choices)
        case GuideMode.JSON_OBJECT:
            target.json_object.SetInParent()
        case GuideMode.JSON_SCHEMA | GuideMode.REGEX | GuideMode.EBNF_GRAMMAR | GuideMode.STRUCTURAL_TAG:
            setattr(target, guide.mode.value, guide.value)
    target.backend = guide.backend


def _media(request: GenerateRequest, call: GenerateCall) -> None:
    for index, item in enumerate(call.media):
        with writing(f"media[{index}]"):
            _add_media(request, item)
    if call.media_options:
        fill_struct(request.media_options, call.media_options, path="media_options")


def _add_media(request: GenerateRequest, item: MediaItem) -> None:
    target = request.media.add(modality=MODALITY_NUMBERS[item.modality], mime_type=item.mime_type, uuid=item.uuid)
    setattr(target, item.source.value, item.value)


def _kv_options(call: GenerateCall) -> bytes:
    session = call.kv_session
    options = KvOptionsView()
    if session is not None:
        options.session = session.wire
    scalars = {
        "data_parallel_rank": call.data_parallel_rank if session is None else None,
        "bypass_prefix_cache": call.bypass_prefix_cache,
        "cache_salt": call.cache_salt,
    }
    _assign(options, "", scalars)
    return RequestView(kv=options).SerializeToString() if options.ListFields() else b""


def _assign(target: Message, scope: str, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        if value is not None:
            with writing(f"{scope}{name}"):
                setattr(target, name, value)


_PARTS: tuple[Callable[[GenerateRequest, GenerateCall], None], ...] = (
    _basics,
    _sampling,
    _stopping,
    _logprobs,
    _guided,
    _media,
)
_DEFAULT_SAMPLING = Sampling()
_DEFAULT_STOPPING = Stopping()

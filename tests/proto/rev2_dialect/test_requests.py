from __future__ import annotations

from typing import Any

import msgspec
import pytest

from openengine_sidecar.messages.engine.generation import (
    GenerateCall,
    Guide,
    GuideMode,
    KvSession,
    Logprobs,
    MediaItem,
    MediaSource,
    Modality,
    Sampling,
    Stopping,
)
from openengine_sidecar.proto.fields import FieldError
from openengine_sidecar.proto.handoff.session_pb2 import RequestView
from openengine_sidecar.proto.rev2.generation_pb2 import (
    CandidateTokenSelection,
    ChoiceConstraint,
    GenerateRequest,
    GuidedDecoding,
    JsonObjectConstraint,
    KvOptions,
    ResponseOptions,
    SamplingParams,
    StopCondition,
    StoppingOptions,
)
from openengine_sidecar.proto.rev2.input_pb2 import MODALITY_AUDIO, MODALITY_IMAGE, MODALITY_VIDEO, TokenIds
from openengine_sidecar.proto.rev2.input_pb2 import MediaItem as WireMedia
from openengine_sidecar.proto.rev2.kv_pb2 import KvSessionRef
from openengine_sidecar.proto.rev2_dialect.requests import encode

BARE = GenerateCall(request_id="r", model="m", token_ids=[1])
SESSION_WIRE = KvSessionRef(session_id="s", transfer_backend="nixl", dp_rank=3).SerializeToString()
SESSION = KvSession(session_id="s", transfer_backend="nixl", dp_rank=3, wire=SESSION_WIRE)

EVERYTHING = GenerateCall(
    request_id="req.1",
    model="model",
    token_ids=[0, 1, 2**32 - 1],
    sampling=Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=-1,
        min_p=0.1,
        frequency_penalty=-1.5,
        presence_penalty=1.5,
        repetition_penalty=1.1,
        seed=2**64 - 1,
        num_sequences=2,
    ),
    stopping=Stopping(
        max_tokens=10,
        min_tokens=2,
        stop_texts=("\n", "end"),
        stop_token_ids=(7, 0),
        ignore_eos=True,
        include_stop=True,
    ),
    output_logprobs=Logprobs(top_n=5),
    prompt_logprobs=Logprobs(top_n=3),
    guide=Guide(mode=GuideMode.REGEX, value="a+", backend="xgrammar"),
    media=(
        MediaItem(modality=Modality.IMAGE, source=MediaSource.URL, value="http://h/i.png", uuid="u"),
        MediaItem(modality=Modality.VIDEO, source=MediaSource.DATA_URI, value="data:video/mp4;base64,AA=="),
        MediaItem(modality=Modality.AUDIO, source=MediaSource.RAW_BYTES, value=b"\x00\xff", mime_type="audio/wav"),
    ),
    media_options={"image": {"size": 448}},
    lora_name="adapter",
    priority=-4,
    data_parallel_rank=2,
    bypass_prefix_cache=True,
    cache_salt="tenant",
    kv_session=SESSION,
    metadata={"user": "ünïcode"},
    trace={"traceparent": "00-a-b-01"},
)


def _call(**fields: Any) -> GenerateCall:
    return msgspec.structs.replace(BARE, **fields)


def _sent(call: GenerateCall) -> GenerateRequest:
    return GenerateRequest.FromString(encode(call))


def _expected() -> GenerateRequest:
    request = GenerateRequest(
        request_id="req.1",
        model="model",
        token_ids=TokenIds(ids=[0, 1, 2**32 - 1]),
        sampling=SamplingParams(
            temperature=0.5,
            top_p=0.9,
            top_k=-1,
            min_p=0.1,
            frequency_penalty=-1.5,
            presence_penalty=1.5,
            repetition_penalty=1.1,
            seed=2**64 - 1,
            num_sequences=2,
        ),
        stopping=StoppingOptions(
            max_tokens=10,
            min_tokens=2,
            conditions=[
                StopCondition(stop_text="\n"),
                StopCondition(stop_text="end"),
                StopCondition(stop_token_id=7),
                StopCondition(stop_token_id=0),
            ],
            ignore_eos=True,
            include_stop_in_output=True,
        ),
        response=ResponseOptions(
            return_prompt_logprobs=True,
            prompt_candidates=CandidateTokenSelection(top_n=3),
            return_output_logprobs=True,
            output_candidates=CandidateTokenSelection(top_n=5),
        ),
        kv=KvOptions(
            session=KvSessionRef(session_id="s", transfer_backend="nixl", dp_rank=3),
            bypass_prefix_cache=True,
            cache_salt="tenant",
        ),
        guided=GuidedDecoding(regex="a+", backend="xgrammar"),
        media=[
            WireMedia(modality=MODALITY_IMAGE, url="http://h/i.png", uuid="u"),
            WireMedia(modality=MODALITY_VIDEO, data_uri="data:video/mp4;base64,AA=="),
            WireMedia(modality=MODALITY_AUDIO, raw_bytes=b"\x00\xff", mime_type="audio/wav"),
        ],
        lora_name="adapter",
        priority=-4,
        metadata={"user": "ünïcode"},
    )
    request.media_options.update({"image": {"size": 448}})
    return request


def test_every_field_of_a_call_reaches_the_wire() -> None:
    assert all(getattr(EVERYTHING, name) != getattr(BARE, name) for name in GenerateCall.__struct_fields__)
    assert _sent(EVERYTHING) == _expected()


def test_every_field_of_the_schema_is_used_but_those_nobody_asks_for() -> None:
    unused = {
        f"{message.DESCRIPTOR.name}.{field.name}"
        for message in (_expected(), *(value for _, value in _expected().ListFields() if hasattr(value, "DESCRIPTOR")))
        for field in message.DESCRIPTOR.fields
        if not field.is_repeated and field.has_presence and not message.HasField(field.name)
    }
    assert unused == {
        "GenerateRequest.prompt",
        "KvOptions.data_parallel_rank",
        "ResponseOptions.prompt_logprob_start",
        "GuidedDecoding.json_schema",
        "GuidedDecoding.ebnf_grammar",
        "GuidedDecoding.structural_tag",
        "GuidedDecoding.choice",
        "GuidedDecoding.json_object",
    }


def test_b13_what_a_call_does_not_say_is_absent() -> None:
    fields = {field.name for field, _ in _sent(BARE).ListFields()}
    assert fields == {"request_id", "model", "token_ids"}


def test_b13_zero_and_false_are_present() -> None:
    sent = _sent(
        _call(
            sampling=Sampling(temperature=0.0, top_k=0, seed=0),
            stopping=Stopping(min_tokens=0, ignore_eos=False),
            priority=0,
            cache_salt="",
        )
    )
    assert {field.name for field, _ in sent.sampling.ListFields()} == {"temperature", "top_k", "seed"}
    assert {field.name for field, _ in sent.stopping.ListFields()} == {"min_tokens", "ignore_eos"}
    assert sent.HasField("priority")
    assert sent.kv.HasField("cache_salt")


@pytest.mark.parametrize(
    ("fields", "raw"),
    [
        ({"data_parallel_rank": 1}, b"\x42\x02\x10\x01"),
        ({"data_parallel_rank": 0}, b"\x42\x02\x10\x00"),
        ({"bypass_prefix_cache": True}, b"\x42\x02\x18\x01"),
        ({"bypass_prefix_cache": False}, b"\x42\x02\x18\x00"),
        ({"cache_salt": "ab"}, b"\x42\x04\x22\x02ab"),
        ({}, b""),
        (
            {"data_parallel_rank": 5, "bypass_prefix_cache": True, "cache_salt": "s"},
            b"\x42\x07\x10\x05\x18\x01\x22\x01s",
        ),
    ],
    ids=["rank", "rank-zero", "bypass", "bypass-false", "salt", "none", "all"],
)
def test_c27_kv_options_have_the_numbers_of_revision_2(fields: dict[str, Any], raw: bytes) -> None:
    assert encode(_call(**fields)) == encode(BARE) + raw


@pytest.mark.parametrize("top_n", [None, 0])
def test_c30_no_candidates_is_the_flag_alone(top_n: int | None) -> None:
    sent = _sent(_call(output_logprobs=Logprobs(top_n=top_n), prompt_logprobs=Logprobs(top_n=top_n)))
    assert sent.response == ResponseOptions(return_prompt_logprobs=True, return_output_logprobs=True)


def test_c37_session_goes_out_byte_for_byte() -> None:
    first, second = (KvSessionRef(session_id="s"), KvSessionRef())
    first.attributes_struct.update({"z": None, "flag": False})
    second.attributes_struct.update({"a": [1, 1.5, {"deep": "18446744073709551615"}]})
    unknown = b"\x4a\x03new"
    wire = unknown + second.SerializeToString() + first.SerializeToString()
    assert KvSessionRef.FromString(wire).SerializeToString() != wire
    session = KvSession(session_id="s", transfer_backend="", dp_rank=0, wire=wire)
    raw = encode(_call(kv_session=session, cache_salt="x"))
    assert RequestView.FromString(raw).kv.session == wire
    assert GenerateRequest.FromString(raw).kv.session == KvSessionRef.FromString(wire)


def test_an_empty_session_is_still_a_session() -> None:
    session = KvSession(session_id="", transfer_backend="", dp_rank=0, wire=b"")
    assert _sent(_call(kv_session=session)).kv.HasField("session")


def test_c39_with_a_session_no_rank_is_sent() -> None:
    assert not _sent(_call(kv_session=SESSION, data_parallel_rank=1)).kv.HasField("data_parallel_rank")


@pytest.mark.parametrize(
    ("guide", "expected"),
    [
        (Guide(mode=GuideMode.JSON_SCHEMA, value="{}"), GuidedDecoding(json_schema="{}")),
        (Guide(mode=GuideMode.JSON_OBJECT), GuidedDecoding(json_object=JsonObjectConstraint())),
        (Guide(mode=GuideMode.REGEX, value="a"), GuidedDecoding(regex="a")),
        (Guide(mode=GuideMode.EBNF_GRAMMAR, value="g"), GuidedDecoding(ebnf_grammar="g")),
        (Guide(mode=GuideMode.STRUCTURAL_TAG, value="t"), GuidedDecoding(structural_tag="t")),
        (Guide(mode=GuideMode.CHOICE, choices=("a", "b")), GuidedDecoding(choice=ChoiceConstraint(choices=["a", "b"]))),
        (Guide(mode=GuideMode.CHOICE), GuidedDecoding(choice=ChoiceConstraint())),
    ],
)
def test_guides(guide: Guide, expected: GuidedDecoding) -> None:
    assert _sent(_call(guide=guide)).guided == expected


def test_every_guide_mode_has_a_field() -> None:
    for mode in GuideMode:
        assert _sent(_call(guide=Guide(mode=mode, value="v", choices=("c",)))).guided.WhichOneof("guide") == mode.value


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"token_ids": [-1]}, "token_ids"),
        ({"token_ids": [2**32]}, "token_ids"),
        ({"sampling": Sampling(seed=-1)}, "sampling.seed"),
        ({"sampling": Sampling(top_k=2**31)}, "sampling.top_k"),
        ({"stopping": Stopping(max_tokens=-1)}, "stopping.max_tokens"),
        ({"stopping": Stopping(stop_token_ids=(-5,))}, "stopping.stop_token_ids"),
        ({"stopping": Stopping(stop_texts=("\ud800",))}, "stopping.stop_texts"),
        ({"output_logprobs": Logprobs(top_n=-1)}, "output_logprobs.top_n"),
        ({"prompt_logprobs": Logprobs(top_n=-1)}, "prompt_logprobs.top_n"),
        ({"guide": Guide(mode=GuideMode.REGEX, value="\ud800")}, "guide"),
        ({"media": (MediaItem(modality=Modality.IMAGE, source=MediaSource.RAW_BYTES, value="x"),)}, "media[0]"),
        ({"media_options": {"image": {"seed": 2**53 + 1}}}, "media_options.image.seed"),
        ({"media_options": {"image": float("nan")}}, "media_options.image"),
        ({"priority": 2**31}, "priority"),
        ({"data_parallel_rank": -1}, "data_parallel_rank"),
        ({"metadata": {"openengine-priority": "9"}}, "metadata.openengine-priority"),
        ({"metadata": {"OpenEngine-Foo": "9"}}, "metadata.OpenEngine-Foo"),
        ({"metadata": {"a": "\ud800"}}, "metadata"),
    ],
)
def test_what_the_schema_cannot_carry_is_refused_by_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as refusal:
        encode(_call(**fields))
    assert refusal.value.field == field

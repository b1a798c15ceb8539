from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openengine_sidecar.messages.dynamo.control import Codec
from openengine_sidecar.messages.dynamo.encoding import ENCODERS, ResponseEncoder
from openengine_sidecar.messages.dynamo.response import (
    AnnotatedOutput,
    BackendErrorType,
    CompletionTokensDetails,
    CompletionUsage,
    Envelope,
    FinishError,
    FinishReason,
    LLMEngineOutput,
    PromptTokensDetails,
    PublicMessage,
    TopLogprob,
)
from openengine_sidecar.messages.dynamo.two_part import FrameDecoder
from openengine_sidecar.messages.errors import (
    EngineCancelledError,
    EngineFailureError,
    EngineLostError,
    EngineProtocolError,
    EngineTimeoutError,
    EngineUnreachableError,
    InvalidRequestError,
    OverloadedError,
    RequestError,
    StreamBrokenError,
    UnsupportedFeatureError,
    WireError,
)

NOT_FINITE = [math.nan, math.inf, -math.inf]

U32 = st.integers(0, 2**32 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
OPTIONAL_COUNT = st.none() | U32
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
CANDIDATES = st.builds(
    TopLogprob,
    rank=U32,
    token_id=U32,
    logprob=FINITE,
    token=st.none() | TEXT,
    bytes=st.none() | st.lists(st.integers(0, 255), max_size=4),
)
USAGE = st.builds(
    CompletionUsage,
    prompt_tokens=U32,
    completion_tokens=U32,
    total_tokens=U32,
    prompt_tokens_details=st.none() | st.builds(PromptTokensDetails, cached_tokens=OPTIONAL_COUNT),
    completion_tokens_details=st.none() | st.builds(CompletionTokensDetails, reasoning_tokens=OPTIONAL_COUNT),
)
OUTPUTS = st.builds(
    LLMEngineOutput,
    token_ids=st.lists(U32, max_size=4),
    tokens=st.none() | st.lists(st.none() | TEXT, max_size=4),
    text=st.none() | TEXT,
    cum_log_probs=st.none() | FINITE,
    log_probs=st.none() | st.lists(FINITE, max_size=4),
    top_logprobs=st.none() | st.lists(st.lists(CANDIDATES, max_size=2), max_size=2),
    finish_reason=st.none() | st.sampled_from(FinishReason) | st.builds(FinishError, TEXT),
    stop_reason=st.none() | TEXT | U32,
    index=st.none() | U32,
    completion_usage=st.none() | USAGE,
    disaggregated_params=JSON_VALUES,
    engine_data=JSON_VALUES,
)


@pytest.fixture(params=Codec)
def encoder(request: pytest.FixtureRequest) -> ResponseEncoder:
    return ENCODERS[request.param]


def bodies(frames: bytes) -> list[bytes]:
    decoder = FrameDecoder()
    parts = decoder.feed(frames)
    decoder.finish()
    assert all(header == b"" for header, _body in parts)
    return [body for _header, body in parts]


def strictly(codec: Codec, body: bytes) -> Envelope:
    if codec is Codec.MSGPACK:
        return msgspec.msgpack.decode(body, type=Envelope, strict=True)
    return msgspec.json.decode(body, type=Envelope, strict=True)


def plain(codec: Codec, frames: bytes) -> Any:
    module = msgspec.msgpack if codec is Codec.MSGPACK else msgspec.json
    [body] = bodies(frames)
    return module.decode(body)


def error_of(encoder: ResponseEncoder, error: RequestError) -> dict[str, Any]:
    item: dict[str, Any] = plain(encoder.codec, encoder.error(error))
    assert item["complete_final"] is False
    assert item["data"]["event"] == "error"
    found: dict[str, Any] = item["data"]["error"]
    return found


def test_a_token_chunk_is_as_small_as_the_wire_allows(encoder: ResponseEncoder) -> None:
    frames = encoder.outputs([LLMEngineOutput(token_ids=[69])])
    assert plain(encoder.codec, frames) == {"data": {"data": {"token_ids": [69]}}, "complete_final": False}


def test_an_empty_last_chunk_still_has_its_token_list(encoder: ResponseEncoder) -> None:
    frames = encoder.outputs([LLMEngineOutput(token_ids=[], index=0, finish_reason=FinishReason.STOP)])
    assert plain(encoder.codec, frames)["data"]["data"] == {"token_ids": [], "index": 0, "finish_reason": "stop"}


def test_zero_is_said_where_none_is_not(encoder: ResponseEncoder) -> None:
    usage = CompletionUsage(
        prompt_tokens=0, completion_tokens=0, total_tokens=0, prompt_tokens_details=PromptTokensDetails(cached_tokens=0)
    )
    frames = encoder.outputs([LLMEngineOutput(token_ids=[], completion_usage=usage)])
    assert plain(encoder.codec, frames)["data"]["data"]["completion_usage"] == {
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "total_tokens": 0,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_no_chunk_is_no_frame(encoder: ResponseEncoder) -> None:
    assert encoder.outputs([]) == b""


@settings(deadline=None)
@given(st.lists(OUTPUTS, max_size=3))
def test_chunks_of_one_write_decode_strictly_and_in_order(outputs: list[LLMEngineOutput]) -> None:
    for codec, encoder in ENCODERS.items():
        seen = [strictly(codec, body) for body in bodies(encoder.outputs(outputs))]
        assert [msgspec.to_builtins(envelope.data) for envelope in seen] == [
            msgspec.to_builtins(AnnotatedOutput(data=output)) for output in outputs
        ]
        assert not any(envelope.complete_final for envelope in seen)


def test_the_end_is_the_final_marker_and_the_sentinel(encoder: ResponseEncoder) -> None:
    final, sentinel = FrameDecoder().feed(encoder.end)
    module = msgspec.msgpack if encoder.codec is Codec.MSGPACK else msgspec.json
    assert final.header == b""
    assert module.decode(final.body) == {"complete_final": True}
    assert sentinel == (b'"sentinel"', b"")


def test_a_client_fault_shows_its_text_to_the_client(encoder: ResponseEncoder) -> None:
    assert error_of(encoder, InvalidRequestError("r1", "top_k 0.5 is no integer")) == {
        "error_type": {"Backend": "InvalidArgument"},
        "message": "top_k 0.5 is no integer",
        "diagnostic": "request r1: top_k 0.5 is no integer",
        "public": {"type": "message", "message": "top_k 0.5 is no integer"},
    }


def test_an_operator_text_stays_with_the_operator(encoder: ResponseEncoder) -> None:
    assert "public" not in error_of(encoder, EngineFailureError("r1", "CUDA error at 0x7f"))


@pytest.mark.parametrize(
    ("error", "error_type"),
    [
        (UnsupportedFeatureError("r", "x"), {"Backend": "InvalidArgument"}),
        (OverloadedError("r", "x"), "WorkerOverloaded"),
        (EngineCancelledError("r", "x"), {"Backend": "Cancelled"}),
        (EngineTimeoutError("r", "x"), {"Backend": "ConnectionTimeout"}),
        (EngineUnreachableError("r", "x"), {"Backend": "CannotConnect"}),
        (EngineLostError("r", "x"), {"Backend": "EngineShutdown"}),
        (StreamBrokenError("r", "x"), {"Backend": "Disconnected"}),
        (EngineProtocolError("r", "no_terminal", "x"), {"Backend": "Disconnected"}),
        (EngineFailureError("r", "x"), {"Backend": "Unknown"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, RequestError) else "",
)
def test_each_error_names_its_kind(error: RequestError, error_type: object) -> None:
    for encoder in ENCODERS.values():
        assert error_of(encoder, error)["error_type"] == error_type


def test_an_error_item_decodes_strictly(encoder: ResponseEncoder) -> None:
    [body] = bodies(encoder.error(InvalidRequestError("r1", "no", public="say no")))
    item = strictly(encoder.codec, body).data
    assert item is not None
    assert item.error is not None
    assert item.error.error_type == BackendErrorType("InvalidArgument")
    assert item.error.public == PublicMessage("say no")


def test_an_event_travels_beside_tokens(encoder: ResponseEncoder) -> None:
    frames = encoder.annotated(AnnotatedOutput(event="note", comment=["hi"]))
    assert plain(encoder.codec, frames) == {"data": {"event": "note", "comment": ["hi"]}, "complete_final": False}


def test_other_endpoints_answer_annotated_or_bare(encoder: ResponseEncoder) -> None:
    value = {"status": "success", "loras": {"a": 1}}
    assert plain(encoder.codec, encoder.value(value)) == {"data": {"data": value}, "complete_final": False}
    assert plain(encoder.codec, encoder.bare(value)) == {"data": value, "complete_final": False}


@pytest.mark.parametrize("bad", NOT_FINITE)
def test_a_number_that_json_cannot_spell_is_refused_and_named(encoder: ResponseEncoder, bad: float) -> None:
    candidate = TopLogprob(rank=1, token_id=5, logprob=bad)
    cases: list[tuple[LLMEngineOutput, str]] = [
        (LLMEngineOutput(token_ids=[1], cum_log_probs=bad), ".cum_log_probs"),
        (LLMEngineOutput(token_ids=[1, 2], log_probs=[-0.5, bad]), ".log_probs[1]"),
        (LLMEngineOutput(token_ids=[1], top_logprobs=[[candidate]]), ".top_logprobs[0][0].logprob"),
        (LLMEngineOutput(token_ids=[1], disaggregated_params={"a": (1, [bad])}), ".disaggregated_params.a[1][0]"),
        (LLMEngineOutput(token_ids=[1], engine_data={"prompt_logprobs": [None, bad]}), ".prompt_logprobs[1]"),
    ]
    for output, path in cases:
        with pytest.raises(WireError) as caught:
            encoder.outputs([output])
        assert caught.value.part == "output"
        assert path in caught.value.problem


def test_a_bare_number_that_json_cannot_spell_is_refused(encoder: ResponseEncoder) -> None:
    with pytest.raises(WireError, match="the value is not a finite number"):
        encoder.bare(math.nan)


def test_a_value_that_no_codec_knows_is_refused(encoder: ResponseEncoder) -> None:
    endless: list[object] = []
    endless.append(endless)
    for value in (object(), {"a": {object()}}, "\ud800", endless):
        with pytest.raises(WireError) as caught:
            encoder.value(value)
        assert caught.value.part == "output"

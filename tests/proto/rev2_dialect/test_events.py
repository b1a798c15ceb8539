# ruff: noqa: S106 - the tokens of these tests are texts

from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from openengine_sidecar.messages.engine.generation import (
    Candidate,
    Empty,
    Event,
    Fault,
    FaultCode,
    Finished,
    FinishReason,
    KvSession,
    PrefillReady,
    PromptScored,
    StopMatch,
    TokenDetail,
    Tokens,
    Usage,
)
from openengine_sidecar.proto.handoff.session_pb2 import PrefillReadyView, ResponseView
from openengine_sidecar.proto.rev2.error_pb2 import EngineError, ErrorCode
from openengine_sidecar.proto.rev2.generation_pb2 import (
    FINISH_REASON_CANCELLED,
    FINISH_REASON_LENGTH,
    FINISH_REASON_STOP,
    GenerateResponse,
    GenerationFinished,
    LogProb,
    PromptOutput,
    TokenInfo,
    TokenOutput,
)
from openengine_sidecar.proto.rev2.generation_pb2 import PrefillReady as WirePrefillReady
from openengine_sidecar.proto.rev2.generation_pb2 import StopMatch as WireStopMatch
from openengine_sidecar.proto.rev2.generation_pb2 import Usage as WireUsage
from openengine_sidecar.proto.rev2.kv_pb2 import KvSessionRef
from openengine_sidecar.proto.rev2_dialect.events import decode_detailed, decode_plain
from tests.proto.engine import wire


def _decoded(*, detailed: bool = False, **fields: Any) -> Event:
    raw = GenerateResponse(request_id="r", **fields).SerializeToString()
    return (decode_detailed if detailed else decode_plain)(raw)


def test_c19_token_deltas_may_lack_text_or_tokens() -> None:
    text_only = _decoded(token=TokenOutput(output_index=0, text="hi"))
    tokens_only = _decoded(token=TokenOutput(output_index=1, tokens=[TokenInfo(token_id=5), TokenInfo(token_id=0)]))
    assert text_only == Event("r", Tokens(index=0, token_ids=[], text="hi"))
    assert tokens_only == Event("r", Tokens(index=1, token_ids=[5, 0]))


def test_index_absent_is_not_index_zero() -> None:
    assert _decoded(token=TokenOutput(text="x")).body == Tokens(index=None, token_ids=[], text="x")
    assert _decoded(finished=GenerationFinished(reason=FINISH_REASON_STOP)).body == Finished(
        index=None, reason=FinishReason.STOP
    )


DETAILED = TokenOutput(
    output_index=0,
    tokens=[
        TokenInfo(
            token_id=5,
            token="five",
            logprob=-0.5,
            rank=1,
            candidates=[LogProb(token_id=6, logprob=-1.0, token="six", rank=2), LogProb(token_id=7, logprob=-2.0)],
        ),
        TokenInfo(token_id=8),
    ],
)


def test_details_are_read_where_logprobs_were_asked_for() -> None:
    body = _decoded(detailed=True, token=DETAILED).body
    assert isinstance(body, Tokens)
    assert body.token_ids == [5, 8]
    assert body.details == (
        TokenDetail(
            token_id=5,
            token="five",
            logprob=-0.5,
            rank=1,
            candidates=(Candidate(6, -1.0, "six", 2), Candidate(7, -2.0)),
        ),
        TokenDetail(token_id=8),
    )


def test_f43_details_stay_aligned_where_a_logprob_is_missing_or_not_a_number() -> None:
    tokens = [TokenInfo(token_id=1, logprob=math.nan), TokenInfo(token_id=2), TokenInfo(token_id=3, logprob=0.0)]
    body = _decoded(detailed=True, token=TokenOutput(output_index=0, tokens=tokens)).body
    assert isinstance(body, Tokens)
    assert body.details is not None
    nan, missing, zero = body.details
    assert nan.logprob is not None
    assert math.isnan(nan.logprob)
    assert (missing.logprob, zero.logprob) == (None, 0.0)


def test_plain_tokens_carry_no_details() -> None:
    assert _decoded(token=DETAILED).body == Tokens(index=0, token_ids=[5, 8])


@pytest.mark.parametrize("detailed", [False, True])
def test_c18_prompt_is_scored_but_for_its_first_token(*, detailed: bool) -> None:
    prompt = PromptOutput(
        tokens=[TokenInfo(token_id=1), TokenInfo(token_id=2, logprob=-1.0), TokenInfo(token_id=3, logprob=-0.0, rank=1)]
    )
    first, second, third = (
        TokenDetail(token_id=1),
        TokenDetail(token_id=2, logprob=-1.0),
        TokenDetail(token_id=3, logprob=-0.0, rank=1),
    )
    assert _decoded(detailed=detailed, prompt=prompt) == Event("r", PromptScored(tokens=(first, second, third)))


def test_c20_usage_absent_is_not_zero() -> None:
    finished = GenerationFinished(output_index=0, reason=FINISH_REASON_LENGTH)
    bare = _decoded(finished=finished, usage=WireUsage(prompt_tokens=3, completion_tokens=2, total_tokens=9))
    zeros = _decoded(finished=finished, usage=WireUsage(cached_prompt_tokens=0, reasoning_tokens=0))
    assert bare.usage == Usage(prompt_tokens=3, completion_tokens=2, total_tokens=9)
    assert zeros.usage == Usage(
        prompt_tokens=0, completion_tokens=0, total_tokens=0, cached_prompt_tokens=0, reasoning_tokens=0
    )
    assert _decoded(finished=finished).usage is None


def test_usage_is_read_from_token_events_too_for_the_caller_to_judge() -> None:
    assert _decoded(token=TokenOutput(text="x"), usage=WireUsage(prompt_tokens=1)).usage is not None


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (WireStopMatch(stop_token_id=0), StopMatch(token_id=0)),
        (WireStopMatch(stop_text="end\n"), StopMatch(text="end\n")),
        (WireStopMatch(eos_token_id=2), StopMatch(eos_token_id=2)),
        (WireStopMatch(), None),
        (None, None),
    ],
)
def test_c21_stop_match(match: WireStopMatch | None, expected: StopMatch | None) -> None:
    finished = GenerationFinished(output_index=0, reason=FINISH_REASON_STOP, stop_match=match)
    assert _decoded(finished=finished).body == Finished(index=0, reason=FinishReason.STOP, match=expected)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (FINISH_REASON_STOP, FinishReason.STOP),
        (FINISH_REASON_LENGTH, FinishReason.LENGTH),
        (FINISH_REASON_CANCELLED, FinishReason.CANCELLED),
        (0, FinishReason.UNKNOWN),
        (9, FinishReason.UNKNOWN),
    ],
)
def test_c70_finish_reasons(number: int, reason: FinishReason) -> None:
    raw = b"\x2a\x04\x08\x00\x10" + bytes([number])
    assert decode_plain(raw).body == Finished(index=0, reason=reason)


@pytest.mark.parametrize("number", [0, 42, 2**31 - 1])
def test_c70_unknown_error_codes_are_unspecified(number: int) -> None:
    body = _decoded(error=EngineError(code=wire(number), message="m")).body
    assert body == Fault(code=FaultCode.UNSPECIFIED, message="m")


def test_c23_every_error_code_has_its_word() -> None:
    for name, number in ErrorCode.items():
        body = _decoded(error=EngineError(code=wire(number))).body
        assert body == Fault(code=FaultCode(name.removeprefix("ERROR_CODE_").lower()), message="")


def test_c23_retry_wish_and_details_are_kept_and_texts_made_harmless() -> None:
    error = EngineError(code=ErrorCode.ERROR_CODE_OVERLOADED, message="full\nup", retryable=True, retry_after_ms=0)
    error.details.update({"queue": [1, None, {"deep": True}], "why": "x\ny", "load": 0.5})
    assert _decoded(error=error).body == Fault(
        code=FaultCode.OVERLOADED,
        message=r"full\nup",
        retryable=True,
        retry_after_ms=0,
        details='{"load": 0.5, "queue": [1, null, {"deep": true}], "why": "x\\ny"}',
    )


def test_c37_session_is_kept_as_the_bytes_that_came() -> None:
    known = KvSessionRef(session_id="s", transfer_backend="nixl", dp_rank=4)
    known.attributes_struct.update({"b": 1})
    sent = b"\x4a\x03new" + known.SerializeToString()
    assert KvSessionRef.FromString(sent).SerializeToString() != sent
    raw = (
        GenerateResponse(request_id="r").SerializeToString()
        + ResponseView(prefill_ready=PrefillReadyView(kv_session=sent)).SerializeToString()
    )
    session = KvSession(session_id="s", transfer_backend="nixl", dp_rank=4, wire=sent)
    assert decode_plain(raw) == Event("r", PrefillReady(session=session))


def test_c36_handoff_without_a_session_is_told_apart_from_an_empty_one() -> None:
    assert _decoded(prefill_ready=WirePrefillReady()).body == PrefillReady(session=None)
    assert _decoded(prefill_ready=WirePrefillReady(kv_session=KvSessionRef())).body == PrefillReady(
        session=KvSession(session_id="", transfer_backend="", dp_rank=0, wire=b"")
    )


def test_c68_a_response_without_an_event_is_empty() -> None:
    assert _decoded() == Event("r", Empty())
    assert decode_plain(b"") == Event("", Empty())


def test_every_event_of_the_schema_is_read() -> None:
    for event in GenerateResponse.DESCRIPTOR.oneofs_by_name["event"].fields:
        response = GenerateResponse()
        getattr(response, event.name).SetInParent()
        assert decode_detailed(response.SerializeToString()).body != Empty()


def test_c72_foreign_bytes_do_not_decode() -> None:
    with pytest.raises(DecodeError):
        decode_plain(b"\xff")

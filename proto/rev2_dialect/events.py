"""The bytes of a GenerateResponse -> Event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from openengine_sidecar.messages.engine.generation import (
    Candidate,
    Empty,
    Event,
    EventBody,
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
from openengine_sidecar.proto.fields import given
from openengine_sidecar.proto.handoff.session_pb2 import ResponseView
from openengine_sidecar.proto.rev2 import generation_pb2 as wire
from openengine_sidecar.proto.rev2.error_pb2 import EngineError
from openengine_sidecar.proto.rev2_dialect.enums import FAULT_CODES, FINISH_REASONS
from openengine_sidecar.proto.structs import struct_text
from openengine_sidecar.proto.text import MESSAGE_LIMIT, peer_text


def decode_plain(raw: bytes) -> Event:
    """Read one response of a request without output logprobs: of tokens only their ids.

    Raises:
        google.protobuf.message.DecodeError: the bytes are no GenerateResponse.
    """
    response = wire.GenerateResponse.FromString(raw)
    if response.HasField("token"):
        return Event(response.request_id, _tokens(response.token, None), _usage(response))
    return _rare(response, raw)


def decode_detailed(raw: bytes) -> Event:
    """Read one response of a request with output logprobs: of each token what the engine said of it.

    Raises:
        google.protobuf.message.DecodeError: the bytes are no GenerateResponse.
    """
    response = wire.GenerateResponse.FromString(raw)
    if response.HasField("token"):
        body = _tokens(response.token, _details(response.token.tokens))
        return Event(response.request_id, body, _usage(response))
    return _rare(response, raw)


def fault(error: EngineError) -> Fault:
    """Translate an application failure."""
    return Fault(
        code=FAULT_CODES.get(error.code, FaultCode.UNSPECIFIED),
        message=peer_text(error.message, limit=MESSAGE_LIMIT),
        retryable=error.retryable,
        retry_after_ms=given(error, "retry_after_ms"),
        details=struct_text(error.details) if error.HasField("details") else "",
    )


def _tokens(output: wire.TokenOutput, details: tuple[TokenDetail, ...] | None) -> Tokens:
    return Tokens(
        index=given(output, "output_index"),
        token_ids=[token.token_id for token in output.tokens],
        text=output.text,
        details=details,
    )


def _details(tokens: Iterable[wire.TokenInfo]) -> tuple[TokenDetail, ...]:
    return tuple(
        TokenDetail(
            token_id=token.token_id,
            token=token.token,
            logprob=given(token, "logprob"),
            rank=given(token, "rank"),
            candidates=tuple(
                Candidate(other.token_id, other.logprob, other.token, given(other, "rank"))
                for other in token.candidates
            ),
        )
        for token in tokens
    )


def _rare(response: wire.GenerateResponse, raw: bytes) -> Event:
    kind = response.WhichOneof("event")
    body = _BODIES[kind](response, raw) if kind is not None else Empty()
    return Event(response.request_id, body, _usage(response))


def _prompt(response: wire.GenerateResponse, raw: bytes) -> PromptScored:
    del raw
    return PromptScored(tokens=_details(response.prompt.tokens))


def _prefill_ready(response: wire.GenerateResponse, raw: bytes) -> PrefillReady:
    if not response.prefill_ready.HasField("kv_session"):
        return PrefillReady(session=None)
    session = response.prefill_ready.kv_session
    return PrefillReady(
        session=KvSession(
            session_id=session.session_id,
            transfer_backend=session.transfer_backend,
            dp_rank=session.dp_rank,
            wire=ResponseView.FromString(raw).prefill_ready.kv_session,
        )
    )


def _finished(response: wire.GenerateResponse, raw: bytes) -> Finished:
    del raw
    finished = response.finished
    return Finished(
        index=given(finished, "output_index"),
        reason=FINISH_REASONS.get(finished.reason, FinishReason.UNKNOWN),
        message=peer_text(finished.message, limit=MESSAGE_LIMIT),
        match=_stop_match(finished.stop_match) if finished.HasField("stop_match") else None,
    )


def _stop_match(match: wire.StopMatch) -> StopMatch | None:
    if match.WhichOneof("match") is None:
        return None
    return StopMatch(
        token_id=given(match, "stop_token_id"),
        text=given(match, "stop_text"),
        eos_token_id=given(match, "eos_token_id"),
    )


def _fault(response: wire.GenerateResponse, raw: bytes) -> Fault:
    del raw
    return fault(response.error)


def _usage(response: wire.GenerateResponse) -> Usage | None:
    if not response.HasField("usage"):
        return None
    usage = response.usage
    return Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        cached_prompt_tokens=given(usage, "cached_prompt_tokens"),
        reasoning_tokens=given(usage, "reasoning_tokens"),
    )


_BODIES: Mapping[str, Callable[[wire.GenerateResponse, bytes], EventBody]] = {
    "prompt": _prompt,
    "prefill_ready": _prefill_ready,
    "finished": _finished,
    "error": _fault,
}

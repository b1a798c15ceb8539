"""What a worker says on the call-home connection: output items, error items, the end.

Every item of an LLM endpoint is an *annotated* one, and travels in an envelope:

    {"data": {"data": {"token_ids": [69]}}, "complete_final": false}
    {"data": {"event": "error", "error": {...}}, "complete_final": false}
    {"complete_final": true}

Null and absent mean the same on this wire, so fields that hold their default are left out.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from openengine_sidecar.messages.errors import RequestError

ERROR_EVENT = "error"


class FinishReason(StrEnum):
    """Why one choice ended. The client sees `EOS` and `CANCELLED` as `stop`."""

    EOS = "eos"
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    CONTENT_FILTER = "content_filter"


class FinishError(msgspec.Struct, frozen=True):
    """A finish reason that says that the choice failed. An error item says more; prefer it."""

    error: str


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One candidate at one position. Without `token` the frontend detokenizes; `bytes` are the token's UTF-8."""

    rank: int
    token_id: int
    logprob: float
    token: str | None = None
    bytes: list[int] | None = None


class PromptTokensDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Prompt tokens by kind; 0 is said, None is not known."""

    audio_tokens: int | None = None
    cached_tokens: int | None = None


class CompletionTokensDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Completion tokens by kind; 0 is said, None is not known."""

    reasoning_tokens: int | None = None


class CompletionUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Token counts of the whole request; without it the frontend counts by itself."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


class LLMEngineOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New tokens of one choice, and what ends it.

    Attributes:
        token_ids: new tokens only; may be empty on the last item of a choice.
        tokens: their texts, aligned with `token_ids`.
        text: their text; None lets the frontend detokenize.
        log_probs: natural logarithms, aligned with `token_ids`.
        top_logprobs: candidates per token, the chosen one first.
        stop_reason: the text or token id that made it stop.
        index: the choice; None stands for 0.
        completion_usage: on the last item of the request.
        disaggregated_params: any JSON; what a prefill worker hands to the decode worker.
        engine_data: any JSON; `{"prompt_logprobs": ...}` shows in unary chat answers.
    """

    token_ids: list[int]
    tokens: list[str | None] | None = None
    text: str | None = None
    cum_log_probs: float | None = None
    log_probs: list[float] | None = None
    top_logprobs: list[list[TopLogprob]] | None = None
    finish_reason: FinishReason | FinishError | None = None
    stop_reason: str | int | None = None
    index: int | None = None
    completion_usage: CompletionUsage | None = None
    disaggregated_params: Any = None
    engine_data: Any = None


class BackendErrorType(msgspec.Struct, frozen=True):
    """An error kind of the backend's own family."""

    kind: str = msgspec.field(name="Backend")


class PublicMessage(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """The text that the client is shown in place of the frontend's fixed one."""

    message: str


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A typed error. `message` and `diagnostic` are the operator's; the client sees `public` alone."""

    error_type: str | BackendErrorType
    message: str
    diagnostic: str | None = None
    public: PublicMessage | None = None


class AnnotatedOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item of an LLM endpoint. The frontend overlooks an `error` whose `event` is not `error`."""

    data: LLMEngineOutput | None = None
    id: str | None = None
    event: str | None = None
    comment: list[str] | None = None
    error: ErrorBody | None = None


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """Body of one response frame, as its reader types it; the last one has no `data`."""

    complete_final: bool
    data: AnnotatedOutput | None = None


class Refusal(msgspec.Struct, frozen=True):
    """Prologue of a request that is not served; `error` says it to frontends that do not know the typed form."""

    error: str
    typed_error: ErrorBody


def error_body(error: RequestError) -> ErrorBody:
    """An error as frontends know it."""
    return ErrorBody(
        error_type=BackendErrorType(error.error_type) if error.backend else error.error_type,
        message=error.problem,
        diagnostic=str(error),
        public=None if error.public is None else PublicMessage(error.public),
    )


def error_item(error: RequestError) -> AnnotatedOutput:
    """The item that ends a request with an error."""
    return AnnotatedOutput(event=ERROR_EVENT, error=error_body(error))

"""From an engine's events to Dynamo's output items.

Token ids are the answer: the frontend detokenizes them, so an item with ids carries no text. An engine's text repeats
its ids, in the same event or, held back, in one of its own; it goes up only for an output that ended without a single
id. So nothing is lost and nothing is said twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from openengine_sidecar.actors.generation.scores import finite, prompt_logprobs, top_logprobs
from openengine_sidecar.messages.dynamo.response import (
    CompletionTokensDetails,
    CompletionUsage,
    FinishReason,
    LLMEngineOutput,
    PromptTokensDetails,
    TopLogprob,
)
from openengine_sidecar.messages.engine.generation import (
    Event,
    Fault,
    Finished,
    GenerateCall,
    PromptScored,
    StopMatch,
    TokenDetail,
    Tokens,
    Usage,
)
from openengine_sidecar.messages.engine.generation import FinishReason as EngineReason
from openengine_sidecar.messages.errors import EngineCancelledError, EngineProtocolError
from openengine_sidecar.proto.faults import error_from_fault

MAX_HELD_TEXT = 4 * 1024 * 1024
"""Characters of text without ids that one output may hold back."""


@dataclass(slots=True)
class _Output:
    """What one output has said so far: whether ids, which text without them, and the sum of its logprobs."""

    has_ids: bool = False
    held: list[str] = field(default_factory=list)
    held_size: int = 0
    sum: float = 0.0


class ResponseTranslator:
    """Translates the events of one stream, each accepted by its rules before; what follows the end is passed over.

    Args:
        call: what the engine was asked.
        prefilled: prompt tokens that the prefill half found cached, which is what the request's usage tells; None
            where there was none, or it did not say.
    """

    def __init__(self, call: GenerateCall, *, prefilled: int | None = None) -> None:
        self._prefilled = prefilled
        outputs = call.sampling.num_sequences or 1
        self._request_id = call.request_id
        self._several = outputs > 1
        self._outputs = [_Output() for _ in range(outputs)]
        self._left = outputs
        self._scored = call.output_logprobs is not None
        self._candidates = (call.output_logprobs and call.output_logprobs.top_n) or 0
        self._engine_data: dict[str, object] | None = None

    def outputs(self, event: Event) -> Sequence[LLMEngineOutput]:
        """Translates one event into the items that it is worth, often one, sometimes none.

        Raises:
            EngineCancelledError: the engine cut an output short by itself; what it sent is no whole answer.
            EngineProtocolError: a token lacks the logprob that was asked for, or text came without end and ids.
            RequestError: the engine reported that it failed; the class is the fault's.
        """
        body = event.body
        if not self._left:
            return ()
        if isinstance(body, Tokens):
            return self._tokens(body)
        if isinstance(body, Finished):
            return (self._finished(body, event.usage),)
        if isinstance(body, PromptScored):
            self._engine_data = {"prompt_logprobs": prompt_logprobs(body.tokens)}
        elif isinstance(body, Fault):
            raise error_from_fault(self._request_id, body)
        return ()

    def _tokens(self, body: Tokens) -> Sequence[LLMEngineOutput]:
        index = body.index or 0
        output = self._outputs[index]
        if not body.token_ids:
            self._hold(output, body.text)
            return ()
        output.has_ids = True
        shown = index if self._several else None
        if body.details is None and not self._scored:
            return (LLMEngineOutput(token_ids=body.token_ids, index=shown),)
        return (self._detailed(body, output, shown),)

    def _hold(self, output: _Output, text: str) -> None:
        if output.has_ids or not text:
            return
        output.held.append(text)
        output.held_size += len(text)
        if output.held_size > MAX_HELD_TEXT:
            problem = f"more than {MAX_HELD_TEXT} characters of text without a token id"
            raise EngineProtocolError(self._request_id, "text_without_tokens", problem)

    def _detailed(self, body: Tokens, output: _Output, shown: int | None) -> LLMEngineOutput:
        details = body.details or ()
        texts = [detail.token or None for detail in details]
        tokens = texts if any(texts) else None
        if not self._scored:
            return LLMEngineOutput(token_ids=body.token_ids, tokens=tokens, index=shown)
        log_probs = self._log_probs(body.token_ids, details)
        output.sum += sum(log_probs)
        return LLMEngineOutput(
            token_ids=body.token_ids,
            tokens=tokens,
            index=shown,
            log_probs=log_probs,
            cum_log_probs=output.sum,
            top_logprobs=self._top_logprobs(details, log_probs),
        )

    def _log_probs(self, token_ids: list[int], details: Sequence[TokenDetail]) -> list[float]:
        log_probs = [finite(detail.logprob) for detail in details if detail.logprob is not None]
        if len(log_probs) != len(token_ids):
            problem = f"{len(log_probs)} logprobs for {len(token_ids)} tokens"
            raise EngineProtocolError(self._request_id, "missing_logprob", problem)
        return log_probs

    def _top_logprobs(self, details: Sequence[TokenDetail], log_probs: list[float]) -> list[list[TopLogprob]]:
        return [
            top_logprobs(detail, logprob, self._candidates) for detail, logprob in zip(details, log_probs, strict=True)
        ]

    def _finished(self, body: Finished, usage: Usage | None) -> LLMEngineOutput:
        index = body.index or 0
        if body.reason is EngineReason.CANCELLED:
            raise cancelled_by_engine(self._request_id, body)
        self._left -= 1
        output = self._outputs[index]
        return LLMEngineOutput(
            token_ids=[],
            text="".join(output.held) if output.held and not output.has_ids else None,
            finish_reason=_finish_reason(body),
            stop_reason=_stop_reason(body.match),
            index=index if self._several else None,
            completion_usage=None if usage is None else completion_usage(usage, prefilled=self._prefilled),
            engine_data=None if self._left else self._engine_data,
        )


def _finish_reason(finished: Finished) -> FinishReason:
    if finished.reason is EngineReason.LENGTH:
        return FinishReason.LENGTH
    at_eos = finished.match is not None and finished.match.eos_token_id is not None
    return FinishReason.EOS if at_eos else FinishReason.STOP


def _stop_reason(match: StopMatch | None) -> str | int | None:
    if match is None:
        return None
    if match.text is not None:
        return match.text
    return match.eos_token_id if match.token_id is None else match.token_id


def cancelled_by_engine(request_id: str, body: Finished) -> EngineCancelledError:
    """The error of an output that the engine cut short by itself."""
    said = f": {body.message}" if body.message else ""
    return EngineCancelledError(request_id, f"the engine cancelled output {body.index or 0} by itself{said}")


def completion_usage(usage: Usage, *, prefilled: int | None = None) -> CompletionUsage:
    """Translates the engine's count; the prefill half's number of cached tokens, where known, stands for its own."""
    cached = usage.cached_prompt_tokens if prefilled is None else prefilled
    reasoning = usage.reasoning_tokens
    return CompletionUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=None if cached is None else PromptTokensDetails(cached_tokens=cached),
        completion_tokens_details=None if reasoning is None else CompletionTokensDetails(reasoning_tokens=reasoning),
    )


def nothing_left(call: GenerateCall) -> list[LLMEngineOutput]:
    """The ends of a call that asks for no token at all: the engine need not hear of it."""
    outputs = call.sampling.num_sequences or 1
    return [
        LLMEngineOutput(token_ids=[], finish_reason=FinishReason.LENGTH, index=index if outputs > 1 else None)
        for index in range(outputs)
    ]

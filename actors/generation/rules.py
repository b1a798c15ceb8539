"""The rules of a generation stream: what an engine may send, and when, as `proto/rev2/generation.proto` states it.

A broken rule ends the request; an oddity is counted and does not. Each has a short name, used as a metric label.
"""

from __future__ import annotations

from collections import Counter
from typing import Never

from openengine_sidecar.messages.engine.discovery import Role
from openengine_sidecar.messages.engine.generation import (
    Event,
    Fault,
    Finished,
    FinishReason,
    GenerateCall,
    PrefillReady,
    PromptScored,
    Tokens,
    Usage,
)
from openengine_sidecar.messages.errors import EngineProtocolError


class StreamRules:
    """Judges the events of one stream, in the order they come.

    Attributes:
        terminal: whether the event that ends the stream has come.
        oddities: what was strange without breaking a rule, by name.
        output_tokens: tokens seen so far, over all outputs.
        usage: the engine's own count, once it gave one.
    """

    def __init__(self, call: GenerateCall, role: Role) -> None:
        outputs = call.sampling.num_sequences or 1
        self.terminal = False
        self.oddities: Counter[str] = Counter()
        self.output_tokens = 0
        self.usage: Usage | None = None
        self._call = call
        self._request_id = call.request_id
        self._role = role
        self._max_tokens = call.stopping.max_tokens
        self._made: list[int] = [0] * outputs
        self._running: list[bool] = [True] * outputs
        self._left = outputs
        self._prompt_due = call.prompt_logprobs is not None

    def accept(self, event: Event) -> None:
        """Takes the next event.

        An event behind the terminal one is an oddity: the result stands.

        Raises:
            EngineProtocolError: the event breaks a rule.
        """
        if self.terminal:
            self.oddities["event_after_terminal"] += 1
            return
        if event.request_id != self._request_id:
            self._broken("wrong_request_id", f"an event of request {event.request_id!r:.80}")
        body = event.body
        if isinstance(body, Tokens):
            if event.usage is not None:
                self._broken("early_usage", "usage before the last event")
            self._tokens(body)
        elif isinstance(body, Finished):
            self._finished(body, event.usage)
        elif isinstance(body, Fault):
            self._end(event.usage)
        elif isinstance(body, PromptScored):
            self._prompt(event.usage)
        elif isinstance(body, PrefillReady):
            self._prefill_ready(body, event.usage)
        else:
            self._broken("empty_event", "a response without an event")

    def closed(self) -> None:
        """Takes the end of the stream with status OK.

        Raises:
            EngineProtocolError: there was no terminal event.
        """
        if not self.terminal:
            self._broken("no_terminal", "the stream was closed before its terminal event")

    def _tokens(self, body: Tokens) -> None:
        index = self._running_output(body.index)
        token_ids, details = body.token_ids, body.details
        if details is not None and [detail.token_id for detail in details] != token_ids:
            self._broken("misaligned_details", f"{len(details)} token details for {len(token_ids)} tokens")
        count = len(token_ids)
        if not count and not body.text:
            self.oddities["empty_tokens"] += 1
        self.output_tokens += count
        made = self._made[index] = self._made[index] + count
        if self._max_tokens is not None and made > self._max_tokens:
            self._broken("too_many_tokens", f"output {index} has {made} tokens, {self._max_tokens} were asked for")

    def _running_output(self, index: int | None) -> int:
        if index is None:
            self._broken("missing_index", "an event of an output without its index")
        if not 0 <= index < len(self._running):
            self._broken("index_out_of_range", f"output {index} of {len(self._running)}")
        if not self._running[index]:
            self._broken("after_finished", f"output {index} went on after it had finished")
        return index

    def _finished(self, body: Finished, usage: Usage | None) -> None:
        index = self._running_output(body.index)
        cancelled = body.reason is FinishReason.CANCELLED
        if self._role is Role.PREFILL and not cancelled:
            self._broken("finished_prefill", f"a prefill ended with {body.reason} instead of its handoff")
        if body.reason is FinishReason.UNKNOWN:
            self.oddities["unknown_finish_reason"] += 1
        self._running[index] = False
        self._left -= 1
        if self._left:
            if usage is not None:
                self._broken("early_usage", f"usage with output {index}, {self._left} are still running")
            return
        if not cancelled:
            self._check_complete(usage)
        self._end(usage)

    def _check_complete(self, usage: Usage | None) -> None:
        if usage is None:
            self._broken("missing_usage", "the last event has no usage")
        if usage.completion_tokens < self.output_tokens:  # repeats; the other way round, hidden stops are counted
            self._broken(
                "repeated_tokens", f"{self.output_tokens} tokens came, its usage knows {usage.completion_tokens}"
            )
        if self._prompt_due:
            self._broken("missing_prompt", "the prompt's logprobs were asked for and did not come")

    def _prompt(self, usage: Usage | None) -> None:
        if usage is not None:
            self._broken("early_usage", "usage before the last event")
        if not self._prompt_due:
            asked = self._call.prompt_logprobs is not None
            problem = "a second time" if asked else "without having been asked for"
            self._broken("unasked_prompt", f"the prompt's logprobs came {problem}")
        self._prompt_due = False

    def _prefill_ready(self, body: PrefillReady, usage: Usage | None) -> None:
        if self._role is not Role.PREFILL:
            self._broken("unasked_handoff", f"a prefill's handoff to a request of role {self._role}")
        if body.session is None:
            self._broken("missing_session", "a prefill's handoff without a session")
        if usage is None:
            self._broken("missing_usage", "the last event has no usage")
        self._end(usage)

    def _end(self, usage: Usage | None) -> None:
        self.terminal = True
        self.usage = usage
        if usage is not None:
            self._weigh(usage)

    def _weigh(self, usage: Usage) -> None:
        oddities = {
            "cached_exceeds_prompt": (usage.cached_prompt_tokens or 0) > usage.prompt_tokens,
            "reasoning_exceeds_completion": (usage.reasoning_tokens or 0) > usage.completion_tokens,
            "completion_differs": usage.completion_tokens != self.output_tokens,
            "prompt_differs": not self._call.media and usage.prompt_tokens != len(self._call.token_ids),
        }
        self.oddities.update(name for name, odd in oddities.items() if odd)

    def _broken(self, rule: str, problem: str) -> Never:
        raise EngineProtocolError(self._request_id, rule, problem)

"""Stop conditions of one output: what may leave now, what must wait because a stop text may be forming, and the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openengine_sidecar.proto.rev2 import generation_pb2


@dataclass(frozen=True, slots=True)
class StopRules:
    """Stop conditions of a request; one value serves all its outputs.

    `max_tokens` is never None here: the engine has put the rest of the context for it.
    """

    texts: tuple[bytes, ...]
    token_ids: frozenset[int]
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    include_stop: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an output ended."""

    reason: generation_pb2.FinishReason
    match: generation_pb2.StopMatch | None = None


def read_rules(stopping: generation_pb2.StoppingOptions, *, max_tokens: int) -> StopRules:
    """Sort the conditions of a request; `max_tokens` stands for its own, or for what the context allows."""
    conditions = stopping.conditions
    texts = tuple(item.stop_text.encode() for item in conditions if item.WhichOneof("condition") == "stop_text")
    ids = frozenset(item.stop_token_id for item in conditions if item.WhichOneof("condition") == "stop_token_id")
    return StopRules(
        texts=texts,
        token_ids=ids,
        max_tokens=max_tokens,
        min_tokens=stopping.min_tokens,
        ignore_eos=stopping.ignore_eos,
        include_stop=stopping.include_stop_in_output,
    )


class Stopper:
    """Decides, token by token, what an output may show and when it ends.

    A stop text is found across token borders: tokens whose bytes may be its beginning are held back until they are
    known not to be. Nothing but the length ends an output before `min_tokens` tokens, an excluded stop token not
    counted.
    """

    def __init__(self, rules: StopRules, pieces: Sequence[bytes], eos: int) -> None:
        self._rules = rules
        self._pieces = pieces
        self._eos = eos
        self._held: list[int] = []
        self._count = 0

    def may_end(self) -> bool:
        """Tell whether the end token may come next."""
        return not self._rules.ignore_eos and self._count >= self._rules.min_tokens

    def take(self, token_id: int) -> tuple[list[int], Ending | None]:
        """Take one generated token; return the tokens that may leave now, and the ending if this is the end."""
        self._count += 1
        if self._count > self._rules.min_tokens and (ending := self._by_token(token_id)):
            kept = [token_id] if self._rules.include_stop and token_id != self._eos else []
            return self._release(0) + kept, ending
        ending = Ending(generation_pb2.FINISH_REASON_LENGTH) if self._count >= self._rules.max_tokens else None
        if not self._rules.texts:
            return [token_id], ending
        self._held.append(token_id)
        if self._count >= self._rules.min_tokens and (found := self._by_text()):
            return found
        return self._release(0 if ending else self._forming()), ending

    def flush(self) -> list[int]:
        """Give up what is held back, for an output that is ended from outside."""
        return self._release(0)

    def _by_token(self, token_id: int) -> Ending | None:
        if token_id == self._eos and not self._rules.ignore_eos:
            return Ending(generation_pb2.FINISH_REASON_STOP, generation_pb2.StopMatch(eos_token_id=token_id))
        if token_id in self._rules.token_ids:
            return Ending(generation_pb2.FINISH_REASON_STOP, generation_pb2.StopMatch(stop_token_id=token_id))
        return None

    def _by_text(self) -> tuple[list[int], Ending] | None:
        tail = b"".join([self._pieces[token_id] for token_id in self._held])
        found = next((text for text in self._rules.texts if tail.endswith(text)), None)
        if found is None:
            return None
        match = generation_pb2.StopMatch(stop_text=found.decode())
        held_back = 0 if self._rules.include_stop else len(found)
        return self._release(held_back), Ending(generation_pb2.FINISH_REASON_STOP, match)

    def _forming(self) -> int:
        tail = b"".join([self._pieces[token_id] for token_id in self._held])
        return max(_overlap(tail, text) for text in self._rules.texts)

    def _release(self, held_bytes: int) -> list[int]:
        keep = len(self._held)
        while held_bytes > 0 and keep > 0:
            keep -= 1
            held_bytes -= len(self._pieces[self._held[keep]])
        released, self._held = self._held[:keep], self._held[keep:]
        return released


def _overlap(tail: bytes, text: bytes) -> int:
    """Return the length of the longest end of `tail` that begins `text` without completing it."""
    longest = min(len(tail), len(text) - 1)
    return next((length for length in range(longest, 0, -1) if tail.endswith(text[:length])), 0)

"""A toy language model: a distribution over the vocabulary, peaked at the planned token, the same on every machine."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from random import Random

from openengine_sidecar.launch.engine.tokenizer import ByteTokenizer
from openengine_sidecar.proto.rev2 import generation_pb2

PEAK = 9.0
CERTAIN = 60.0
UNLIKELY = -40.0
NOISE = 3.0
NOISE_LENGTH = 4099
STRIDE = 7919
LOGPROB_FLOOR = -9999.0


class Distribution:
    """Logits for every position of every prompt.

    A printable target gets about 93 % at temperature 1 and the other printable characters share the rest, so that
    sampling garbles letters but never UTF-8 sequences, ends or special tokens.
    """

    def __init__(self, tokenizer: ByteTokenizer, seed: int) -> None:
        self._printable = [
            len(piece) == 1 and piece.isascii() and piece.decode().isprintable() for piece in tokenizer.pieces
        ]
        self._base = [0.0 if printable else UNLIKELY for printable in self._printable]
        noise = Random(seed)  # noqa: S311 - reproducible on purpose
        self._noise = [noise.uniform(0.0, NOISE) for _ in range(NOISE_LENGTH + tokenizer.size)]

    def logits(self, target: int, digest: int, position: int) -> list[float]:
        """Return one logit a token id at `position` of the text with this digest."""
        start = (digest + position * STRIDE) % NOISE_LENGTH
        noise = self._noise[start : start + len(self._base)]
        logits = [base + shift for base, shift in zip(self._base, noise, strict=True)]
        logits[target] += PEAK if self._printable[target] else CERTAIN
        return logits


def log_softmax(logits: Sequence[float]) -> list[float]:
    """Normalize logits to log probabilities, whose exponentials sum to one."""
    top = max(logits)
    total = top + math.log(sum([math.exp(logit - top) for logit in logits]))
    return [logit - total for logit in logits]


def rank_of(logprobs: Sequence[float], token_id: int) -> int:
    """Return the place of a token, 1 for the most likely; of equals the lower id comes first."""
    own = logprobs[token_id]
    return 1 + sum(
        1 for other, logprob in enumerate(logprobs) if logprob > own or (logprob == own and other < token_id)
    )


def top_ids(logprobs: Sequence[float], count: int) -> list[int]:
    """Return the `count` most likely token ids, most likely first."""
    return heapq.nsmallest(count, range(len(logprobs)), key=lambda token_id: (-logprobs[token_id], token_id))


def uniform(seed: str, position: int) -> float:
    """Return a number in [0, 1) fixed by seed and position alone, so that a resumed output goes on as it would have."""
    digest = blake2b(f"{seed}/{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


class Sampler:
    """Chooses tokens as one request's sampling options say.

    With no temperature, or 0, the most likely token wins; nothing else happens unless penalties are set, which
    `trivial` tells so that callers can spare themselves the distribution.
    """

    def __init__(self, options: generation_pb2.SamplingParams, seed: str, prompt: Iterable[int]) -> None:
        self._options = options
        self._seed = seed
        self._counts: dict[int, int] = {}
        self._frequency = options.frequency_penalty
        self._presence = options.presence_penalty
        self._repetition = options.repetition_penalty if options.HasField("repetition_penalty") else 1.0
        self._prompt = frozenset(prompt) if self._repetition != 1.0 else frozenset[int]()
        self.penalizes = bool(self._frequency or self._presence or self._repetition != 1.0)
        self.trivial = not options.temperature and not self.penalizes

    def choose(self, logits: Sequence[float], position: int) -> int:
        """Choose one token id; `position` counts the tokens of this output."""
        scores = self._penalized(logits) if self.penalizes else logits
        if not self._options.temperature:
            return max(range(len(scores)), key=scores.__getitem__)
        ids, weights = self._truncated(scores)
        mark = uniform(self._seed, position) * sum(weights)
        for token_id, weight in zip(ids, weights, strict=True):
            mark -= weight
            if mark < 0:
                return token_id
        return ids[-1]

    def note(self, token_id: int) -> None:
        """Remember a token for the penalties."""
        if self.penalizes:
            self._counts[token_id] = self._counts.get(token_id, 0) + 1

    def _penalized(self, logits: Sequence[float]) -> list[float]:
        scores = list(logits)
        for token_id in self._prompt.union(self._counts):
            score = scores[token_id]
            scores[token_id] = score / self._repetition if score > 0 else score * self._repetition
        for token_id, count in self._counts.items():
            scores[token_id] -= self._frequency * count + self._presence
        return scores

    def _truncated(self, scores: Sequence[float]) -> tuple[list[int], list[float]]:
        temperature = self._options.temperature
        ids = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
        if self._options.top_k > 0:
            del ids[self._options.top_k :]
        best = scores[ids[0]]
        weights = [math.exp((scores[token_id] - best) / temperature) for token_id in ids]
        kept = min(self._nucleus(weights), self._likely_enough(weights))
        return ids[:kept], weights[:kept]

    def _nucleus(self, weights: Sequence[float]) -> int:
        if not self._options.HasField("top_p"):
            return len(weights)
        room = self._options.top_p * sum(weights)
        for kept, weight in enumerate(weights, start=1):
            room -= weight
            if room <= 0:
                return kept
        return len(weights)

    def _likely_enough(self, weights: Sequence[float]) -> int:
        floor = self._options.min_p
        return sum(1 for weight in weights if weight >= floor)

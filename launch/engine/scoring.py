"""Logprobs in the form that a request asked for them."""

from __future__ import annotations

from collections.abc import Sequence

from openengine_sidecar.launch.engine.distribution import (
    LOGPROB_FLOOR,
    Distribution,
    log_softmax,
    rank_of,
    top_ids,
)
from openengine_sidecar.launch.engine.prompt import Prompt
from openengine_sidecar.launch.engine.tokenizer import ByteTokenizer
from openengine_sidecar.proto.rev2 import generation_pb2


class Scorer:
    """Describes tokens: text, logprob, rank, and the candidates asked for (of the whole vocabulary)."""

    def __init__(self, tokenizer: ByteTokenizer, selection: generation_pb2.CandidateTokenSelection) -> None:
        self._names = tokenizer.names
        self._selection = selection
        self._kind = selection.WhichOneof("selection")

    def info(self, token_id: int, logprobs: Sequence[float]) -> generation_pb2.TokenInfo:
        """Describe one token chosen from this distribution (log probabilities, normalized, before any sampling)."""
        return generation_pb2.TokenInfo(
            token_id=token_id,
            token=self._names[token_id],
            logprob=max(logprobs[token_id], LOGPROB_FLOOR),
            rank=rank_of(logprobs, token_id),
            candidates=[self._candidate(other, logprobs) for other in self._candidate_ids(logprobs)],
        )

    def first(self, token_id: int) -> generation_pb2.TokenInfo:
        """Describe the first token of a prompt: nothing comes before it, so nothing predicts it."""
        return generation_pb2.TokenInfo(token_id=token_id, token=self._names[token_id])

    def _candidate_ids(self, logprobs: Sequence[float]) -> Sequence[int]:
        if self._kind == "top_n":
            return top_ids(logprobs, self._selection.top_n)
        if self._kind == "token_ids":
            return self._selection.token_ids.ids
        return top_ids(logprobs, len(logprobs)) if self._kind == "all" else ()

    def _candidate(self, token_id: int, logprobs: Sequence[float]) -> generation_pb2.LogProb:
        return generation_pb2.LogProb(
            token_id=token_id,
            logprob=max(logprobs[token_id], LOGPROB_FLOOR),
            token=self._names[token_id],
            rank=rank_of(logprobs, token_id),
        )


def score_prompt(
    prompt: Prompt, scorer: Scorer, distribution: Distribution, start: int, end: int
) -> list[generation_pb2.TokenInfo]:
    """Describe the prompt's tokens `start` to `end`; the very first has no logprob."""
    infos: list[generation_pb2.TokenInfo] = []
    for position in range(start, min(end, len(prompt.ids))):
        token_id = prompt.ids[position]
        if position == 0:
            infos.append(scorer.first(token_id))
        else:
            infos.append(scorer.info(token_id, log_softmax(distribution.logits(token_id, prompt.digest, position))))
    return infos

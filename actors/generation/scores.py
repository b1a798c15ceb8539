"""Logprobs on their way to the frontend: aligned with the tokens, the chosen token first, finite."""

from __future__ import annotations

from collections.abc import Sequence

from openengine_sidecar.messages.dynamo.response import TopLogprob
from openengine_sidecar.messages.engine.generation import Candidate, TokenDetail

FLOOR = -9999.0
"""Stands for minus infinity and for what is no logprob: JSON knows no such numbers, and a gap would shift the rest."""

UNKNOWN_RANK = 0
"""The frontend insists on a rank; engines count from 1."""


def finite(logprob: float) -> float:
    """Puts FLOOR in the place of what is no usable logprob; a sum of any number of them stays finite."""
    return logprob if FLOOR < logprob < -FLOOR else FLOOR


def top_logprobs(detail: TokenDetail, logprob: float, limit: int) -> list[TopLogprob]:
    """Lists the chosen token, then the engine's other candidates.

    Args:
        detail: what the engine said of the token.
        logprob: its logprob, finite.
        limit: most candidates looked at; the chosen token comes on top of them when it is none.
    """
    rank, others = detail.rank, list[TopLogprob]()
    for place, candidate in enumerate(detail.candidates[:limit], start=1):
        ranked = _ranked(place, candidate)
        if candidate.token_id != detail.token_id:
            others.append(ranked)
        elif rank is None:
            rank = ranked.rank
    first_rank = UNKNOWN_RANK if rank is None else rank
    return [TopLogprob(rank=first_rank, token_id=detail.token_id, logprob=logprob, token=detail.token or None), *others]


def prompt_logprobs(tokens: Sequence[TokenDetail]) -> list[dict[str, dict[str, object]] | None]:
    """Writes the prompt's logprobs as the frontend takes them: per token null, or its candidates by token id.

    The first token has none. Any other shape ends the request at the frontend.
    """
    return [None if detail.logprob is None else _position(detail, detail.logprob) for detail in tokens]


def _position(detail: TokenDetail, logprob: float) -> dict[str, dict[str, object]]:
    position = {str(detail.token_id): _entry(logprob, detail.rank, detail.token)}
    for place, other in enumerate(detail.candidates, start=1):
        rank = place if other.rank is None else other.rank
        position.setdefault(str(other.token_id), _entry(other.logprob, rank, other.token))
    return position


def _entry(logprob: float, rank: int | None, token: str) -> dict[str, object]:
    entry: dict[str, object] = {"logprob": finite(logprob)}
    if rank is not None:
        entry["rank"] = rank
    if token:
        entry["decoded_token"] = token
    return entry


def _ranked(place: int, candidate: Candidate) -> TopLogprob:
    return TopLogprob(
        rank=place if candidate.rank is None else candidate.rank,
        token_id=candidate.token_id,
        logprob=finite(candidate.logprob),
        token=candidate.token or None,
    )

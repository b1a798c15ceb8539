"""Logprobs that a request wants."""

from __future__ import annotations

from openengine_sidecar.actors.generation.terms import Terms
from openengine_sidecar.messages.engine.generation import Logprobs


def logprobs(name: str, candidates: int | None, terms: Terms) -> Logprobs | None:
    """Translates a number of candidates; 0 wants the chosen token's logprob alone.

    Raises:
        UnsupportedFeatureError: the engine does not report that many.
    """
    if candidates is None:
        return None
    terms.require(name, candidates)
    return Logprobs(top_n=candidates or None)

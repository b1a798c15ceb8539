"""Sampling options."""

from __future__ import annotations

import math

from openengine_sidecar.actors.generation.terms import Terms
from openengine_sidecar.messages.dynamo.request import SamplingOptions
from openengine_sidecar.messages.engine.generation import Sampling

MAX_SEED = 2**64 - 1
TOP_K_OFF = (-1, 0)


def sampling(options: SamplingOptions, terms: Terms) -> Sampling:
    """Translates how to sample; what the client left open stays open.

    Raises:
        InvalidRequestError: a number is not finite, or out of the schema's range.
        UnsupportedFeatureError: more outputs than the engine makes.
    """
    return Sampling(
        temperature=_finite("temperature", options.temperature, terms),
        top_p=_finite("top_p", options.top_p, terms),
        top_k=_top_k(options.top_k, terms),
        min_p=_finite("min_p", options.min_p, terms),
        frequency_penalty=_finite("frequency_penalty", options.frequency_penalty, terms),
        presence_penalty=_finite("presence_penalty", options.presence_penalty, terms),
        repetition_penalty=_finite("repetition_penalty", options.repetition_penalty, terms),
        seed=_seed(options.seed, terms),
        num_sequences=_num_sequences(options, terms),
    )


def _finite(name: str, value: float | None, terms: Terms) -> float | None:
    if value is not None and not math.isfinite(value):
        terms.reject(f"sampling_options.{name}", value, "not a finite number")
    return value


def _top_k(top_k: int | None, terms: Terms) -> int | None:
    if top_k is None or top_k in TOP_K_OFF:
        return None
    if top_k < 0:
        terms.reject("sampling_options.top_k", top_k, "-1 and 0 turn it off, no other number below 1 is known")
    return top_k


def _seed(seed: int | None, terms: Terms) -> int | None:
    if seed is not None and not 0 <= seed <= MAX_SEED:
        terms.reject("sampling_options.seed", seed, f"not between 0 and {MAX_SEED}")
    return seed


def _num_sequences(options: SamplingOptions, terms: Terms) -> int | None:
    wanted = 1 if options.n is None else options.n
    if wanted < 1:
        terms.reject("sampling_options.n", wanted, "at least one output is made")
    if options.best_of is not None and options.best_of != wanted:
        terms.refuse("sampling_options.best_of", options.best_of, f"must equal n, which is {wanted}")
    terms.require("sampling_options.n", wanted)
    return options.n

from __future__ import annotations

import math

import pytest

from openengine_sidecar.messages.errors import InvalidRequestError, UnsupportedFeatureError
from tests.generation.builders import BARE, but, called, nested

FLOATS = ["temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"]


def test_what_the_client_left_open_stays_open() -> None:
    assert all(value is None for value in (called().sampling.temperature, called().sampling.num_sequences))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_rejected(name: str, value: float) -> None:
    with pytest.raises(InvalidRequestError, match="not a finite number"):
        called(nested(f"sampling_options.{name}", value))


@pytest.mark.parametrize("name", FLOATS)
def test_zero_is_a_value(name: str) -> None:
    assert getattr(called(nested(f"sampling_options.{name}", 0.0)).sampling, name) == 0.0


@pytest.mark.parametrize("top_k", [-2, -(2**31)])
def test_a_negative_top_k_is_rejected(top_k: int) -> None:
    with pytest.raises(InvalidRequestError, match=rf"top_k is {top_k}"):
        called(nested("sampling_options.top_k", top_k))


@pytest.mark.parametrize(("seed", "fits"), [(0, True), (2**64 - 1, True), (-1, False)])
def test_c29_a_negative_seed_is_rejected(*, seed: int, fits: bool) -> None:
    changes = nested("sampling_options.seed", seed)
    if fits:
        assert called(changes).sampling.seed == seed
        return
    with pytest.raises(InvalidRequestError, match="seed is -1"):
        called(changes)


@pytest.mark.parametrize("n", [5, 2**32 - 1])
def test_c29_more_outputs_than_the_engine_makes_are_refused(n: int) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"n is {n}: needs max_num_sequences .* advertises 4"):
        called(nested("sampling_options.n", n))


def test_c29_several_outputs_need_an_advertised_number() -> None:
    with pytest.raises(UnsupportedFeatureError, match="advertises nothing about it"):
        called(nested("sampling_options.n", 2), BARE)


@pytest.mark.parametrize("limit", [None, 0, 1])
def test_one_output_needs_no_capability(limit: int | None) -> None:
    assert called(nested("sampling_options.n", 1), but(max_num_sequences=limit)).sampling.num_sequences == 1


def test_no_output_at_all_is_rejected() -> None:
    with pytest.raises(InvalidRequestError, match="n is 0"):
        called(nested("sampling_options.n", 0))


@pytest.mark.parametrize("options", [{"best_of": 2}, {"n": 2, "best_of": 3}, {"n": 2, "best_of": 1}])
def test_choosing_the_best_of_more_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(UnsupportedFeatureError, match="best_of"):
        called({"sampling_options": options})

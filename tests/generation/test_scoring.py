from __future__ import annotations

from typing import Any

import pytest

from openengine_sidecar.messages.engine.discovery import CandidateMode, LogprobCapability
from openengine_sidecar.messages.engine.generation import Logprobs
from openengine_sidecar.messages.errors import UnsupportedFeatureError
from tests.generation.builders import but, called, nested

SIDES = [("logprobs", "output_logprobs", 20), ("prompt_logprobs", "prompt_logprobs", 5)]
TOP_N = (CandidateMode.TOP_N,)

sides = pytest.mark.parametrize(("option", "capability", "most"), SIDES)


@sides
def test_c30_zero_candidates_want_the_chosen_token_alone(option: str, capability: str, most: int) -> None:
    del most
    discovery = but(**{capability: LogprobCapability(supported=True)})
    assert getattr(called(nested(f"output_options.{option}", 0), discovery), capability) == Logprobs(top_n=None)


@sides
def test_as_many_candidates_as_the_engine_reports(option: str, capability: str, most: int) -> None:
    assert getattr(called(nested(f"output_options.{option}", most)), capability) == Logprobs(top_n=most)


@sides
def test_c29_more_candidates_than_the_engine_reports_are_refused(option: str, capability: str, most: int) -> None:
    with pytest.raises(UnsupportedFeatureError, match=rf"is {most + 1}: needs {capability}\.max_top_n .* {most}$"):
        called(nested(f"output_options.{option}", most + 1))


@sides
def test_a_missing_bound_bounds_nothing(option: str, capability: str, most: int) -> None:
    discovery = but(**{capability: LogprobCapability(supported=True, modes=TOP_N)})
    assert getattr(called(nested(f"output_options.{option}", most * 9), discovery), capability).top_n == most * 9


@sides
@pytest.mark.parametrize(
    ("offered", "missing"),
    [
        ({"supported": None, "modes": TOP_N, "max_top_n": 9}, "supported to be true; .* nothing about it"),
        ({"supported": False, "modes": TOP_N, "max_top_n": 9}, "supported to be true; .* false"),
        ({"supported": True, "modes": (CandidateMode.ALL,)}, "to list top_n; .* all"),
        ({"supported": True, "modes": ()}, "to list top_n; .* an empty list"),
        ({"supported": True, "modes": TOP_N, "max_top_n": 0}, "max_top_n .* 0"),
    ],
)
def test_c29_candidates_need_all_of_the_capability(
    option: str, capability: str, most: int, offered: dict[str, Any], missing: str
) -> None:
    del most
    with pytest.raises(UnsupportedFeatureError, match=missing):
        called(nested(f"output_options.{option}", 1), but(**{capability: LogprobCapability(**offered)}))


def test_no_logprobs_are_wanted_unless_asked_for() -> None:
    assert (called().output_logprobs, called().prompt_logprobs) == (None, None)

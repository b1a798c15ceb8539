from __future__ import annotations

import msgspec
import pytest

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.generation.response import nothing_left
from openengine_sidecar.messages.dynamo.response import FinishReason
from openengine_sidecar.messages.engine.discovery import Limits
from openengine_sidecar.messages.engine.generation import Stopping
from openengine_sidecar.messages.errors import InvalidRequestError, UnsupportedFeatureError
from tests.generation.builders import BARE, CAPABLE, PROMPT, but, called, engine, nested


@pytest.mark.parametrize(
    ("context", "output", "given"),
    [(100, None, 97), (100, 97, 97), (100, 96, 96), (None, 7, 7), (None, None, None), (4, 40, 1)],
)
def test_without_max_tokens_the_room_in_the_context_is_given(
    context: int | None, output: int | None, given: int | None
) -> None:
    limits = Limits(max_context_length=context, max_output_tokens=output)
    assert called(None, engine(CAPABLE, limits=limits)).stopping.max_tokens == given


@pytest.mark.parametrize("configured", [50, 1000])
def test_the_configured_context_overrides_the_advertised_one(configured: int) -> None:
    limits = Limits(max_context_length=100)
    config = RequestConfig(context_length=configured)
    assert called(None, engine(limits=limits), config=config).stopping.max_tokens == configured - len(PROMPT)


def test_a_configured_context_of_zero_is_a_context() -> None:
    with pytest.raises(InvalidRequestError, match="context of 0 tokens"):
        called(config=RequestConfig(context_length=0))


@pytest.mark.parametrize("context", [3, 2, 0])
def test_a_prompt_that_leaves_no_room_is_rejected(context: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"3 tokens.*context of {context} tokens"):
        called(nested("stop_conditions.max_tokens", 1), engine(limits=Limits(max_context_length=context)))


def test_c29_an_empty_token_list_is_rejected() -> None:
    with pytest.raises(InvalidRequestError, match=r"token_ids .*is \[\]"):
        called({"token_ids": []})


@pytest.mark.parametrize(("asked", "limit"), [(41, 40), (1, 0)])
def test_c29_max_tokens_over_the_engines_output_limit_is_refused(asked: int, limit: int) -> None:
    discovery = engine(limits=Limits(max_output_tokens=limit))
    with pytest.raises(UnsupportedFeatureError, match=f"max_tokens is {asked}: needs max_output_tokens .* {limit}$"):
        called(nested("stop_conditions.max_tokens", asked), discovery)


def test_c10_an_output_limit_of_zero_is_a_limit() -> None:
    with pytest.raises(UnsupportedFeatureError, match="max_output_tokens 0"):
        called(None, engine(limits=Limits(max_output_tokens=0)))


def test_c10_an_absent_output_limit_limits_nothing() -> None:
    asked = nested("stop_conditions.max_tokens", 2**32 - 1)
    assert called(asked, BARE).stopping.max_tokens == 2**32 - 1


def test_a_migrated_request_may_want_nothing_but_its_end() -> None:
    full = Limits(max_context_length=len(PROMPT))
    asked = {"stop_conditions": {"max_tokens": 0, "min_tokens": 3}}
    assert called(asked, engine(CAPABLE, limits=full)).stopping.max_tokens == 0


def test_what_wants_nothing_but_its_end_gets_one_for_every_output() -> None:
    of = msgspec.structs.replace(called(nested("sampling_options.n", 2)), stopping=Stopping(max_tokens=0))
    ends = [(item.index, item.token_ids, item.finish_reason) for item in nothing_left(of)]
    assert ends == [(0, [], FinishReason.LENGTH), (1, [], FinishReason.LENGTH)]


@pytest.mark.parametrize(("least", "most"), [(3, 2), (41, None)])
def test_min_tokens_above_max_tokens_is_rejected(least: int, most: int | None) -> None:
    with pytest.raises(InvalidRequestError, match=f"min_tokens is {least}: more than the {most or 40}"):
        called({"stop_conditions": {"min_tokens": least, "max_tokens": most}})


def test_min_tokens_may_equal_max_tokens() -> None:
    assert called({"stop_conditions": {"min_tokens": 2, "max_tokens": 2}}).stopping.min_tokens == 2


def test_stop_ids_of_every_origin_are_merged_sorted_and_named_once() -> None:
    stopping = called(
        {
            "stop_conditions": {
                "stop_token_ids": [9, 2],
                "stop_token_ids_hidden": [257, 2],
                "stop_token_ids_visible": [9, 1],
            },
            "sampling_options": {"include_stop_str_in_output": True},
        }
    ).stopping
    assert stopping.stop_token_ids == (1, 2, 9, 257)


@pytest.mark.parametrize("include", [None, False])
def test_visible_stop_ids_are_refused_where_stops_stay_out_of_the_output(*, include: bool | None) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"stop_token_ids_visible is \[5\]"):
        called(
            {
                "stop_conditions": {"stop_token_ids_visible": [5]},
                "sampling_options": {"include_stop_str_in_output": include},
            }
        )


@pytest.mark.parametrize("supported", [None, False])
def test_c29_a_stop_in_the_output_needs_the_capability(*, supported: bool | None) -> None:
    shown = "nothing about it" if supported is None else "false"
    with pytest.raises(UnsupportedFeatureError, match=f"supports_stop_in_output to be true.* {shown}$"):
        called(nested("sampling_options.include_stop_str_in_output", value=True), but(stop_in_output=supported))


@pytest.mark.parametrize("flag", ["ignore_eos", "include_stop"])
def test_a_flag_that_is_off_is_sent_as_off(flag: str) -> None:
    options = {"stop_conditions": {"ignore_eos": False}, "sampling_options": {"include_stop_str_in_output": False}}
    assert getattr(called(options, BARE).stopping, flag) is False


def test_an_empty_stop_text_is_rejected() -> None:
    with pytest.raises(InvalidRequestError, match="empty text"):
        called(nested("stop_conditions.stop", ["a", ""]))


def test_stop_texts_keep_spaces_and_order() -> None:
    assert called(nested("stop_conditions.stop", ["\n\n", " ", "é", " "])).stopping.stop_texts == ("\n\n", " ", "é")


def test_without_stops_none_are_sent() -> None:
    changes = {"stop_conditions": {"stop_token_ids_hidden": None, "ignore_eos": True}, "eos_token_ids": []}
    stopping = called(changes).stopping
    assert (stopping.stop_token_ids, stopping.stop_texts, stopping.ignore_eos) == ((), (), True)

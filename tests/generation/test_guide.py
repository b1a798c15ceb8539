from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from openengine_sidecar.actors.generation.json_text import MAX_DEPTH, json_text
from openengine_sidecar.messages.engine.generation import Guide, GuideMode
from openengine_sidecar.messages.errors import InvalidRequestError, UnsupportedFeatureError
from tests.generation.builders import but, called, nested

PATH = "sampling_options.guided_decoding"
ONE_OF_EACH: dict[str, Any] = {
    "json": {"type": "array"},
    "regex": "a",
    "choice": ["a"],
    "grammar": "root ::= a",
    "structural_tag": {"tags": []},
}
MODES = dict(
    zip(
        ONE_OF_EACH,
        [
            GuideMode.JSON_SCHEMA,
            GuideMode.REGEX,
            GuideMode.CHOICE,
            GuideMode.EBNF_GRAMMAR,
            GuideMode.STRUCTURAL_TAG,
        ],
        strict=True,
    )
)


def guide(**options: Any) -> Guide | None:
    return called(nested(PATH, options)).guide


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_c29_a_form_the_engine_does_not_list_is_refused(name: str) -> None:
    others = tuple(mode for mode in GuideMode if mode is not MODES[name])
    with pytest.raises(UnsupportedFeatureError, match=f"{name}.* needs guided_decoding.modes to list {MODES[name]}"):
        called(nested(PATH, {name: ONE_OF_EACH[name]}), but(guide_modes=others))


@pytest.mark.parametrize("supported", [None, False])
def test_listed_forms_permit_nothing_without_the_capability(*, supported: bool | None) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"guided_decoding\.supported to be true"):
        called(nested(PATH, {"regex": "a"}), but(guided_decoding=supported))


@pytest.mark.parametrize("first", ONE_OF_EACH)
@pytest.mark.parametrize("second", ONE_OF_EACH)
def test_c29_two_constraints_are_rejected(first: str, second: str) -> None:
    if first == second:
        return
    with pytest.raises(InvalidRequestError, match="one constraint at a time"):
        guide(**{first: ONE_OF_EACH[first], second: ONE_OF_EACH[second]})


def test_any_object_is_its_own_form_where_the_engine_offers_it() -> None:
    assert guide(json={"type": "object"}, backend="b") == Guide(mode=GuideMode.JSON_OBJECT, backend="b")


def test_any_object_stays_a_schema_where_the_engine_offers_no_more() -> None:
    call = called(nested(f"{PATH}.json", {"type": "object"}), but(guide_modes=(GuideMode.JSON_SCHEMA,)))
    assert call.guide == Guide(mode=GuideMode.JSON_SCHEMA, value='{"type":"object"}')


def test_a_schema_keeps_its_keys_their_order_and_its_numbers() -> None:
    schema = {"z": [1, 1.5, None, True, -(2**63)], "a": {"é": {"maximum": 2**64 - 1}}}
    call = guide(json=schema)
    assert call is not None
    assert json.loads(call.value) == schema
    assert call.value.startswith('{"z":[1,1.5,null,true,')


@pytest.mark.parametrize("schema", [True, False])
def test_a_boolean_schema_is_one(*, schema: bool) -> None:
    assert guide(json=schema) == Guide(mode=GuideMode.JSON_SCHEMA, value=str(schema).lower())


def test_a_schema_that_comes_as_text_goes_as_it_came() -> None:
    assert guide(json='{ "type": "string" }') == Guide(mode=GuideMode.JSON_SCHEMA, value='{ "type": "string" }')


def test_a_structural_tag_that_comes_as_text_goes_as_it_came() -> None:
    assert guide(structural_tag="<tag>") == Guide(mode=GuideMode.STRUCTURAL_TAG, value="<tag>")


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"a":}', ""])
def test_a_schema_text_that_is_no_schema_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="not a JSON object"):
        guide(json=text)


@pytest.mark.parametrize("schema", [[], 3, 1.5])
def test_a_schema_of_another_type_is_rejected(schema: object) -> None:
    with pytest.raises(InvalidRequestError, match="not a JSON object"):
        guide(json=schema)


@pytest.mark.parametrize("value", [math.nan, -math.inf, b"bytes", {1: 2}, msgspec.msgpack.Ext(4, b"")])
def test_a_schema_that_json_cannot_say_is_rejected(value: object) -> None:
    with pytest.raises(InvalidRequestError, match="no JSON form"):
        guide(json={"enum": [value]})


@pytest.mark.parametrize(
    "options", [{"regex": ""}, {"grammar": ""}, {"structural_tag": ""}, {"choice": []}, {"choice": ["a", ""]}]
)
def test_an_empty_constraint_is_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(options))):
        guide(**options)


def test_a_backend_without_a_constraint_is_rejected() -> None:
    with pytest.raises(InvalidRequestError, match=r"backend.* is 'xgrammar'"):
        guide(backend="xgrammar")


def nest(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth - 1):
        value = [value]
    return value


def test_nesting_is_bounded() -> None:
    assert json_text(nest(MAX_DEPTH)) == json.dumps(nest(MAX_DEPTH))
    with pytest.raises(ValueError, match="deeper than"):
        json_text(nest(MAX_DEPTH + 1))
    with pytest.raises(InvalidRequestError, match="deeper than"):
        guide(json={"a": nest(MAX_DEPTH)})

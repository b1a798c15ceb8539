from __future__ import annotations

import json
import re
from typing import Any

import pytest

from openengine_sidecar.launch.engine.guided.draw import Draw
from openengine_sidecar.launch.engine.guided.errors import ConstraintError
from openengine_sidecar.launch.engine.guided.schema import SchemaPattern

SAID = "my name is Bob, 42 years, 1.5 m"
SEEDS = [str(number) for number in range(12)]


def value(schema: Any, said: str = SAID, seed: str = "s", *, varied: bool = False) -> Any:
    return json.loads(SchemaPattern(json.dumps(schema)).write(Draw(seed, said, varied=varied)))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, SAID),
        ({}, SAID),
        ({"type": "string"}, SAID),
        ({"type": "string", "maxLength": 7}, "my name"),
        ({"const": {"a": [1]}}, {"a": [1]}),
        ({"const": None}, None),
        ({"enum": [1, "Bob", "Ann"]}, "Bob"),
        ({"type": "integer"}, 42),
        ({"type": "integer", "minimum": 100, "maximum": 100}, 100),
        ({"type": "number"}, 42),
        ({"type": "number", "maximum": 2}, 1.5),
        ({"minimum": 3, "maximum": 3}, 3),
        ({"type": "null"}, None),
        ({"type": "array"}, [SAID]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [42, 42]),
        ({"type": "array", "maxItems": 0}, []),
        ({"prefixItems": [{"const": 1}, {"const": 2}], "items": False}, [1, 2]),
        ({"type": "object"}, {"said": SAID}),
        ({"type": "object", "additionalProperties": False}, {}),
        ({"properties": {"a": {"type": "integer"}, "b": {"const": 1}}}, {"a": 42, "b": 1}),
        ({"required": ["z"], "additionalProperties": {"type": "integer"}}, {"z": 42}),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 7}}}, 7),
        ({"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}]}, {"a": 1, "b": 2}),
        (
            {"allOf": [{"$ref": "#/$defs/x"}, {"required": ["b"]}], "$defs": {"x": {"required": ["a"]}}},
            {"a": SAID, "b": SAID},
        ),
        ({"oneOf": [{"const": 1}]}, 1),
        ({"type": "string", "format": "date"}, "2026-01-31"),
        ({"type": "string", "format": "unheard-of"}, SAID),
    ],
)
def test_values(schema: Any, expected: object) -> None:
    assert value(schema) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_values_satisfy_their_bounds(seed: str) -> None:
    text = value({"type": "string", "minLength": 40}, "short", seed)
    assert (len(text), text[:5]) == (40, "short")
    assert re.fullmatch("[A-Z]{3}-[0-9]+", value({"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$"}, "none", seed))
    assert value({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6, "multipleOf": 2}, "", seed) == 4
    assert value({"type": "integer", "minimum": -20, "maximum": -10}, "", seed) in range(-20, -9)
    assert 0 < value({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, "", seed) <= 0.5
    assert value({"type": "integer", "maximum": -1}, "", seed) < 0
    assert value({"type": ["null", "boolean"]}, "", seed) in {None, True, False}
    assert value({"anyOf": [{"const": 1}, {"const": "x"}]}, "", seed) in {1, "x"}


@pytest.mark.parametrize("seed", SEEDS)
def test_recursion_ends(seed: str) -> None:
    node = {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["v", "next"],
    }
    found = value({"$ref": "#/$defs/node", "$defs": {"node": node}}, seed=seed)
    while found is not None:
        assert found["v"] == 42
        found = found["next"]


@pytest.mark.parametrize("seed", SEEDS)
def test_an_option_that_ends_is_found_among_many_that_do_not(seed: str) -> None:
    schema = {"anyOf": [*[{"items": {"$ref": "#"}, "minItems": 1}] * 40, {"const": 1}]}
    found = value(schema, seed=seed)
    while isinstance(found, list):
        [found] = found
    assert found == 1


def test_optional_recursion_ends() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    found = value(tree)
    assert found.keys() == {"left", "right"}


def test_straying_changes_the_echo_only() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"enum": ["x"]}}}
    found = value(schema, varied=True)
    assert found["b"] == "x"
    assert found["a"] != SAID
    assert len(found["a"]) == len(SAID)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("text", "not supported"),
        ({"not": {}}, "not"),
        ({"properties": {"a": {"if": True}}}, "if"),
        ({"type": "integer", "uniqueItems": True}, "uniqueItems"),
        ({"minimum": "1"}, "minimum"),
        ({"$ref": "#/nowhere"}, "leads nowhere"),
        ({"$ref": "http://x/"}, "leaves the document"),
        ({"pattern": "(?=a)"}, "look-around"),
        (False, "no value"),
        ({"properties": {"a": False}}, "no value"),
        ({"enum": []}, "empty enum"),
        ({"type": "thing"}, "'thing' is not known"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "no number"),
        ({"type": "integer", "minimum": 1.2, "maximum": 1.8}, "no number"),
        ({"pattern": "^abc$", "maxLength": 2}, "no string"),
        ({"items": False, "minItems": 1, "type": "array"}, "no array"),
        ({"$ref": "#"}, "never ends"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "never ends"),
    ],
)
def test_what_is_wrong_is_said(schema: Any, problem: str) -> None:
    with pytest.raises(ConstraintError, match=problem):
        value(schema)


def test_a_schema_that_is_no_json() -> None:
    with pytest.raises(ConstraintError, match="no JSON"):
        SchemaPattern("{")

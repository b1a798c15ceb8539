from __future__ import annotations

import json
import math
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from hypothesis import given, settings
from hypothesis import strategies as st

from openengine_sidecar.proto.fields import FieldError
from openengine_sidecar.proto.rev2.generation_pb2 import GenerateRequest
from openengine_sidecar.proto.structs import MAX_DEPTH, MAX_EXACT_INTEGER, fill_struct, struct_text
from openengine_sidecar.proto.text import MESSAGE_LIMIT

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | TEXTS
    | st.integers(-MAX_EXACT_INTEGER, MAX_EXACT_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def _filled(values: dict[str, Any]) -> Struct:
    struct = Struct()
    fill_struct(struct, values, path="options")
    return struct


def _nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"k": value}
    return value


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(TEXTS, VALUES, max_size=3))
def test_what_is_filled_in_comes_out_equal(values: dict[str, Any]) -> None:
    assert MessageToDict(_filled(values)) == values


def test_kinds_stay_apart() -> None:
    struct = _filled({"none": None, "false": False, "zero": 0, "text": "0", "list": (), "object": {}})
    kinds = {key: value.WhichOneof("kind") for key, value in struct.fields.items()}
    assert kinds == {
        "none": "null_value",
        "false": "bool_value",
        "zero": "number_value",
        "text": "string_value",
        "list": "list_value",
        "object": "struct_value",
    }


@pytest.mark.parametrize("number", [2**53, -(2**53), 1.5, 2.0**60])
def test_c38_numbers_that_a_double_carries_pass(number: float) -> None:
    assert _filled({"n": number}).fields["n"].number_value == number


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        (2**53 + 1, "options.k", "above 2"),
        (-(2**53) - 1, "options.k", "above 2"),
        (10**400, "options.k", "above 2"),
        (math.nan, "options.k", "not a JSON number"),
        (math.inf, "options.k", "not a JSON number"),
        ({"a": [0, [-math.inf]]}, "options.k.a[1][0]", "not a JSON number"),
        (b"bytes", "options.k", "bytes has no JSON form"),
        ({1: 2}, "options.k.1", "bad argument type"),
        ("\ud800", "options.k", "surrogates"),
    ],
)
def test_c38_what_would_be_rounded_or_lost_is_refused(value: Any, path: str, problem: str) -> None:
    with pytest.raises(FieldError, match=problem) as refusal:
        _filled({"k": value})
    assert refusal.value.field == path


def test_nesting_ends_before_peers_stop_reading() -> None:
    request = GenerateRequest()
    fill_struct(request.media_options, _nested(MAX_DEPTH), path="options")
    assert GenerateRequest.FromString(request.SerializeToString()) == request
    with pytest.raises(FieldError, match="nested deeper"):
        _filled(_nested(MAX_DEPTH + 1))


def test_nesting_of_lists_is_bounded_too() -> None:
    value: list[Any] = []
    for _ in range(MAX_DEPTH):
        value = [value]
    with pytest.raises(FieldError, match="nested deeper"):
        _filled({"k": value})


def test_text_for_people_is_json_on_one_bounded_line() -> None:
    text = struct_text(_filled({"b": [1, 1.5, None, True], "a": "x\u202ey", "long": "z" * 5000}))
    assert len(text) == MESSAGE_LIMIT
    assert text.startswith(r'{"a": "x\u202ey", "b": [1, 1.5, null, true], "long": "zzz')


def test_text_of_numbers_that_json_does_not_know() -> None:
    struct = Struct()
    struct.fields["n"].number_value = math.nan
    struct.fields["unset"].SetInParent()
    assert struct_text(struct) == '{"n": NaN, "unset": null}'


def test_text_is_json() -> None:
    values = {"a": [1, {"b": False}], "c": "text"}
    assert json.loads(struct_text(_filled(values))) == values

"""google.protobuf.Struct without loss: what a double cannot carry is refused, never rounded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import cast

from google.protobuf.struct_pb2 import NULL_VALUE, Struct, Value

from openengine_sidecar.proto.fields import FieldError, writing
from openengine_sidecar.proto.text import MESSAGE_LIMIT, peer_text

MAX_EXACT_INTEGER = 2**53
MAX_DEPTH = 30
"""Objects and lists inside each other. Protobuf readers stop at 100 nested messages; each object takes three."""


def fill_struct(struct: Struct, values: Mapping[str, object], *, path: str) -> None:
    """Copy JSON-like values into a Struct.

    Args:
        struct: filled in place.
        values: texts, booleans, None, numbers, lists and objects with text keys.
        path: name of the Struct, for the error.

    Raises:
        FieldError: an integer above 2^53, a NaN or infinity, nesting deeper than MAX_DEPTH, or a type that JSON
            does not know; named by its path.
    """
    _fill_object(struct, values, path, 1)


def check_exact(struct: Struct, *, path: str) -> None:
    """Make sure that JSON carries a peer's Struct as it is.

    Raises:
        FieldError: a NaN, an infinity, or a number above 2^53, which may have been rounded; named by its path.
    """
    for key, value in struct.fields.items():
        _check_value(value, f"{path}.{key}")


def struct_text(struct: Struct) -> str:
    """Write a peer's Struct as one bounded line of JSON, for people."""
    return peer_text(json.dumps(_plain_object(struct), ensure_ascii=False), limit=MESSAGE_LIMIT)


def _fill_object(struct: Struct, values: Mapping[str, object], path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise FieldError(path, f"nested deeper than {MAX_DEPTH} levels")
    for key, value in values.items():
        with writing(f"{path}.{key}"):
            _fill_value(struct.fields[key], value, f"{path}.{key}", depth)


def _fill_value(target: Value, value: object, path: str, depth: int) -> None:
    match value:
        case None:
            target.null_value = NULL_VALUE
        case bool():
            target.bool_value = value
        case int() | float():
            target.number_value = _exact(value, path)
        case str():
            target.string_value = value
        case Mapping():
            target.struct_value.SetInParent()
            _fill_object(target.struct_value, cast("Mapping[str, object]", value), path, depth + 1)
        case list() | tuple():
            _fill_list(target, cast("Sequence[object]", value), path, depth + 1)
        case _:
            raise FieldError(path, f"{type(value).__name__} has no JSON form")


def _fill_list(target: Value, values: Sequence[object], path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise FieldError(path, f"nested deeper than {MAX_DEPTH} levels")
    target.list_value.SetInParent()
    for index, value in enumerate(values):
        _fill_value(target.list_value.values.add(), value, f"{path}[{index}]", depth)


def _exact(number: float, path: str) -> float:
    if isinstance(number, int) and abs(number) > MAX_EXACT_INTEGER:
        raise FieldError(path, "the integer is above 2^53 and would be rounded; send it as text")
    if not math.isfinite(number):
        raise FieldError(path, f"{number} is not a JSON number")
    return float(number)


def _check_value(value: Value, path: str) -> None:
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            if abs(number) > MAX_EXACT_INTEGER:  # an infinity, too
                raise FieldError(path, "the number is above 2^53 and may have been rounded; it must travel as text")
            _exact(number, path)
        case "struct_value":
            check_exact(value.struct_value, path=path)
        case "list_value":
            for index, item in enumerate(value.list_value.values):
                _check_value(item, f"{path}[{index}]")
        case _:
            pass


def _plain_object(struct: Struct) -> dict[str, object]:
    return {key: _plain(value) for key, value in sorted(struct.fields.items())}


def _plain(value: Value) -> object:
    match value.WhichOneof("kind"):
        case "struct_value":
            return _plain_object(value.struct_value)
        case "list_value":
            return [_plain(item) for item in value.list_value.values]
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case _:
            return None

"""JSON text of a value that came as MessagePack: what JSON would change on the way is found first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import msgspec

MAX_DEPTH = 200


def json_text(value: object) -> str:
    """Writes a value as JSON, its keys in the order they came.

    Raises:
        ValueError: nested deeper than MAX_DEPTH, a NaN or infinity, a key that is no text, or a type that JSON does
            not know.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for item in level for inner in _children(item)]
        if not level:
            return msgspec.json.encode(value).decode()
    problem = f"nested deeper than {MAX_DEPTH} levels"
    raise ValueError(problem)


def _children(value: object) -> Iterable[object]:
    if isinstance(value, list):
        return cast("list[object]", value)
    if isinstance(value, dict) and all(isinstance(key, str) for key in cast("dict[object, object]", value)):
        return cast("dict[str, object]", value).values()
    if value is None or isinstance(value, bool | str | int) or (isinstance(value, float) and math.isfinite(value)):
        return ()
    problem = f"{value!r:.60} has no JSON form"
    raise ValueError(problem)

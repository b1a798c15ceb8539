"""Strings and numbers that satisfy a JSON schema."""

from __future__ import annotations

import math
import re

from openengine_sidecar.launch.engine.guided.document import Schema
from openengine_sidecar.launch.engine.guided.draw import LETTERS, Draw
from openengine_sidecar.launch.engine.guided.errors import refuse
from openengine_sidecar.launch.engine.guided.regex import compile_regex

LONGEST = 200
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
FINEST = 1e-6
FORMATS = {
    "date": "2026-01-31",
    "time": "12:34:56Z",
    "date-time": "2026-01-31T12:34:56Z",
    "duration": "PT1M",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def write_string(schema: Schema, draw: Draw) -> str:
    """Write a string: a match of the pattern, an example of the format, or the echo, cut or filled to length.

    A pattern may match anywhere in the string; being the whole of it satisfies that too.

    Raises:
        ConstraintError: the match is not as long as it must be.
    """
    high = max(LONGEST, schema.min_length) if schema.max_length is None else schema.max_length
    if schema.pattern is not None:
        text = compile_regex(schema.pattern).write(draw)
        if not schema.min_length <= len(text) <= high:
            refuse("no string found that has both the pattern and the length of the JSON schema")
        return text
    text = (FORMATS.get(schema.format) or draw.echo())[:high]
    return text + "".join([draw.one_of(LETTERS) for _ in range(schema.min_length - len(text))])


def write_number(schema: Schema, draw: Draw, *, whole: bool) -> float:
    """Write a number: the first of the prompt that fits, else one near the lower bound.

    Raises:
        ConstraintError: none lies between the bounds.
    """
    step = schema.multiple_of or (1.0 if whole else 0.0)
    low, high = _bounds(schema, step)
    said = (float(text) for text in NUMBER.findall(draw.said))
    wish = next((number for number in said if _fits(number, low, high, step)), None)
    if wish is None:
        wish = _drawn(draw, low, high, step)
    if not _fits(wish, low, high, step) or (whole and not wish.is_integer()):
        refuse("no number satisfies the JSON schema")
    return int(wish) if whole else wish


def _bounds(schema: Schema, step: float) -> tuple[float, float]:
    low = -math.inf if schema.minimum is None else schema.minimum
    high = math.inf if schema.maximum is None else schema.maximum
    if schema.exclusive_minimum is not None:
        low = max(low, _next_above(schema.exclusive_minimum, step))
    if schema.exclusive_maximum is not None:
        high = min(high, -_next_above(-schema.exclusive_maximum, step))
    return low, high


def _next_above(bound: float, step: float) -> float:
    return (math.floor(bound / step) + 1) * step if step else bound + FINEST


def _fits(number: float, low: float, high: float, step: float) -> bool:
    return low <= number <= high and (not step or math.isclose(number / step, round(number / step), abs_tol=1e-9))


def _drawn(draw: Draw, low: float, high: float, step: float) -> float:
    start = low if low > -math.inf else min(high, 0.0)
    if step:
        first, last = math.ceil(start / step), min(high / step, start / step + 100)
        return (first + draw.below(max(1, math.floor(last) - first + 1))) * step
    return min(high, start + draw.below(100)) if high > start else start

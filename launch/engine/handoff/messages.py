"""What the two engines say to each other: one JSON object a line, over a TCP connection of its own.

    decode -> prefill   {"op": "pull", "session_id": "...", "digest": "..."}
    prefill -> decode   {"outcome": "data", "tokens": 17}
    decode -> prefill   {"op": "taken"}          the prefill engine frees the session now, not earlier
    prefill -> decode   {"outcome": "freed"}

A `release` in place of the pull frees the session without taking it.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TypeVar

import msgspec

MAX_LINE = 64 * 1024

_Line = TypeVar("_Line", bound=msgspec.Struct)


class Op(StrEnum):
    """What a decode engine wants."""

    PULL = "pull"
    TAKEN = "taken"
    RELEASE = "release"


class Outcome(StrEnum):
    """What a prefill engine answers. GONE: the session was here and is over; UNKNOWN: it never was."""

    DATA = "data"
    FREED = "freed"
    GONE = "gone"
    UNKNOWN = "unknown"
    REFUSED = "refused"


class Wish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line from the decode engine; `digest` is the prompt's, as decimal text."""

    op: Op
    session_id: str = ""
    digest: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line from the prefill engine."""

    outcome: Outcome
    tokens: int = 0
    reason: str = ""


class BrokenLineError(ConnectionError):
    """The other side closed early, or said what is no line of this protocol."""


async def read_line(reader: asyncio.StreamReader, kind: type[_Line]) -> _Line:
    """Read one line.

    Raises:
        BrokenLineError: there is none, or it is none of this protocol.
    """
    try:
        return msgspec.json.decode(await reader.readuntil(b"\n"), type=kind)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, msgspec.DecodeError) as error:
        raise BrokenLineError(str(error)) from error


def line_of(message: msgspec.Struct) -> bytes:
    """Write one line."""
    return msgspec.json.encode(message) + b"\n"

"""What the gate and its streams say to each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum

import msgspec


class CancelReason(StrEnum):
    """Why a stream is told to cancel; the text of the Cancel signal."""

    CLIENT_GONE = "client gone"
    ENGINE_LOST = "engine lost"
    DRAIN_DEADLINE = "drain deadline"


class Arrival(msgspec.Struct, frozen=True):
    """A request as it came in: the two-part frame, and how to acknowledge it (once, empty is yes)."""

    endpoint: str
    payload: bytes
    acknowledge: Callable[[bytes], Awaitable[None]]


class Dialled(msgspec.Struct, frozen=True):
    """A stream has its call-home connection, or will never have it."""

    stream: str


class Settle(msgspec.Struct, frozen=True):
    """Asked: answer None once every acknowledged request has dialled or ended."""

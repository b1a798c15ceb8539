"""What the gate and its streams say to each other."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from openengine_sidecar.messages.dynamo.control import ControlHeader
from openengine_sidecar.messages.facts import EngineUp


class CancelReason(StrEnum):
    """Why a stream is told to cancel; the text of the Cancel signal."""

    CLIENT_GONE = "client gone"
    ENGINE_LOST = "engine lost"
    DRAIN_DEADLINE = "drain deadline"


class Arrival(msgspec.Struct, frozen=True):
    """A request as it came in.

    Attributes:
        endpoint: name of the endpoint it was sent to.
        payload: the two-part frame.
        trace: W3C trace headers that came beside it.
        reply: where its acknowledgement is awaited, for a limited time.
    """

    endpoint: str
    payload: bytes
    trace: dict[str, str]
    reply: str


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """An acknowledged request, not looked into yet; `engine` is None while the engine is down."""

    control: ControlHeader
    body: bytes
    trace: dict[str, str]
    engine: EngineUp | None


class Settle(msgspec.Struct, frozen=True):
    """Asked: answer None once every acknowledged request has dialled or ended."""

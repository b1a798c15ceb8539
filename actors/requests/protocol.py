"""What the gate and its streams say to each other."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from openengine_sidecar.messages.dynamo.control import Codec, ControlHeader
from openengine_sidecar.messages.facts import EngineUp
from openengine_sidecar.supervision import Ref


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


class Expose(msgspec.Struct, frozen=True, kw_only=True):
    """Route requests for one more endpoint of this instance to `handler`, which is asked with ControlRequest.

    Asked or told; answers None once such requests arrive. Lost with the gate: say it again at every
    PlaneState(connected=True).

    Attributes:
        endpoint: its name, beside the generation endpoint's.
        handler: who answers.
        annotated: whether the answer travels as an annotated item, as all but KV recovery do.
    """

    endpoint: str
    handler: Ref[ControlRequest]
    annotated: bool = True


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Asked: what came in for an exposed endpoint. The reply is the one item of the answer.

    Attributes:
        endpoint: its name.
        body: the decoded body.
        codec: of the request, and of its answer.
    """

    endpoint: str
    body: Any
    codec: Codec = Codec.MSGPACK

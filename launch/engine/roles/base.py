"""What the rest of the engine asks of the role it plays."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from openengine_sidecar.launch.engine.admission import Admitted
from openengine_sidecar.launch.engine.handoff.sessions import SessionStore
from openengine_sidecar.launch.engine.plan import Plan
from openengine_sidecar.launch.engine.requests import ActiveRequest
from openengine_sidecar.proto.rev2 import generation_pb2, kv_pb2, lifecycle_pb2

Events = AsyncGenerator[generation_pb2.GenerateResponse, None]


class Part(Protocol):
    """One role."""

    @property
    def sessions(self) -> SessionStore | None:
        """What it holds for others, None where it holds nothing."""
        ...

    async def start(self) -> None:
        """Open what the connector needs."""
        ...

    async def stop(self) -> None:
        """Close it, and forget every session."""
        ...

    def events(self, admitted: Admitted, active: ActiveRequest, plans: Sequence[Plan]) -> Events:
        """Produce the events of one request."""
        ...

    def ended(self, active: ActiveRequest) -> None:
        """Take note that a request's stream is over, in whatever way."""
        ...

    def connector(self) -> kv_pb2.KvConnectorInfo:
        """Describe the connector."""
        ...

    async def abort(self, session: kv_pb2.KvSessionRef) -> lifecycle_pb2.AbortResponse:
        """Free what a session holds.

        Raises:
            StatusError: UNIMPLEMENTED where this engine cannot, NOT_FOUND for a session that never was.
        """
        ...

"""Prefill and decode in one engine."""

from __future__ import annotations

from collections.abc import Sequence

from openengine_sidecar.launch.engine.admission import Admitted
from openengine_sidecar.launch.engine.generation import Generator
from openengine_sidecar.launch.engine.plan import Plan
from openengine_sidecar.launch.engine.requests import ActiveRequest
from openengine_sidecar.launch.engine.roles.base import Events
from openengine_sidecar.launch.engine.status import unimplemented
from openengine_sidecar.proto.rev2 import kv_pb2, lifecycle_pb2

SESSION_TARGET = "abort by KV session"


class Aggregated:
    """Has no connector and no sessions."""

    sessions = None

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """Nothing to close."""

    def events(self, admitted: Admitted, active: ActiveRequest, plans: Sequence[Plan]) -> Events:
        """Generate."""
        return self._generator.events(admitted, active, plans)

    def ended(self, active: ActiveRequest) -> None:
        """Nothing is left behind."""

    def connector(self) -> kv_pb2.KvConnectorInfo:
        """There is none."""
        return kv_pb2.KvConnectorInfo(enabled=False)

    async def abort(self, session: kv_pb2.KvSessionRef) -> lifecycle_pb2.AbortResponse:
        """Refuse: nothing is held by session."""
        del session
        raise unimplemented(SESSION_TARGET)

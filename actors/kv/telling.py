"""What every actor that tells routers something works with."""

from __future__ import annotations

from dataclasses import dataclass

from openengine_sidecar.actors.config import WorkerIdentity
from openengine_sidecar.actors.engine.client import EngineClient
from openengine_sidecar.actors.events.plane import EventPlane
from openengine_sidecar.actors.records import PublishRecord, WithdrawRecord
from openengine_sidecar.actors.requests.protocol import Expose
from openengine_sidecar.messages.dynamo.naming import EndpointId
from openengine_sidecar.supervision import Ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Offices:
    """Who puts records up, and who listens on endpoints."""

    registrar: Ref[PublishRecord | WithdrawRecord]
    gate: Ref[Expose]


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Who tells, of which engine, by which plane; and where to be announced."""

    identity: WorkerIdentity
    client: EngineClient
    plane: EventPlane
    offices: Offices

    @property
    def endpoint(self) -> EndpointId:
        """The generation endpoint, which everything told is about."""
        identity = self.identity
        return EndpointId(identity.namespace, identity.component, identity.endpoint)

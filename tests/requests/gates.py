from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from openengine_sidecar.actors.config import AdmissionConfig, DrainConfig, NatsConfig, RequestConfig, WorkerIdentity
from openengine_sidecar.actors.discovery.store import new_instance_id
from openengine_sidecar.actors.requests.gate import MAILBOX, RequestGate
from openengine_sidecar.actors.requests.protocol import Settle
from openengine_sidecar.actors.requests.stream import StreamContext
from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.messages.dynamo.naming import EndpointId, instance_subject
from openengine_sidecar.messages.facts import PlaneState, StreamEnded
from openengine_sidecar.messages.signals import Drain
from openengine_sidecar.supervision import (
    INFINITY,
    AskFuture,
    ChildSpec,
    Mailbox,
    Restart,
    RestartBudget,
    Strategy,
    Supervisor,
)
from openengine_sidecar.supervision.testing import Gate
from tests.requests.streams import CONFIG
from tests.support.backstage import Backstage, pass_time
from tests.support.waiting import eventually
from tests.support.wire import Caller, RawFrontend, request_body

PROMPT = list(b"say this again, please")
LONG = 20_000
FOREVER = {"ignore_eos": True}
_numbers = itertools.count(1)


class HeldGate(RequestGate):
    """A gate that looks at arrivals when the test says so."""

    held: Gate

    async def _arrived(self, arrival: Any) -> None:
        await self.held.passage()
        await super()._arrived(arrival)


@dataclass(slots=True)
class GateStage:
    """A gate under a supervisor, a real engine and real NATS around it."""

    backstage: Backstage
    engine: ReferenceEngine
    raw: RawFrontend
    nats: NatsConfig
    identity: WorkerIdentity = field(default_factory=lambda: WorkerIdentity(instance_id=new_instance_id()))
    config: RequestConfig = CONFIG
    kind: type[RequestGate] = RequestGate
    mailbox: Mailbox = MAILBOX
    path: str = ""

    async def set_up(self, *, limit: int | None = None, grace: float = 5.0) -> None:
        """Starts the gate; returns when it hears requests."""
        stage = self.backstage.stage
        context = StreamContext(client=self.backstage.client, connection=stage.ref("engine"), config=self.config)
        gate = ChildSpec(
            name="gate",
            factory=lambda: self.kind(
                self.identity, self.nats, context, AdmissionConfig(request_limit=limit), DrainConfig(grace=grace)
            ),
            ready_timeout=INFINITY,
            shutdown=30.0,
            mailbox=self.mailbox,
        )
        name = f"serving-{next(_numbers)}"
        self.path = f"{name}/gate"
        await stage.spawn(
            ChildSpec(
                name=name,
                factory=lambda: Supervisor(
                    strategy=Strategy.REST_FOR_ONE,
                    children=(gate,),
                    budget=RestartBudget(max_restarts=1000, window=1.0),
                    programming_errors=(),
                ),
                ready_timeout=INFINITY,
                restart=Restart.TEMPORARY,
            )
        )

    @property
    def subject(self) -> str:
        endpoint = EndpointId(self.identity.namespace, self.identity.component, self.identity.endpoint)
        return instance_subject(endpoint, self.identity.instance_id)

    @property
    def gate(self) -> Any:
        host = self.backstage.stage.system.host_at(f"/stage/{self.path}")
        assert host is not None
        return host.actor

    @property
    def alive(self) -> bool:
        return self.backstage.stage.system.host_at(f"/stage/{self.path}") is not None

    @property
    def incarnation(self) -> int:
        [status] = [status for status in self.backstage.stage.system.snapshot() if status.path == f"/stage/{self.path}"]
        return status.incarnation

    def streams(self) -> list[str]:
        return [child.path for child in self.gate.children.values()] if self.alive else []

    def told(self, caller: Caller) -> list[StreamEnded]:
        return [end for end in self.backstage.heard(StreamEnded) if end.request_id == caller.subject]

    def planes(self) -> list[bool]:
        return [fact.connected for fact in self.backstage.probe.heard if isinstance(fact, PlaneState)]

    async def ask(self, *, header: dict[str, Any] | None = None, **body: Any) -> tuple[bytes, Caller]:
        asked = request_body(body.pop("token_ids", PROMPT), max_tokens=body.pop("max_tokens", 12), **body)
        return await self.raw.ask(self.subject, asked, **(header or {}))

    async def accepted(self, **body: Any) -> Caller:
        acknowledgement, caller = await self.ask(**body)
        assert acknowledgement == b""
        return caller

    async def flowing(self, count: int = 1) -> list[Caller]:
        """Requests whose tokens flow without end."""
        callers = [await self.accepted(max_tokens=LONG, stop_conditions=FOREVER) for _ in range(count)]
        await eventually(lambda: all(caller.token_ids for caller in callers), "tokens flow")
        return callers

    async def serves(self) -> None:
        caller = await self.accepted()
        await caller.closed.wait()
        assert caller.ended_once
        assert caller.errors == []

    async def at_rest(self) -> None:
        """Waits until the gate and the engine hold nothing."""
        await self.passing(lambda: self.alive and not self.gate._exchanges and not self.streams(), "gate at rest")
        await eventually(lambda: self.engine.stats.active == 0, "engine at rest")

    async def passing(self, condition: Callable[[], bool], what: str, *, leap: float = 1.0) -> None:
        await pass_time(self.backstage.stage.clock, condition, what, leap=leap)

    def drain(self, seconds: float) -> Any:
        """Tells the gate to drain; returns its host, whose `drained` can be awaited."""
        clock = self.backstage.stage.clock
        host = self.backstage.stage.system.host_at(f"/stage/{self.path}")
        assert host is not None
        host.cell.post(Drain(clock.monotonic() + seconds, "the test is over"))
        return host

    def settle(self) -> AskFuture[Any]:
        return self.backstage.stage.ref(self.path).ask(Settle(), timeout=1e6)

    def with_config(self, **changes: Any) -> None:
        self.config = dataclasses.replace(self.config, **changes)

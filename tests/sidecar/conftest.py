from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from openengine_sidecar.actors.config import (
    DrainConfig,
    EngineConfig,
    FileDiscoveryConfig,
    LoadConfig,
    ModelConfig,
    NatsConfig,
    RequestConfig,
    SidecarConfig,
    WorkerIdentity,
)
from openengine_sidecar.actors.discovery.store import new_instance_id
from openengine_sidecar.actors.sidecar import DEFAULT_RESTARTS, Sidecar
from openengine_sidecar.launch.engine import EngineOptions, ReferenceEngine
from openengine_sidecar.messages.dynamo.naming import EndpointId, instance_subject
from openengine_sidecar.supervision import ActorState, RestartBudget
from tests.support.site import MODEL, Site
from tests.support.store import Store
from tests.support.waiting import eventually
from tests.support.wire import Caller, RawFrontend, request_body

PROMPT = list(b"say this again, please")
LONG = 20_000
_numbers = itertools.count(1)


@dataclass(slots=True)
class Embedded:
    """A whole worker in the test's own loop, a real engine beside it, real NATS and a real store around it."""

    config: SidecarConfig
    engine: ReferenceEngine
    raw: RawFrontend
    restarts: RestartBudget = DEFAULT_RESTARTS
    running: list[Sidecar] = field(default_factory=list)

    @property
    def sidecar(self) -> Sidecar:
        return self.running[-1]

    @property
    def store(self) -> Store:
        return Store(self.config.discovery.root)

    @property
    def subject(self) -> str:
        identity = self.config.identity
        endpoint = EndpointId(identity.namespace, identity.component, identity.endpoint)
        return instance_subject(endpoint, identity.instance_id)

    def reconfigure(self, **changes: Any) -> None:
        self.config = replace(self.config, **changes)

    async def start(self) -> Sidecar:
        self.running.append(Sidecar(self.config, restarts=self.restarts))
        await self.sidecar.start()
        await self.registered()
        return self.sidecar

    async def registered(self) -> None:
        await eventually(lambda: self.stands() == (1, 1), "registered")

    def stands(self) -> tuple[int, int]:
        namespace = self.config.identity.namespace
        return len(self.store.instances(namespace)), len(self.store.cards(namespace))

    def actors(self) -> dict[str, int]:
        """Incarnations of every actor that runs, by path."""
        return {
            status.path: status.incarnation
            for status in self.sidecar.system.snapshot()
            if status.state is ActorState.RUNNING
        }

    async def ask(self, *, header: dict[str, Any] | None = None, **body: Any) -> tuple[bytes, Caller]:
        asked = request_body(body.pop("token_ids", PROMPT), max_tokens=body.pop("max_tokens", 12), **body)
        return await self.raw.ask(self.subject, asked, **(header or {}))

    async def accepted(self, **body: Any) -> Caller:
        acknowledgement, caller = await self.ask(**body)
        assert acknowledgement == b""
        return caller

    async def flowing(self, count: int = 1) -> list[Caller]:
        callers = [await self.accepted(max_tokens=LONG, stop_conditions={"ignore_eos": True}) for _ in range(count)]
        await eventually(lambda: all(caller.token_ids for caller in callers), "tokens flow")
        return callers

    async def serves(self) -> None:
        caller = await self.accepted()
        await caller.closed.wait()
        assert caller.ended_once
        assert caller.errors == []

    async def idle(self) -> None:
        """Waits until nothing is in flight here nor at the engine."""
        await eventually(lambda: not any("/gate/" in path for path in self.actors()), "no stream")
        await eventually(lambda: self.engine.stats.active == 0, "engine at rest")

    def every_fact(self) -> list[object]:
        """Every fact told from now on, to the last: no actor of the tree would live to hear that."""
        told: list[object] = []
        facts = self.sidecar.system.facts
        publish = facts.publish

        def note(fact: object) -> None:
            told.append(fact)
            publish(fact)

        facts.publish = note  # type: ignore[method-assign]  # until the system is gone
        return told


@pytest.fixture
async def embedded(site: Site, tmp_path: Path) -> AsyncIterator[Embedded]:
    """A worker that is not started yet."""
    async with (
        ReferenceEngine(EngineOptions(token_delay=0.005)) as engine,
        RawFrontend(site.planes.nats_url) as raw,
    ):
        config = SidecarConfig(
            identity=WorkerIdentity(instance_id=new_instance_id(), namespace=f"embedded-{next(_numbers)}"),
            engine=EngineConfig(
                endpoint=engine.address, connections=2, retry_interval=0.1, health_interval=0.2, health_misses=2
            ),
            model=ModelConfig(path=MODEL),
            discovery=FileDiscoveryConfig(root=tmp_path / "store"),
            nats=NatsConfig(servers=(site.planes.nats_url,), reconnect_wait=0.1),
            requests=RequestConfig(cancel_timeout=1.0),
            drain=DrainConfig(grace=0.0, timeout=30.0),
            load=LoadConfig(interval=0.0),
        )
        embedded = Embedded(config, engine, raw)
        yield embedded
        for sidecar in embedded.running:
            await sidecar.system.stop()

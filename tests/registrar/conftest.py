from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openengine_sidecar.actors.config import FileDiscoveryConfig, ModelConfig, WorkerIdentity
from openengine_sidecar.actors.discovery.file_store import FileStore
from openengine_sidecar.actors.registrar import Registrar
from openengine_sidecar.actors.requests.protocol import Settle
from openengine_sidecar.messages.facts import EngineUp, PlaneState, Registered, Withdrawn
from openengine_sidecar.supervision import Actor, ChildSpec, Ref, Restart, RestartBudget, Strategy, Supervisor
from openengine_sidecar.supervision.testing import Probe, Stage, VirtualClock
from tests.reporter.facts import UP
from tests.support.backstage import pass_time
from tests.support.site import MODEL
from tests.support.store import Store

IDENTITY = WorkerIdentity(instance_id=0xABC, namespace="ns")
CARD = "v1/mdc/ns/backend/generate/abc"
INSTANCE = "v1/instances/ns/backend/generate/abc"
CONNECTED = PlaneState(connected=True)
DISCONNECTED = PlaneState(connected=False, detail="nobody there")
PATIENCE = 29.0
"""Virtual seconds that pass back-offs, but not the 30 that a life has for its start, which reads real disks."""


class Journal(FileStore):
    """A file store that notes what it did, in order."""

    def __init__(self, config: FileDiscoveryConfig) -> None:
        super().__init__(config)
        self.done: list[tuple[str, str]] = []

    async def publish(self, key: str, value: bytes) -> None:
        await super().publish(key, value)
        self.done.append(("+", key))

    async def withdraw(self, key: str) -> None:
        held = key in self.keys
        await super().withdraw(key)
        if held:
            self.done.append(("-", key))


class Gatekeeper(Actor[Settle]):
    """A gate that has settled when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.settled = asyncio.Event()
        self.settled.set()

    async def on_message(self, message: Settle) -> object:
        del message
        self.asked += 1
        return asyncio.ensure_future(self.settled.wait())


@dataclass(slots=True)
class Registry:
    """A Registrar with a real store behind it."""

    stage: Stage
    probe: Probe
    root: Path
    journal: Journal
    gatekeeper: Gatekeeper = field(default_factory=Gatekeeper)
    gate: Ref[Any] | None = None

    @property
    def clock(self) -> VirtualClock:
        return self.stage.clock

    @property
    def store(self) -> Store:
        return Store(self.root)

    @property
    def path(self) -> str:
        return "/stage/serving/registrar"

    async def start(self, **model: Any) -> None:
        gate = self.gate or await self.stage.spawn(ChildSpec(name="gate", factory=lambda: self.gatekeeper))
        config = ModelConfig(path=MODEL, **model)
        child = ChildSpec(name="registrar", factory=lambda: Registrar(IDENTITY, config, self.journal, gate))
        await self.stage.spawn(
            ChildSpec(
                name="serving",
                factory=lambda: Supervisor(
                    strategy=Strategy.REST_FOR_ONE, children=(child,), budget=RestartBudget(max_restarts=1000)
                ),
                restart=Restart.TEMPORARY,
            )
        )

    def publish(self, *facts: object) -> None:
        for fact in facts:
            self.stage.system.facts.publish(fact)

    async def registered(self, engine: EngineUp = UP) -> None:
        """Registers the worker."""
        count = len(self.told(Registered))
        self.publish(engine, CONNECTED)
        await self.until(lambda: len(self.told(Registered)) > count, "registered")

    async def until(self, condition: Any, what: str, *, leap: float = 1.0) -> None:
        await pass_time(self.clock, condition, what, leap=leap)

    def told(self, kind: type[Any]) -> list[Any]:
        return [fact for fact in self.probe.heard if isinstance(fact, kind)]

    def stands(self) -> tuple[int, int]:
        """Instances and cards in the store."""
        return len(self.store.instances("ns")), len(self.store.cards("ns"))

    def card(self) -> dict[str, Any]:
        [card] = self.store.records("mdc", "ns")
        return card


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    root = tmp_path / "store"
    async with Stage() as stage:
        probe = await stage.probe()
        probe.subscribe(Registered, Withdrawn)
        registry = Registry(stage, probe, root, Journal(FileDiscoveryConfig(root=root)))
        yield registry
        serving = stage.ref("serving")
        serving.cancel("the test is over")
        await registry.until(lambda: not serving.is_alive, "the end", leap=PATIENCE)


def changed(**fields: Any) -> EngineUp:
    """The engine again, with something about it changed."""
    return msgspec.structs.replace(UP, discovery=msgspec.structs.replace(UP.discovery, **fields))

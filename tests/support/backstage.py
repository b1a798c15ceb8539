"""What in-process tests of the actors share: a stage on a virtual clock, and a real engine with its connection."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from loguru import logger

from openengine_sidecar.actors.config import EngineConfig
from openengine_sidecar.actors.engine.client import EngineClient
from openengine_sidecar.actors.engine.connection import EngineConnection
from openengine_sidecar.launch.engine import EngineOptions, ReferenceEngine
from openengine_sidecar.messages.facts import EngineDown, EngineHealth, EngineUp, StreamEnded
from openengine_sidecar.supervision import INFINITY, ChildSpec, Mailbox
from openengine_sidecar.supervision.testing import Probe, Stage, VirtualClock
from tests.support.waiting import eventually

FACTS = (EngineUp, EngineDown, EngineHealth, StreamEnded)
ENGINE = "engine"
PLENTY = Mailbox(capacity=65_536)


def engine_config(address: str, **changes: Any) -> EngineConfig:
    return EngineConfig(
        **{"endpoint": address, "connections": 2, "connect_attempt_timeout": 5.0, "health_timeout": 5.0, **changes}
    )


def connection_spec(config: EngineConfig, client: EngineClient, *, drain_engine: bool = False) -> ChildSpec:
    return ChildSpec(
        name=ENGINE,
        factory=lambda: EngineConnection(config, client, drain_engine=drain_engine),
        ready_timeout=INFINITY,
        mailbox=PLENTY,
    )


class Backstage:
    """A stage with an EngineConnection on it, and a probe that hears every fact."""

    def __init__(self, stage: Stage, probe: Probe) -> None:
        self.stage = stage
        self.probe = probe
        self.client = EngineClient("unknown")

    @classmethod
    async def set_up(cls, stage: Stage) -> Backstage:
        """Everything but the engine's connection, on a stage that its owner ends."""
        probe = await stage.probe()
        probe.subscribe(*FACTS)
        return cls(stage, probe)

    @classmethod
    @asynccontextmanager
    async def opened(cls) -> AsyncIterator[Backstage]:
        """The same with a stage whose actors get, when they end, the time for their sockets that no clock can see."""
        async with Stage() as stage:
            backstage = await cls.set_up(stage)
            try:
                yield backstage
            finally:
                await backstage._tear_down()

    async def _tear_down(self) -> None:
        roots = {status.path.split("/")[2] for status in self.stage.system.snapshot() if status.path.count("/") > 1}
        for root in sorted(roots - {self.probe.name}, key=lambda name: name == ENGINE):
            ref = self.stage.ref(root)
            ref.cancel("the test is over")
            await pass_time(self.stage.clock, lambda ref=ref: not ref.is_alive, f"end of {root}", leap=10.0)

    async def connect(self, address: str, *, drain_engine: bool = False, **changes: Any) -> None:
        """Starts the connection; returns when the engine is ready."""
        self.client = EngineClient(address)
        spec = connection_spec(engine_config(address, **changes), self.client, drain_engine=drain_engine)
        await self.stage.spawn(spec)

    def heard(self, kind: type[Any]) -> list[Any]:
        """Facts of one kind, in order."""
        return [fact for fact in self.probe.heard if isinstance(fact, kind)]

    async def fact(self, kind: type[Any], count: int = 1) -> Any:
        """The `count`-th fact of a kind, waited for while virtual time passes."""
        await pass_time(self.stage.clock, lambda: len(self.heard(kind)) >= count, f"{count} {kind.__name__}")
        return self.heard(kind)[count - 1]


async def pass_time(
    clock: VirtualClock, condition: Callable[[], bool], what: str, *, leap: float = float("inf")
) -> None:
    """Lets virtual time pass, timer by timer as they come up, until the condition holds.

    A real socket is no timer: where one has to answer meanwhile, `leap` bounds how far a single step may go.
    """

    async def step() -> bool:
        when, now = clock.next_timer, clock.monotonic()
        if not condition() and when is not None and when - now <= leap:
            await clock.advance(when - now)
        return condition()

    await eventually(step, what)


async def come_back(options: EngineOptions, **changes: Any) -> ReferenceEngine:
    """Starts an engine, the port of a dead one perhaps."""
    engine = ReferenceEngine(dataclasses.replace(options, **changes))
    await engine.start()
    return engine


@contextmanager
def log_lines(level: str = "INFO") -> Iterator[list[str]]:
    """What is logged meanwhile."""
    lines: list[str] = []
    sink = logger.add(lines.append, level=level, format="{level} {message}")
    try:
        yield lines
    finally:
        logger.remove(sink)

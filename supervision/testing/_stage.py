"""A stage: a system on a virtual clock under whose root a test puts whatever it wants to try."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Never, Self, TypeVar

from openengine_sidecar.supervision._actor import Actor
from openengine_sidecar.supervision._clock import INFINITY
from openengine_sidecar.supervision._ref import Ref
from openengine_sidecar.supervision._spec import ChildSpec
from openengine_sidecar.supervision._system import ActorSystem
from openengine_sidecar.supervision.testing._probe import Probe
from openengine_sidecar.supervision.testing._scheduler import SeededScheduler
from openengine_sidecar.supervision.testing._virtual_clock import VirtualClock

T = TypeVar("T")


class Floor(Actor[Never]):
    """The root of a stage; it has no will of its own."""


class Stage:
    """`async with Stage() as stage:` is a running system below `/stage`, stopped at the end.

    Args:
        seed: of back-off, and of the order in which actors run; None leaves that to the event loop.
        auto_jump: whether the clock moves by itself once everybody waits for it.
    """

    def __init__(self, *, seed: int | None = None, auto_jump: bool = False) -> None:
        self.clock = VirtualClock(auto_jump=auto_jump)
        scheduler = SeededScheduler(seed) if seed is not None else None
        self.system = ActorSystem(clock=self.clock, seed=seed, scheduler=scheduler)
        self._floor = Floor()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def spawn(self, spec: ChildSpec) -> Ref[Any]:
        """Start an actor, a supervisor perhaps, below the root; raises what its start raises."""
        return await self._floor.spawn(spec)

    def background(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine beside the test; it is cancelled at the end. Its failure is nobody's but its awaiter's."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(_retrieve)
        return task

    async def probe(self, name: str = "probe") -> Probe:
        """Start a probe below the root."""
        probe = Probe()
        await self.spawn(ChildSpec(name=name, factory=lambda: probe))
        return probe

    def ref(self, path: str) -> Ref[Any]:
        """The ref to whoever lives below the root at `path`, now or later."""
        return self.system.ref(f"/stage/{path}")

    async def __aenter__(self) -> Self:
        await self.system.start(ChildSpec(name="stage", factory=lambda: self._floor, shutdown=INFINITY))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clock.run_freely()
        await self.system.stop()
        for task in self._tasks:
            task.cancel()


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()

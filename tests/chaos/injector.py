"""Puts faults on an arena, one at a time, and measures how long it takes to be whole again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tests.chaos.arena import Arena, Station, expire, stopped
from tests.chaos.schedule import Fault, Kind
from tests.support.openai import OpenAIClient
from tests.support.proxy import Proxy

BOUND: Final = 45.0
"""Seconds after the end of a fault in which everything must be registered and serve again."""
PATIENCE: Final = 10.0
"""Seconds in which a crash must find somebody to hit: between two requests a worker may have no stream."""
DELAY: Final = 0.05
_POLL: Final = 0.02
_STEADY: Final = 0.25
"""Seconds for which all must stay whole: a crash takes a moment to show."""


@dataclass(frozen=True, slots=True)
class Incident:
    """A fault that was injected; times are seconds on the monotonic clock.

    Attributes:
        recovery: seconds from the end of the fault until records and readiness were back; None when they did not
            come back within the bound.
        hit: the actor that crashed.
    """

    fault: Fault
    began: float
    ended: float
    recovery: float | None
    hit: str = ""


@dataclass(slots=True)
class Injector:
    """Follows a schedule.

    Attributes:
        missed: faults that found nothing to hit, such as a stream where none ran.
        felt: faults that should not have been felt, and were.
        skipped: kinds that this machine does not allow.
    """

    arena: Arena
    client: OpenAIClient
    progress: Callable[[Incident], None]
    bound: float = BOUND
    incidents: list[Incident] = field(default_factory=list[Incident])
    missed: list[Fault] = field(default_factory=list[Fault])
    felt: list[Fault] = field(default_factory=list[Fault])
    skipped: set[Kind] = field(default_factory=set[Kind])
    _risen: Callable[[], Awaitable[bool]] | None = None

    async def follow(self, faults: list[Fault], *, until: float = float("inf")) -> None:
        """Injects each when its time has come and the one before is mended; `until` on the monotonic clock ends it."""
        begun = time.monotonic()
        for fault in faults:
            await asyncio.sleep(max(0.0, begun + fault.at - time.monotonic()))
            if time.monotonic() >= until:
                return
            await self._inject(fault)

    async def _inject(self, fault: Fault) -> None:
        if not self._possible(fault.kind):
            self.skipped.add(fault.kind)
            return
        began = time.monotonic()
        hit = await self._apply(fault)
        if hit is None:
            self.missed.append(fault)
            return
        ended = time.monotonic()
        incident = Incident(fault, began, ended, await self._recovered(ended), hit)
        self._risen = None
        self.incidents.append(incident)
        self.progress(incident)

    def _possible(self, kind: Kind) -> bool:
        match kind:
            case Kind.DISK_FULL:
                return self.arena.bounded_store
            case Kind.CLOCK_SKEW:
                return self.arena.settable_clocks
            case _:
                return True

    async def _recovered(self, since: float) -> float | None:
        broken = since
        while time.monotonic() - broken < _STEADY:
            await asyncio.sleep(_POLL)
            if not await self._whole():
                broken = time.monotonic()
                if broken - since > self.bound:
                    return None
        return broken - since

    async def _whole(self) -> bool:
        if self._risen is not None and not await self._risen():
            return False
        self._risen = None
        if not self.arena.registered() or not await self.client.lists():
            return False
        return all([await station.healthy() for station in self.arena.stations])

    async def _apply(self, fault: Fault) -> str | None:
        station = self.arena.stations[fault.target]
        match fault.kind:
            case Kind.ACTOR_CRASH:
                return await self._crash(fault, station)
            case Kind.ENGINE_KILL | Kind.ENGINE_STALL | Kind.ENGINE_CUT | Kind.ENGINE_DELAY | Kind.ENGINE_HOLD:
                await self._hurt_engine(fault, station)
            case Kind.NATS_KILL | Kind.NATS_CUT | Kind.NATS_DELAY:
                await self._hurt_nats(fault, station)
            case Kind.RECORDS_EXPIRED | Kind.RECORDS_DELETED | Kind.DISK_FULL:
                await self._hurt_store(fault)
            case Kind.WORKER_STALL:
                await _during(stopped(station.worker.pid), fault.seconds)
            case Kind.CLOCK_SKEW:
                await self._hurt_clock(fault, station)
        return ""

    async def _crash(self, fault: Fault, station: Station) -> str | None:
        patience = time.monotonic() + PATIENCE
        while (found := await station.crash(fault.victim, fault.draw)) is None:
            if time.monotonic() > patience:
                return None
            await asyncio.sleep(_POLL)
        path, life = found
        if fault.victim != "stream":  # nothing restarts a stream
            self._risen = partial(_outlived, station, path, life)
        return path

    async def _hurt_engine(self, fault: Fault, station: Station) -> None:
        if fault.kind is Kind.ENGINE_KILL:
            station.engine.kill()
            await asyncio.sleep(fault.seconds)
            await self.arena.start_engine(station)
        elif fault.kind is Kind.ENGINE_STALL:
            await _during(stopped(station.engine.pid), fault.seconds)
        else:
            await _hurt_sockets(fault, station.to_engine)

    async def _hurt_nats(self, fault: Fault, station: Station) -> None:
        if fault.kind is Kind.NATS_KILL:
            assert self.arena.nats is not None
            self.arena.nats.kill()
            await asyncio.sleep(fault.seconds)
            await self.arena.start_nats()
        else:
            await _hurt_sockets(fault, station.to_nats)

    async def _hurt_store(self, fault: Fault) -> None:
        if fault.kind is Kind.DISK_FULL:
            async with self.arena.full_store():
                self._delete_records()
                await asyncio.sleep(fault.seconds)
        elif fault.kind is Kind.RECORDS_DELETED:
            self._delete_records()
        else:
            for path in self.arena.record_files():
                expire(path)

    async def _hurt_clock(self, fault: Fault, station: Station) -> None:
        """Nothing may come of it: every lease and deadline is reckoned by another clock."""
        station.wall_clock.shift(fault.skew)
        end = time.monotonic() + fault.seconds
        whole = True
        while time.monotonic() < end:
            await asyncio.sleep(_POLL)
            whole = await self._whole() and whole
        station.wall_clock.shift(0.0)
        if not whole:
            self.felt.append(fault)

    def _delete_records(self) -> None:
        for path in self.arena.record_files():
            path.unlink(missing_ok=True)


async def _outlived(station: Station, path: str, life: int) -> bool:
    return await station.life(path) > life


async def _hurt_sockets(fault: Fault, proxy: Proxy) -> None:
    if fault.kind in {Kind.ENGINE_CUT, Kind.NATS_CUT}:
        proxy.cut()
    elif fault.kind is Kind.ENGINE_HOLD:
        proxy.hold()
        await asyncio.sleep(fault.seconds)
        proxy.release()
    else:
        proxy.delay = DELAY
        await asyncio.sleep(fault.seconds)
        proxy.delay = 0.0


async def _during(trouble: AbstractContextManager[None], seconds: float) -> None:
    with trouble:
        await asyncio.sleep(seconds)

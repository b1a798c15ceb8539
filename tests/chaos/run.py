"""One run: bring up, load, faults, rest, verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.arena import Arena, Station
from tests.chaos.injector import Incident, Injector
from tests.chaos.load import Load
from tests.chaos.schedule import Fault, Kind
from tests.chaos.verdict import (
    Leak,
    engine_problems,
    load_problems,
    process_problems,
    recovery_problems,
    rested,
)
from tests.support.waiting import eventually

Say = Callable[[str], None]
WARM_UP_ROUNDS: Final = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do to whom.

    Attributes:
        duration: seconds after which no further fault is injected; None to see all of them through.
        most_backoff: longest pause, in seconds, before an actor's next life, so that many crashes fit in a run.
    """

    seed: int
    faults: list[Fault]
    streams: int = 16
    stations: int = 2
    duration: float | None = None
    token_delay_ms: float = 5.0
    most_backoff: float = 10.0


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it; times are seconds on the monotonic clock."""

    plan: Plan
    began: float
    ended: float
    load: Load
    injector: Injector
    leaks: list[Leak]
    problems: list[str]


async def run(plan: Plan, directory: Path, say: Say) -> Result:
    """Carries the plan out in `directory`, where every process keeps its log."""
    async with Arena(
        directory,
        token_delay_ms=plan.token_delay_ms,
        most_backoff=plan.most_backoff,
        settable_clocks=any(fault.kind is Kind.CLOCK_SKEW for fault in plan.faults),
    ) as arena:
        await arena.bring_up(plan.stations)
        say(f"{plan.stations} workers up, {plan.streams} clients, seed {plan.seed}, logs in {directory}")
        async with arena.client() as client:
            return await _attack(plan, arena, Load(client, plan.streams, plan.seed), say)


async def _attack(plan: Plan, arena: Arena, load: Load, say: Say) -> Result:
    before = await _warm_up(arena, load)
    began = time.monotonic()
    injector = Injector(arena, load.client, lambda incident: say(_line(incident, time.monotonic() - began, load)))
    load.start()
    await injector.follow(plan.faults, until=began + (plan.duration or float("inf")))
    await load.stop()
    ended = time.monotonic()
    problems = [
        *load_problems(load),
        *recovery_problems(injector),
        *process_problems(arena),
        *await _registration_problems(arena, load),
    ]
    leaks: list[Leak] = []
    for station, held in zip(arena.stations, before, strict=True):
        problems += await engine_problems(station)
        problems += await _left_behind(station, held, leaks)
    return Result(plan, began, ended, load, injector, leaks, problems)


async def _warm_up(arena: Arena, load: Load) -> list[dict[str, int]]:
    warm = Load(load.client, load.streams, load.seed + 1)
    warm.start()
    await eventually(lambda: len(warm.outcomes) >= WARM_UP_ROUNDS * load.streams, "warm", timeout=120.0)
    await warm.stop()
    return [await rested(station) for station in arena.stations]


async def _registration_problems(arena: Arena, load: Load) -> list[str]:
    async def serves() -> bool:
        return (await load.client.chat("are you there", max_tokens=4)).status == 200

    try:
        await eventually(load.client.lists, "listed again")
        await eventually(serves, "serves again")
    except AssertionError as error:
        return [str(error)]
    found = (arena.site.store.instances("chaos"), arena.site.store.cards("chaos"))
    return [] if arena.registered() else [f"the store does not hold what lives: {found}"]


async def _left_behind(station: Station, before: dict[str, int], leaks: list[Leak]) -> list[str]:
    try:
        leak = Leak(before, await rested(station))
    except (AssertionError, OSError) as error:
        return [f"worker {station.number}: {error}"]
    problems = leak.problems(f"worker {station.number}")
    for _ in range(20):
        if not problems:
            break
        await asyncio.sleep(0.5)
        leak = Leak(before, await rested(station))
        problems = leak.problems(f"worker {station.number}")
    leaks.append(leak)
    return problems


def _line(incident: Incident, elapsed: float, load: Load) -> str:
    recovery = "NEVER WHOLE AGAIN" if incident.recovery is None else f"whole after {incident.recovery:5.2f} s"
    ends = ", ".join(f"{count} {end}" for end, count in sorted(load.ends.items()))
    return f"{elapsed:7.1f} s  {incident.fault!s:<58} {recovery}   [{ends}]"

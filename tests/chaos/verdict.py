"""What must hold after a run, whatever went wrong in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.chaos.arena import Arena, Station
from tests.chaos.injector import Injector
from tests.chaos.load import VIOLATIONS, Load
from tests.support.waiting import eventually

Census = dict[str, int]

ABORT_ATTEMPTS: Final = 3
SETTLE_SECONDS: Final = 90.0
SLACK: Final = {"actors": 2, "tasks": 4, "threads": 8, "files": 16, "objects": 5_000}
"""How much more than before the run a worker may hold: pools fill up, gRPC keeps channels, logs keep their last few."""


@dataclass(frozen=True, slots=True)
class Leak:
    """One worker before and after."""

    before: Census
    after: Census

    def problems(self, name: str) -> list[str]:
        """Counts that did not come back."""
        kinds = [kind for kind, slack in SLACK.items() if self.after[kind] > self.before[kind] + slack]
        return [f"{name}: {kind} grew from {self.before[kind]} to {self.after[kind]}" for kind in kinds]

    def __str__(self) -> str:
        counts = [f"{kind} {self.before[kind]} -> {self.after[kind]}" for kind in SLACK]
        return ", ".join([*counts, f"RSS {self.before['rss'] / 2**20:.0f} -> {self.after['rss'] / 2**20:.0f} MiB"])

    @property
    def growth(self) -> float:
        """Resident memory now, as a share of before."""
        return self.after["rss"] / self.before["rss"]


async def rested(station: Station) -> Census:
    """The worker's census once no stream is left in it.

    Raises:
        AssertionError: streams are left after all that time.
    """

    async def idle() -> bool:
        return await station.streams() == 0

    await eventually(idle, f"worker {station.number} has no stream left", timeout=SETTLE_SECONDS)
    return await station.census()


async def engine_problems(station: Station) -> list[str]:
    """Orphans, and requests aborted too often, in the engine's present life."""

    async def idle() -> bool:
        return bool((await station.stats())["active"] == 0)

    name = f"engine {station.number}"
    try:
        await eventually(idle, f"{name} is idle", timeout=SETTLE_SECONDS)
    except AssertionError as error:
        return [f"orphans: {error}"]
    return [f"{name}: {problem}" for problem in _abort_problems(await station.stats())]


def _abort_problems(stats: dict[str, Any]) -> list[str]:
    stopped, logical = stats["aborts"]["outcomes"].get("aborted", 0), stats["aborts"]["logical"]
    twice = [f"{stopped} aborts stopped {logical} requests"] if stopped > logical else []
    often = [record for record in stats["records"] if record["aborts"] > ABORT_ATTEMPTS]
    return twice + [f"{record['request_id']} was aborted {record['aborts']} times" for record in often]


def load_problems(load: Load) -> list[str]:
    """Requests that did not end as one may."""
    return [f"{outcome.end}: {outcome.detail}" for outcome in load.outcomes if outcome.end in VIOLATIONS]


def recovery_problems(injector: Injector) -> list[str]:
    """Faults that were not got over, and faults that were felt though nothing should come of them."""
    hurt = [incident.fault for incident in injector.incidents if incident.recovery is None]
    return [*(f"never recovered from {fault}" for fault in hurt), *(f"felt {fault}" for fault in injector.felt)]


def process_problems(arena: Arena) -> list[str]:
    """Processes that ended though nobody asked them to."""
    ended = [process for process in arena.site.stack.processes if process.exit_code is not None]
    return [f"{process.name} ended with {process.exit_code}: {process.tail(3)}" for process in ended]

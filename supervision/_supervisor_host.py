"""The host of a supervisor: children in order up, and in reverse order down, drained on the way if there is time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openengine_sidecar.messages.signals import Cancel, Cause, Drain, Escalate, Signal, Started, Terminated
from openengine_sidecar.supervision._cell import Cell
from openengine_sidecar.supervision._children import (
    bury,
    child_over,
    send_drain_if_up,
    stop_together,
    wait_drained,
)
from openengine_sidecar.supervision._clock import Limit
from openengine_sidecar.supervision._keeper import Keeper
from openengine_sidecar.supervision._loop_host import LoopHost
from openengine_sidecar.supervision.errors import EscalationError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._supervisor import Supervisor


class SupervisorHost(LoopHost):
    """Hosts a `Supervisor`. Static children are its keeper's; spawned ones live and end as with any other actor."""

    supervises = True
    _phase: tuple[tuple[Cell, ...], Limit] | None = None
    _reserve = 0.0

    def __init__(self, cell: Cell, actor: Supervisor) -> None:
        super().__init__(cell, actor)
        self.keeper = Keeper(self, actor.plan)

    def hear(self, cell: Cell, signal: Signal) -> None:
        """Take what a child says."""
        slot = self.keeper.slot_of(cell)
        match signal:
            case Started() if slot is not None:
                self.keeper.child_started(slot)
            case Terminated(_, cause) if slot is not None:
                self.keeper.child_over(slot, cause)
            case Terminated():
                child_over(self, cell, signal)
                self.keeper.ended_by_itself(cell.spec)
            case _:
                pass

    def escalate(self, error: EscalationError) -> None:
        """Give up: this life ends with the error, and its own supervisor decides."""
        self.system.signals.add(self.cell, Escalate(error.cause))
        self.actor.log.error("{}", error)
        self.conclude(Cause.of(error))

    async def stop_children_in_turn(self) -> None:
        """End every child, the last started first, each gone before the next."""
        self.keeper.rest()
        for cells in self._phases():
            await self._stop_phase(cells)

    async def drain(self, drain: Drain) -> None:
        """Drain and stop every child, the last started first; nothing is restarted any more."""
        self.keeper.rest()
        await self.drain_self(drain)
        phases = self._phases()
        while phases:
            cells = phases.pop(0)
            self._reserve = sum(cell.spec.drain_reserve for later in phases for cell in later)
            await self._drain_phase(cells, drain)
        self.report_drained()

    def shorten_drain(self, drain: Drain) -> None:
        """The drain under way has to end earlier."""
        if self._phase is not None:
            cells, limit = self._phase
            limit.shorten(self._phase_deadline(drain))
            for cell in cells:
                cell.send_drain(Drain(limit.deadline, drain.reason))

    def pass_cancel_down(self, cancel: Cancel) -> None:
        """Tell every child, the youngest first; nothing is restarted any more."""
        self.keeper.rest()
        super().pass_cancel_down(cancel)

    def _phases(self) -> list[tuple[Cell, ...]]:
        """What is stopped at the same time: the spawned children, then one static child after the other."""
        static = [slot.cell for slot in reversed(self.keeper.slots) if slot.cell is not None and not slot.finished]
        spawned = tuple(cell for cell in self.children.values() if cell not in static)
        return [spawned, *((cell,) for cell in static)]

    async def _drain_phase(self, cells: tuple[Cell, ...], drain: Drain) -> None:
        limit = Limit(self.system.clock, self._phase_deadline(self.draining or drain))
        self._phase = (cells, limit)
        for cell in reversed(cells):
            send_drain_if_up(cell, Drain(limit.deadline, drain.reason))
        for cell in reversed(cells):
            await wait_drained(cell, limit)
        self._phase = None
        await self._stop_phase(cells)

    def _phase_deadline(self, drain: Drain) -> float:
        """The deadline, less what the children to come keep for themselves: at most half of what is left."""
        left = max(0.0, drain.deadline - self.system.clock.monotonic())
        return drain.deadline - min(self._reserve, left / 2)

    async def _stop_phase(self, cells: tuple[Cell, ...]) -> None:
        await stop_together(cells, self.stop_by)
        for cell in cells:
            bury(self, cell, cell.last_cause)

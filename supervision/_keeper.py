"""The strategy of a supervisor as a state machine over its children's ends, driven by an injected clock.

Every start and stop of a static child is done by a job, a background task of the supervisor. While a job has a child
in hand, the ends of that child are the job's own doing. An end out of hand is an incident: it is counted once, and
answered by a new job for everything it touches, which first takes the place of the jobs it overlaps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openengine_sidecar.messages.signals import Cause, CauseKind, Start, Started, Terminated
from openengine_sidecar.supervision._cell import Cell
from openengine_sidecar.supervision._children import adopt, bury
from openengine_sidecar.supervision._counters import Count
from openengine_sidecar.supervision._spec import AutoShutdown, BudgetWindow, ChildSpec, Restart, RestartBudget, Strategy
from openengine_sidecar.supervision.errors import EscalationError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._supervisor_host import SupervisorHost


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a supervisor was told."""

    strategy: Strategy
    children: tuple[ChildSpec, ...]
    budget: RestartBudget
    auto_shutdown: AutoShutdown
    fatal: tuple[type[BaseException], ...]


class Slot:
    """One static child: its spec, its address once there is one, and its health."""

    __slots__ = ("attempt", "cell", "in_hand", "index", "ready_at", "spec")

    def __init__(self, index: int, spec: ChildSpec) -> None:
        self.index = index
        self.spec = spec
        self.cell: Cell | None = None
        self.in_hand = True
        self.attempt = 0
        self.ready_at: float | None = None

    @property
    def finished(self) -> bool:
        """Whether its address was given up."""
        return self.cell is None or self.cell.end is not None

    def next_attempt(self, now: float) -> int:
        """Which restart in a row this is, counted from 0; health starts the count anew."""
        healthy = self.ready_at is not None and now - self.ready_at >= self.spec.backoff.reset_after
        attempt = 0 if healthy else self.attempt
        self.attempt = attempt + 1
        self.ready_at = None
        return attempt


class Keeper:
    """Starts, watches and restarts the static children of one supervisor."""

    def __init__(self, host: SupervisorHost, plan: Plan) -> None:
        self._host = host
        self._plan = plan
        self._window = BudgetWindow(plan.budget)
        self._jobs: dict[asyncio.Task[None], tuple[Slot, ...]] = {}
        self._up: asyncio.Future[None] = host.system.loop.create_future()
        self._resting = False
        self.slots = tuple(Slot(index, spec) for index, spec in enumerate(plan.children))
        self._by_name = {slot.spec.name: slot for slot in self.slots}

    async def bring_up(self) -> None:
        """Open every address, then start the children in order, each ready before the next.

        Raises:
            Exception: the first start that failed; the children before it are left to be stopped.
        """
        for slot in self.slots:
            slot.cell = adopt(self._host, slot.spec, follows=True)
        self._begin_job(None, self.slots)
        await self._up

    def rest(self) -> None:
        """Start and restart nothing from now on."""
        self._resting = True
        for job in self._jobs:
            job.cancel()

    def slot_of(self, cell: Cell) -> Slot | None:
        """The slot of a static child; None for a spawned one."""
        slot = self._by_name.get(cell.spec.name)
        return slot if slot is not None and slot.cell is cell else None

    def child_started(self, slot: Slot) -> None:
        """It is ready: out of hand."""
        if slot.cell is not None:
            self._host.system.signals.add(slot.cell, Started())
        slot.in_hand = False
        slot.ready_at = self._host.system.clock.monotonic()

    def child_over(self, slot: Slot, cause: Cause) -> None:
        """A life of a static child is over."""
        if slot.in_hand or self._resting or self._host.ending:
            return
        restart = slot.spec.restart
        if restart is Restart.TEMPORARY or (restart is Restart.TRANSIENT and cause.normal):
            self._retire(slot, cause)
        elif self._covered(slot, cause):
            self._begin_job(slot, self._touched(slot))

    def ended_by_itself(self, spec: ChildSpec) -> None:
        """A child that stays away ended by itself: perhaps that was the work this supervisor was there for."""
        rule = self._plan.auto_shutdown
        if not spec.significant or rule is AutoShutdown.NEVER:
            return
        if rule is AutoShutdown.ALL_SIGNIFICANT and self._significant_left():
            return
        self._host.conclude(Cause(CauseKind.STOPPED, f"auto-shutdown: {spec.name} ended"))

    def _significant_left(self) -> bool:
        return any(cell.spec.significant and cell.end is None for cell in self._host.children.values())

    def _retire(self, slot: Slot, cause: Cause) -> None:
        if slot.cell is None:
            return
        bury(self._host, slot.cell, cause)
        self._host.cell.post(Terminated(slot.cell.address, cause))
        self.ended_by_itself(slot.spec)

    def _covered(self, slot: Slot, cause: Cause) -> bool:
        """Count an incident; returns whether a restart may answer it, escalates otherwise."""
        host, budget = self._host, self._plan.budget
        host.system.counters.add(Count.INCIDENTS)
        if isinstance(_origin(cause).error, self._plan.fatal):
            self._escalate(slot, "a restart cannot mend that", cause)
        elif not self._window.spend(host.system.clock.monotonic()):
            self._escalate(slot, f"more than {budget.max_restarts} incidents in {budget.window:g} s", cause)
        else:
            return True
        return False

    def _escalate(self, slot: Slot, why: str, cause: Cause) -> None:
        host = self._host
        host.system.counters.add(Count.ESCALATIONS)
        error = EscalationError(host.cell.path, slot.spec.name, why, cause)
        error.__cause__ = cause.error
        host.escalate(error)

    def _touched(self, slot: Slot) -> tuple[Slot, ...]:
        match self._plan.strategy:
            case Strategy.ONE_FOR_ONE:
                return (slot,)
            case Strategy.ONE_FOR_ALL:
                return self.slots
            case Strategy.REST_FOR_ONE:
                return self.slots[slot.index :]

    def _begin_job(self, culprit: Slot | None, group: tuple[Slot, ...]) -> None:
        """Take a group in hand. Jobs for groups give way to it, and leave it what they had not finished."""
        replaced: list[asyncio.Task[None]] = []
        if culprit is not None and self._plan.strategy is not Strategy.ONE_FOR_ONE:
            replaced = list(self._jobs)
            first = min([slot.index for job in replaced for slot in self._jobs[job] if slot.in_hand] + [group[0].index])
            group = self.slots[first:]
        _take_in_hand(group)
        for job in replaced:
            job.cancel()
        work = self._first_start(group) if culprit is None else self._repair(culprit, group, replaced)
        task = self._host.adopt_task(work, "supervise")
        self._jobs[task] = group
        task.add_done_callback(self._jobs.pop)

    async def _first_start(self, group: Sequence[Slot]) -> None:
        for slot in group:
            try:
                await self._begin(slot)
            except Exception as error:  # noqa: BLE001 - raised again by bring_up
                if not self._up.done():
                    self._up.set_exception(error)
                return
        if not self._up.done():
            self._up.set_result(None)

    async def _repair(self, culprit: Slot, group: tuple[Slot, ...], replaced: Sequence[asyncio.Task[None]]) -> None:
        if replaced:
            await asyncio.wait(replaced)
        while True:
            _take_in_hand(group)
            await self._stop(group)
            await self._back_off(culprit)
            failed = await self._start(group)
            if failed is None:
                break
            culprit, cause = failed
            if not self._covered(culprit, cause):
                return
            if self._plan.strategy is Strategy.REST_FOR_ONE:
                group = group[group.index(culprit) :]
        if self._plan.strategy is not Strategy.ONE_FOR_ONE and not self._up.done():
            self._up.set_result(None)  # it took the first start's place

    async def _stop(self, group: Sequence[Slot]) -> None:
        for slot in reversed(group):
            if slot.finished:
                continue
            cell = self._cell(slot)
            await cell.shut_down()
            if slot.spec.restart is Restart.TEMPORARY and cell.incarnation:
                bury(self._host, cell, Cause(CauseKind.STOPPED, "a sibling failed"))

    async def _back_off(self, culprit: Slot) -> None:
        host = self._host
        attempt = culprit.next_attempt(host.system.clock.monotonic())
        delay = culprit.spec.backoff.delay(attempt, host.system.random)
        host.actor.log.warning("restarting from {} in {:.3f} s", culprit.spec.name, delay)
        await host.system.clock.sleep(delay)

    async def _start(self, group: Sequence[Slot]) -> tuple[Slot, Cause] | None:
        """Start a group in order; returns the child that did not come up, and why."""
        for slot in group:
            temporary = slot.spec.restart is Restart.TEMPORARY
            if temporary and slot.finished:
                continue
            try:
                await self._begin(slot)
            except Exception as error:  # noqa: BLE001 - counted as an incident, or the end of a temporary child
                cause = self._cell(slot).failure or Cause.of(error)
                if not temporary:
                    return slot, cause
                self._retire(slot, cause)
        return None

    async def _begin(self, slot: Slot) -> None:
        cell = self._cell(slot)
        if cell.incarnation:
            cell.count_restart(self._plan.budget.window)
        self._host.system.signals.add(cell, Start())
        await cell.start()

    def _cell(self, slot: Slot) -> Cell:
        """The address of a child; opened anew for one that had finished, whose lives are counted on."""
        cell = slot.cell
        if cell is None or cell.end is not None:
            slot.cell = adopt(self._host, slot.spec, follows=True)
            slot.cell.incarnation = cell.incarnation if cell is not None else 0
            return slot.cell
        return cell


def _take_in_hand(group: Sequence[Slot]) -> None:
    for slot in group:
        slot.in_hand = True


def _origin(cause: Cause) -> Cause:
    return cause.error.origin if isinstance(cause.error, EscalationError) else cause

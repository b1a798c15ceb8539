"""Lives: one pykka actor each, led by one task from on_start to on_stop.

A life only moves forward: starting, running (perhaps draining), stopping, over. What ends it early is noted as the
verdict; the first verdict counts.
"""

from __future__ import annotations

import abc
import asyncio
import contextvars
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

import pykka

from openengine_sidecar.messages.signals import Cause, CauseKind, Started, Stop
from openengine_sidecar.supervision._clock import INFINITY, within
from openengine_sidecar.supervision._counters import Count
from openengine_sidecar.supervision._future import AskFuture
from openengine_sidecar.supervision._pykka_inbox import PykkaInbox
from openengine_sidecar.supervision._spec import Shutdown
from openengine_sidecar.supervision._status import ActorState

if TYPE_CHECKING:
    from openengine_sidecar.supervision._behaviour import Behaviour
    from openengine_sidecar.supervision._cell import Cell

KILL_GRACE: Final = 1.0
"""Seconds between cancelling an actor and abandoning it."""

LAST_WORDS: Final = 0.5
"""Seconds to end by itself that everybody gets, however late it is; a killed actor shares its grace with children."""


class Life(pykka.Actor, abc.ABC):
    """One life of one address, from its first step to its last.

    pykka registers nothing of this: its registry is global, scanned linearly, and empties itself into `stop_all` as
    soon as any pykka actor of the process meets a BaseException. Lives are stopped by their supervisors alone.

    Attributes:
        begun: whether the task has run its first step; before that it cannot be interrupted.
        entered: whether on_start was called.
        ready: whether on_start returned.
        over: whether the life has ended; nothing it still does counts.
        verdict: why it has to end, once that is known.
        outcome: how it ended; meaningful once it is over.
        children: the addresses below it, by name, in the order they were opened.
        tasks: what runs beside the mailbox.
        stop_by: when its children, too, have to be gone.
    """

    supervises = False
    begun = False
    entered = False
    ready = False
    over = False
    verdict: Cause | None = None
    outcome = Cause(CauseKind.STOPPED)
    stop_by = INFINITY
    task: asyncio.Task[Cause]
    _readiness: asyncio.Future[None] | None = None

    def __init__(self, cell: Cell, actor: Behaviour[Any]) -> None:
        # pykka's own __init__ costs more than all the rest of a start; it waits for the first use of actor_ref.
        self.cell = cell
        self.actor = actor
        self.system = cell.system
        self.incarnation = cell.incarnation
        self.children: dict[str, Cell] = {}
        self.tasks: dict[asyncio.Task[Any], None] = {}

    # What pykka asks of a runtime.

    @property
    def actor_ref(self) -> pykka.ActorRef[Any]:
        """The ref that pykka itself gives to this life, for code that speaks plain pykka."""
        if "_actor_ref" not in self.__dict__:
            super().__init__()
            if self.over:
                self.actor_stopped.set()
        return self._actor_ref

    def _create_actor_inbox(self) -> PykkaInbox:  # type: ignore[override] # pykka calls it through self
        return PykkaInbox(self.cell)

    @staticmethod
    def _create_future() -> AskFuture[Any]:
        return AskFuture()

    def _start_actor_loop(self) -> None:
        self.context = contextvars.copy_context()
        self.context.run(self.mark)
        self.task = self.system.loop.create_task(self.run(), name=self.cell.path, context=self.context)
        self.task.add_done_callback(self._task_over)

    def begin(self) -> None:
        """Begin the life. Loop thread only."""
        self._start_actor_loop()

    # The life.

    @abc.abstractmethod
    def mark(self) -> None:
        """Mark the present context as this life's."""

    @abc.abstractmethod
    async def enter(self) -> None:
        """Run on_start."""

    @abc.abstractmethod
    async def pump(self) -> Cause:
        """Handle signals and mail until something ends this life; returns, or raises, what."""

    @abc.abstractmethod
    async def leave(self, cause: Cause) -> None:
        """Run on_stop."""

    @abc.abstractmethod
    def interrupt(self) -> None:
        """Make whatever hook or handler is running give up."""

    @abc.abstractmethod
    def let_go(self) -> None:
        """Give up what a life holds on to: timers, watches, subscriptions."""

    @abc.abstractmethod
    async def stop_children(self) -> None:
        """End every child."""

    @abc.abstractmethod
    def farewell(self, cause: Cause) -> None:
        """The life is over: leave nothing of it behind, and say how it ended."""

    def start_now(self) -> None:
        """Run on_start to its first wait, on behalf of whoever waits for it, where that is possible."""

    async def run(self) -> Cause:
        """Lead the life; returns how it ended."""
        self.begun = True
        if self.verdict is not None and not self.entered:
            return self.verdict
        try:
            if not self.ready:
                await self.enter()
                self.started()
            cause = self.verdict or await self.pump()
        except GeneratorExit:  # the loop itself is being torn down
            raise
        except BaseException as error:  # noqa: BLE001 - becomes the cause, which is counted, logged and reported
            cause = self._why(error)
        return await self._wind_down(cause)

    @property
    def ending(self) -> bool:
        """Whether its end is decided, or under way."""
        return self.over or self.verdict is not None or self.cell.state is ActorState.STOPPING

    def conclude(self, cause: Cause) -> None:
        """End this life for the given cause, interrupting what it does. Loop thread only."""
        if self.ending:
            return
        self.verdict = cause
        self.interrupt()
        if self.ready:  # should the handler swallow the interruption
            self.cell.post(Stop())

    def request_stop(self, reason: str = "stopped") -> None:
        """End after the current message; during on_start, which has nothing to finish, at once."""
        if self.ready:
            self.cell.post(Stop(reason))
        else:
            self.conclude(Cause(CauseKind.STOPPED, reason))

    def kill(self) -> None:
        """Patience is over: interrupt whatever it does, also its way out."""
        self.system.counters.add(Count.KILLS)
        self.actor.log.warning("takes too long to stop: cancelled")
        if self.verdict is None:
            self.verdict = Cause(CauseKind.KILLED, "took too long to stop")
        self.interrupt()

    def abandon(self) -> None:
        """It ignored even that: cut it off and go on without it."""
        self.system.counters.add(Count.ABANDONED)
        self.actor.log.error("ignores cancellation: abandoned")
        self.finish(Cause(CauseKind.ABANDONED, "ignored its cancellation"))

    async def shut_down(self, by: float = INFINITY) -> None:
        """Ask it to stop, wait as long as its spec allows, cancel, wait, abandon.

        Args:
            by: moment on the clock when patience ends, whatever the spec allows, but for some last words, and for the
                time that its children take to end under the same rule.
        """
        clock = self.system.clock
        self.stop_by = min(self.stop_by, by)
        patience = self.cell.spec.patience(supervises=self.supervises)
        if isinstance(patience, Shutdown):
            self.kill()
        else:
            self.request_stop()
            first = min(patience, max(LAST_WORDS, by - clock.monotonic()))
            ended = await within(clock, self.task, first)
            if not ended and self.children and self.cell.state is ActorState.STOPPING:
                ended = await within(clock, self.task, patience - first)
            if not ended:
                self.kill()
        if not self.over and not await within(clock, self.task, KILL_GRACE) and not self.over:
            self.abandon()

    @property
    def readiness(self) -> asyncio.Future[None]:
        """Done once the life is ready, or over."""
        if self._readiness is None:
            self._readiness = self.system.loop.create_future()
            if self.ready or self.over:
                self._readiness.set_result(None)
        return self._readiness

    def started(self) -> None:
        """on_start returned."""
        if self.verdict is not None:
            return
        self.ready = True
        if self.cell.state is ActorState.STARTING:
            self.cell.state = ActorState.RUNNING
        if self._readiness is not None and not self._readiness.done():
            self._readiness.set_result(None)
        self.cell.owner.hear(self.cell, Started())

    def _why(self, error: BaseException) -> Cause:
        if not isinstance(error, asyncio.CancelledError):
            return self.verdict or Cause.of(error)
        if self.task.cancelling():
            self.task.uncancel()
            return self.verdict or Cause(CauseKind.KILLED, "cancelled from outside")
        return self.verdict or Cause.of(error)

    async def _wind_down(self, cause: Cause) -> Cause:
        self.cell.state = ActorState.STOPPING
        self.let_go()
        if self.tasks:
            cause = await self._step(self._stop_tasks(), cause)
        if self.children:
            cause = await self._step(self.stop_children(), cause)
        return await self._step(self.leave(cause), cause)

    async def _step(self, step: Coroutine[Any, Any, None], cause: Cause) -> Cause:
        try:
            await step
        except asyncio.CancelledError:
            self.task.uncancel()
            return cause if not cause.normal else self.verdict or Cause(CauseKind.KILLED, "cancelled while stopping")
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - counted, logged, and a failure unless there was one already
            self.system.counters.add(Count.STOP_FAILURES)
            self.actor.log.opt(exception=error).error("failed while stopping")
            return Cause.of(error) if cause.normal else cause
        return cause

    async def _stop_tasks(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(tuple(self.tasks))

    def _task_over(self, task: asyncio.Task[Cause]) -> None:
        if self.over:
            return
        if task.cancelled():  # before its first step, or by the end of the loop
            self.finish(self.verdict or Cause(CauseKind.KILLED, "cancelled from outside"))
            return
        error = task.exception()
        self.finish(Cause.of(error) if error is not None else task.result())

    def finish(self, cause: Cause) -> None:
        """The life is over; whatever still runs of it does not count."""
        self.over = True
        self.outcome = cause
        if self._readiness is not None and not self._readiness.done():
            self._readiness.set_result(None)
        if "_actor_ref" in self.__dict__:
            self.actor_stopped.set()
        for task in self.tasks:  # begun after the others were ended
            task.cancel()
        self.farewell(cause)

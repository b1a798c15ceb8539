"""Hosts: one life of one actor, from on_start to on_stop. The host is the pykka actor, the user's object its behaviour.

A life only moves forward: starting, running (perhaps draining), stopping, over. What ends it early is noted as the
verdict; the first verdict counts.
"""

from __future__ import annotations

import abc
import asyncio
import contextvars
from collections.abc import Callable, Collection, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pykka

from openengine_sidecar.messages.signals import (
    Cancel,
    Cause,
    CauseKind,
    Drain,
    Drained,
    Signal,
    Started,
    Stop,
    Terminated,
)
from openengine_sidecar.supervision._children import (
    LAST_WORDS,
    child_over,
    drain_together,
    kill_together,
    orphan,
    stop_together,
)
from openengine_sidecar.supervision._clock import INFINITY, within
from openengine_sidecar.supervision._counters import Count
from openengine_sidecar.supervision._current import enter
from openengine_sidecar.supervision._future import AskFuture
from openengine_sidecar.supervision._inbox import Letter, Tick
from openengine_sidecar.supervision._pykka_inbox import PykkaInbox
from openengine_sidecar.supervision._spec import Shutdown
from openengine_sidecar.supervision._stash import unstash
from openengine_sidecar.supervision._status import ActorState
from openengine_sidecar.supervision._timers import cancel_timers
from openengine_sidecar.supervision.errors import AskDeadlockError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._behaviour import Behaviour
    from openengine_sidecar.supervision._cell import Cell

T = TypeVar("T")

Handler = Callable[[Any], Any]

KILL_GRACE: Final = 1.0
"""Seconds between cancelling an actor and abandoning it."""


class Host(pykka.Actor, abc.ABC):
    """One life: runs the hooks and handlers of `actor` for the address `cell`.

    pykka registers nothing of this: its registry is global, scanned linearly, and empties itself into `stop_all` as
    soon as any pykka actor of the process meets a BaseException. Lives are stopped by their supervisors alone.

    Attributes:
        begun: whether the task has run its first step; before that it cannot be interrupted.
        entered: whether on_start was called.
        ready: whether on_start returned.
        over: whether the life has ended; nothing it still does counts.
        verdict: why it has to end, once that is known.
        outcome: how it ended; meaningful once it is over.
        draining: the shortest Drain heard so far.
        napping: whether its thread waits for others in the middle of a hook or handler.
        parked: whether its task waits for mail, so that an asker may switch to it directly.
        stop_by: when its children, too, have to be gone.
        asking: the reply its hook or handler waits for at the moment.
        letter: the letter being handled, None for a plain tell.
        handle: what messages are given to, on_message unless the actor became something else.
        resumes: errors of a handler that do not end this life.
        stashed: messages put aside.
        watching: the cells whose end it wants to hear of, by path.
    """

    supervises = False
    begun = False
    entered = False
    ready = False
    over = False
    napping = False
    parked = False
    verdict: Cause | None = None
    outcome = Cause(CauseKind.STOPPED)
    draining: Drain | None = None
    stop_by = INFINITY
    asking: AskFuture[Any] | None = None
    letter: Letter | None = None
    task: asyncio.Task[Cause]
    _readiness: asyncio.Future[None] | None = None
    _drained: asyncio.Future[None] | None = None

    def __init__(self, cell: Cell, actor: Behaviour[Any]) -> None:
        # pykka's own __init__ costs more than all the rest of a start; it waits for the first use of actor_ref.
        self.cell = cell
        self.actor = actor
        self.system = cell.system
        self.incarnation = cell.incarnation
        self.vocabulary = actor.vocabulary()
        self.look_closely()
        self.children: dict[str, Cell] = {}
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.timers: dict[str, Tick] = {}
        self.watching: dict[str, Cell] = {}
        self.stashed: list[Any] = []
        self.handle: Handler = actor.on_message
        self.resumes = cell.spec.resume

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
        self.context.run(enter, self)
        self.task = self.system.loop.create_task(self.run(), name=self.cell.path, context=self.context)
        self.task.add_done_callback(self._task_over)

    def begin(self) -> None:
        """Begin the life. Loop thread only."""
        self._start_actor_loop()

    # The life.

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
    async def drain_self(self, drain: Drain) -> None:
        """Run on_drain."""

    @abc.abstractmethod
    def interrupt(self) -> None:
        """Make whatever hook or handler is running give up."""

    @abc.abstractmethod
    def is_current(self) -> bool:
        """Whether the caller is this life's hook or handler."""

    def on_interrupt(self, callback: Callable[[], None]) -> AbstractContextManager[None]:
        """Have `callback()` called if this life is interrupted meanwhile: for waits that would not notice."""
        del callback
        return nullcontext()

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

    def handle_now(self, reply: AskFuture[Any]) -> None:
        """Handle the only ask in the mailbox before its asker goes to sleep, where that is possible."""

    def look_closely(self) -> None:
        """Send every message the long way for as long as somebody wants to know of each."""
        closely = self.cell.traced or self.cell.crowd
        self.known: Collection[type] = frozenset() if closely else self.vocabulary.known

    def resume(self, error: BaseException) -> None:
        """The handler failed, and that costs no more than the message."""
        self.system.counters.add(Count.RESUMED)
        self.cell.failure = Cause.of(error)
        self.system.failures.log(self.cell.path, self.cell.failure)

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

    @property
    def drained(self) -> asyncio.Future[None]:
        """Done once the life is drained, or over."""
        if self._drained is None:
            self._drained = self.system.loop.create_future()
            if self.over:
                self._drained.set_result(None)
        return self._drained

    def hear(self, cell: Cell, signal: Signal) -> None:
        """Take what a child says."""
        if isinstance(signal, Terminated):
            child_over(self, cell, signal)

    async def stop_children(self) -> None:
        """End every child; killed while it waits for them, kill them."""
        try:
            await self.stop_children_in_turn()
        except asyncio.CancelledError:
            await kill_together(tuple(self.children.values()))
            raise

    async def stop_children_in_turn(self) -> None:
        """End every child, in the order that this kind of parent keeps: all at once."""
        await stop_together(self.children.values(), self.stop_by)

    def receive_drain(self, drain: Drain) -> None:
        """Begin to drain, or bring the deadline of the drain under way closer, never away. Loop thread only."""
        known = self.draining
        if self.ending or (known is not None and known.deadline <= drain.deadline):
            return
        self.draining = drain
        self.stop_by = min(self.stop_by, drain.deadline)
        self.system.signals.add(self.cell, drain)
        if known is None:
            self.cell.state = ActorState.DRAINING
            self.adopt_task(self.drain(drain), "drain")
        else:
            self.shorten_drain(drain)

    async def drain(self, drain: Drain) -> None:
        """Drain this life and everything below it, and say so."""
        await drain_together(self, drain)
        self.report_drained()

    def report_drained(self) -> None:
        """Everything at and below this life is drained."""
        if not self.drained.done():
            self.drained.set_result(None)
        self.system.signals.add(self.cell, Drained())
        self.cell.owner.hear(self.cell, Drained())

    def shorten_drain(self, drain: Drain) -> None:
        """The drain under way has to end earlier."""
        for cell in self.children.values():
            cell.send_drain(drain)

    def pass_cancel_down(self, cancel: Cancel) -> None:
        """Tell every child, the youngest first."""
        self.system.signals.add(self.cell, cancel)
        for cell in reversed(tuple(self.children.values())):
            cell.post(cancel)

    def adopt_task(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run a coroutine beside the mailbox; its failure is this life's failure. Loop thread only."""
        task = self.system.loop.create_task(coroutine, name=f"{self.cell.path}: {name}")
        self.tasks[task] = None
        task.add_done_callback(self._side_task_over)
        return task

    def refuse_deadlock(self) -> None:
        """Raise if whoever this life is about to wait for waits, directly or not, for this life.

        Raises:
            AskDeadlockError: so it is.
        """
        chain, reply = [self.cell.path], self.asking
        while reply is not None and not reply.deferred and reply.target is not None:
            callee = reply.target
            if callee.path in chain[1:]:
                return
            chain.append(callee.path)
            if callee is self.cell:
                raise AskDeadlockError(tuple(chain))
            reply = callee.host.asking if callee.host is not None else None

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
        self._let_go()
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

    def _let_go(self) -> None:
        cancel_timers(self)
        for cell in self.watching.values():
            cell.remove_watcher(self)
        self.watching.clear()
        self.system.facts.unsubscribe(self.cell)

    def _side_task_over(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.conclude(Cause.of(error))

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
        for future in (self._readiness, self._drained):
            if future is not None and not future.done():
                future.set_result(None)
        if "_actor_ref" in self.__dict__:
            self.actor_stopped.set()
        unstash(self)
        for task in self.tasks:  # begun after the others were ended
            task.cancel()
        orphan(self)
        self.cell.life_over(self, cause)

"""Hosts: a life among others. What it handles, what it runs beside, and how it treats the children below it."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from openengine_sidecar.messages.signals import Cancel, Cause, Drain, Drained, Signal, Terminated
from openengine_sidecar.supervision._children import child_over, drain_together, kill_together, orphan, stop_together
from openengine_sidecar.supervision._counters import Count
from openengine_sidecar.supervision._current import enter
from openengine_sidecar.supervision._future import AskFuture
from openengine_sidecar.supervision._inbox import Letter, Tick
from openengine_sidecar.supervision._life import Life
from openengine_sidecar.supervision._stash import unstash
from openengine_sidecar.supervision._status import ActorState
from openengine_sidecar.supervision._timers import cancel_timers
from openengine_sidecar.supervision.errors import AskDeadlockError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._behaviour import Behaviour
    from openengine_sidecar.supervision._cell import Cell

T = TypeVar("T")

Handler = Callable[[Any], Any]


class Host(Life):
    """Runs the hooks and handlers of `actor` for the address `cell`.

    Attributes:
        draining: the shortest Drain heard so far.
        napping: whether its thread waits for others in the middle of a hook or handler.
        parked: whether its task waits for mail, so that an asker may switch to it directly.
        asking: the reply its hook or handler waits for at the moment.
        letter: the letter being handled, None for a plain tell.
        handle: what messages are given to, on_message unless the actor became something else.
        known: types of messages that take the short way.
        resumes: errors of a handler that do not end this life.
        stashed: messages put aside.
        timers: what was scheduled, by key.
        watching: the cells whose end it wants to hear of, by path.
    """

    napping = False
    parked = False
    draining: Drain | None = None
    asking: AskFuture[Any] | None = None
    letter: Letter | None = None
    _drained: asyncio.Future[None] | None = None

    def __init__(self, cell: Cell, actor: Behaviour[Any]) -> None:
        super().__init__(cell, actor)
        self.vocabulary = actor.vocabulary()
        self.look_closely()
        self.timers: dict[str, Tick] = {}
        self.watching: dict[str, Cell] = {}
        self.stashed: list[Any] = []
        self.handle: Handler = actor.on_message
        self.resumes = cell.spec.resume

    def mark(self) -> None:
        """Mark the present context as this life's."""
        enter(self)

    @abc.abstractmethod
    async def drain_self(self, drain: Drain) -> None:
        """Run on_drain."""

    @abc.abstractmethod
    def is_current(self) -> bool:
        """Whether the caller is this life's hook or handler."""

    def on_interrupt(self, callback: Callable[[], None]) -> AbstractContextManager[None]:
        """Have `callback()` called if this life is interrupted meanwhile: for waits that would not notice."""
        del callback
        return nullcontext()

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

    def let_go(self) -> None:
        """Give up timers, watches and subscriptions."""
        cancel_timers(self)
        for cell in self.watching.values():
            cell.remove_watcher(self)
        self.watching.clear()
        self.system.facts.unsubscribe(self.cell)

    def farewell(self, cause: Cause) -> None:
        """The life is over: nobody below outlives it, what was put aside is mail again, and the address is told."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        unstash(self)
        orphan(self)
        self.cell.life_over(self, cause)

    @property
    def drained(self) -> asyncio.Future[None]:
        """Done once the life is drained, or over."""
        if self._drained is None:
            self._drained = self.system.loop.create_future()
            if self.over:
                self._drained.set_result(None)
        return self._drained

    def _side_task_over(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.conclude(Cause.of(error))

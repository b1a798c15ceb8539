"""The actor system: one tree, one clock, one event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Never, Protocol, TypeVar

from openengine_sidecar.messages.signals import Cause, Drain, Signal, Terminated
from openengine_sidecar.supervision._cell import Cell
from openengine_sidecar.supervision._children import send_drain_if_up, wait_drained
from openengine_sidecar.supervision._clock import Clock, Limit, LoopClock
from openengine_sidecar.supervision._counters import Counters
from openengine_sidecar.supervision._current import Nap
from openengine_sidecar.supervision._dead_letters import DeadLetters
from openengine_sidecar.supervision._facts import Facts
from openengine_sidecar.supervision._future import refuse_to_block
from openengine_sidecar.supervision._loop_host import BURST
from openengine_sidecar.supervision._ref import Ref
from openengine_sidecar.supervision._spec import ChildSpec
from openengine_sidecar.supervision._status import ActorStatus
from openengine_sidecar.supervision._switch import MAX_DEPTH
from openengine_sidecar.supervision._tracing import FailureLog, SignalTraces
from openengine_sidecar.supervision.errors import ChildSpecError, SupervisionError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._host import Host
    from openengine_sidecar.supervision._thread_host import ThreadHost

T = TypeVar("T")


class Scheduler(Protocol):
    """Decides which of the actors that could run runs next; the event loop does that unless a test does."""

    burst: int

    def create_waiter(self) -> asyncio.Future[None]:
        """Make what a sleeping actor waits for."""
        ...


class ActorSystem:
    """One tree of actors on the running event loop, which may be the host application's.

    Args:
        clock: where time comes from, by default the loop.
        seed: of the random numbers behind back-off, by default none.
        scheduler: who decides which actor runs next, by default the loop.

    Attributes:
        facts: what actors publish and subscribe to.
        dead_letters: what could not be delivered.
        counters: what happened, by `Count`.
        signals: the last signals that went through the tree.
    """

    def __init__(
        self, *, clock: Clock | None = None, seed: int | None = None, scheduler: Scheduler | None = None
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self.clock: Clock = clock if clock is not None else LoopClock(self.loop)
        self.now = self.clock.monotonic
        self.random = random.Random(seed)  # noqa: S311 - jitter, not secrets
        self.create_waiter = self.loop.create_future if scheduler is None else scheduler.create_waiter
        self.burst = BURST if scheduler is None else scheduler.burst
        self.pause = _pause if scheduler is None else partial(_draw, scheduler)
        self.direct = scheduler is None
        self.depth = 0
        self.switches = self.burst
        self.facts = Facts(self)
        self.dead_letters = DeadLetters()
        self.counters = Counters()
        self.signals = SignalTraces()
        self.failures = FailureLog()
        self.threads: set[ThreadHost] = set()
        self._cells: dict[str, Cell] = {}
        self._root: Cell | None = None
        self._limit: Limit | None = None
        self._draining: asyncio.Task[None] | None = None
        self.clock.attach(lambda: any(thread.busy() for thread in self.threads))

    async def start(self, spec: ChildSpec) -> Ref[Any]:
        """Start the root and wait until it, and so the whole tree, is ready. The root itself is never restarted.

        Raises:
            Exception: what made the start fail; nothing is left running.
            ChildSpecError: there is a root already.
        """
        if self._root is not None:
            msg = f"the system has a root already: {self._root.path}"
            raise ChildSpecError(msg)
        root = self._root = Cell(self, self, spec, f"/{spec.name}")
        root.follows = True
        self.enroll(root)
        try:
            await root.start()
        except asyncio.CancelledError:
            await root.shut_down()
            raise
        except Exception:
            root.close(root.failure or root.last_cause)
            raise
        return root.ref

    async def drain(self, *, timeout: float, reason: str) -> None:
        """Drain the tree bottom to top, stop it, and wait until it is gone.

        Every call waits for the same drain. A later one can bring its deadline closer, never the other way.

        Args:
            timeout: seconds from now until what is not drained is stopped all the same.
            reason: why, for people.
        """
        root = self._root
        if root is None or root.end is not None:
            return
        drain = Drain(self.clock.monotonic() + timeout, reason)
        if self._draining is None or self._limit is None:
            self._limit = Limit(self.clock, drain.deadline)
            self._draining = self.loop.create_task(self._drain(root, self._limit, reason), name="drain")
        elif drain.deadline < self._limit.deadline:
            self._limit.shorten(drain.deadline)
            root.send_drain(drain)
        await asyncio.shield(self._draining)

    async def _drain(self, root: Cell, limit: Limit, reason: str) -> None:
        send_drain_if_up(root, Drain(limit.deadline, reason))
        await wait_drained(root, limit)
        await root.shut_down(limit.deadline)

    async def stop(self) -> None:
        """Stop the tree, without a drain, and wait until it is gone."""
        if self._root is not None:
            await self._root.shut_down()

    async def terminated(self) -> Cause:
        """Wait for the end of the root; returns how it ended: stopped, or failed with what nobody could mend.

        Raises:
            SupervisionError: there is no root.
        """
        if self._root is None:
            msg = "the system was not started"
            raise SupervisionError(msg)
        return await self._root.wait_gone()

    def ref(self, path: str) -> Ref[Any]:
        """The ref to whoever lives at `path`, now or later; `/root/child/...`."""
        return (self._cells.get(path) or Cell.nowhere(self, _NOBODY, path)).ref

    def snapshot(self) -> list[ActorStatus]:
        """Look at the whole tree: parents before children, children in the order they were started."""
        return [cell.status() for cell in self._tree(self._root)] if self._root is not None else []

    def trace(self, path: str, *, enabled: bool) -> None:
        """Log every message of one actor from now on, over all its lives; or no longer.

        Raises:
            SupervisionError: nobody lives there.
        """
        cell = self._cells.get(path)
        if cell is None:
            msg = f"nobody lives at {path}"
            raise SupervisionError(msg)
        cell.trace(enabled=enabled)

    # For the kit.

    def hear(self, cell: Cell, signal: Signal) -> None:
        """Take what the root says: the end of its life is the end of the tree."""
        if isinstance(signal, Terminated):
            cell.close(signal.cause)

    def enroll(self, cell: Cell) -> None:
        """Make an address known."""
        self._cells[cell.path] = cell

    def forget(self, cell: Cell) -> None:
        """An address is given up."""
        if self._cells.get(cell.path) is cell:
            del self._cells[cell.path]

    def host_at(self, path: str) -> Host | None:
        """The life being led at `path`."""
        cell = self._cells.get(path)
        return cell.host if cell is not None else None

    def resolve(self, cell: Cell) -> Cell:
        """Whoever lives now where `cell` was."""
        return self._cells.get(cell.path, cell)

    def may_switch(self) -> bool:
        """Whether somebody may switch to an actor directly; now and then not, so that others run."""
        if self.switches and self.depth < MAX_DEPTH:
            self.switches -= 1
            return True
        self.switches = self.burst
        return False

    def run_on_loop(self, call: Callable[..., object], *args: Any) -> None:
        """Call now if this is the loop's thread, else have the loop call soon."""
        if get_ident() == self.thread:
            call(*args)
        else:
            self.call_from_thread(call, *args)

    def soon(self, call: Callable[..., object], *args: Any) -> None:
        """Have the loop call soon."""
        if get_ident() == self.thread:
            self.loop.call_soon(call, *args)
        else:
            self.call_from_thread(call, *args)

    def call_from_thread(self, call: Callable[..., object], *args: Any) -> bool:
        """Have the loop call soon; returns False if it is closed and never will."""
        try:
            self.loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            if not self.loop.is_closed():
                raise
            return False
        return True

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and block this thread until it is done.

        Raises:
            BlockingCallError: this thread runs an event loop.
        """
        try:
            refuse_to_block("this call")
        except BaseException:
            coroutine.close()
            raise
        nap = Nap()
        outcome = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        outcome.add_done_callback(nap.wake)
        nap.sleep(None)
        return outcome.result()

    def _tree(self, cell: Cell) -> Iterator[Cell]:
        yield cell
        if cell.host is not None:
            for child in cell.host.children.values():
                yield from self._tree(child)


async def _pause() -> None:
    await asyncio.sleep(0)


async def _draw(scheduler: Scheduler) -> None:
    turn = scheduler.create_waiter()
    turn.set_result(None)
    await turn


def _nobody() -> Never:
    msg = "nobody lives there"
    raise ChildSpecError(msg)


_NOBODY = ChildSpec(name="nobody", factory=_nobody)

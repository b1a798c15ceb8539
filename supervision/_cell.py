"""Cells: one per address. A cell outlives the actors that live in it, and keeps their mail meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self

from openengine_sidecar.messages.signals import Address, Cause, CauseKind, Drain, Signal, Terminated
from openengine_sidecar.supervision._clock import INFINITY, within
from openengine_sidecar.supervision._counters import Count
from openengine_sidecar.supervision._dead_letters import DeadReason
from openengine_sidecar.supervision._inbox import CLOSED, Inbox, Notice
from openengine_sidecar.supervision._ref import Ref
from openengine_sidecar.supervision._spec import ChildSpec
from openengine_sidecar.supervision._status import ActorState, ActorStatus
from openengine_sidecar.supervision.errors import ActorGoneError, NotReadyError, StartError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._host import Host
    from openengine_sidecar.supervision._system import ActorSystem

NEVER = Cause(CauseKind.NEVER_LIVED, "nobody ever lived there")


class Owner(Protocol):
    """Whoever a cell belongs to: the life of its parent, or the system itself."""

    def hear(self, cell: Cell, signal: Signal) -> None:
        """Take what the child says: Started, Drained, or Terminated (this life, not yet the address)."""
        ...


class Cell(Inbox):
    """One address: mailbox, spec, and the life that is led there at the moment.

    Attributes:
        owner: who is told of its children's lives.
        host: the life being led, None between lives.
        state: where it is in its life.
        incarnation: which life, counted from 1.
        watchers: hosts that want to hear of the end of this address.
    """

    host: Host | None = None
    incarnation = 0
    born = 0.0
    failure: Cause | None = None
    restarts: deque[float] | None = None
    state = ActorState.WAITING
    traced = False
    end: Cause | None = None
    last_cause = Cause(CauseKind.STOPPED)
    follows = False
    crowd: deque[asyncio.Future[None]] | None = None
    was_ready = False
    _ref: Ref[Any] | None = None
    _watchers: dict[Host, None] | None = None
    _gone: list[Callable[[Cause], object]] | None = None

    def __init__(self, system: ActorSystem, owner: Owner, spec: ChildSpec, path: str) -> None:
        super().__init__(system, path, spec.mailbox)
        self.owner = owner
        self.spec = spec

    @classmethod
    def nowhere(cls, system: ActorSystem, spec: ChildSpec, path: str) -> Self:
        """The cell of an address where nobody has lived yet: closed from the start."""
        cell = cls(system, system, spec, path)
        cell.follows = True
        cell.limit = CLOSED
        cell.closed_because = DeadReason.NEVER_LIVED
        cell.state = ActorState.GONE
        cell.end = NEVER
        return cell

    @property
    def ref(self) -> Ref[Any]:
        """The ref to this address."""
        if self._ref is None:
            self._ref = Ref(self, follows=self.follows)
        return self._ref

    @property
    def address(self) -> Address:
        """Names the present life, or the last one."""
        return Address(self.path, self.incarnation)

    async def start(self) -> None:
        """Begin a life and wait until it is ready.

        Raises:
            Exception: what the factory or `on_start` raised.
            NotReadyError: `on_start` took longer than the ready_timeout; the life is ended.
            StartError: the start was ended from outside.
        """
        host = self.launch()
        host.start_now()
        if not host.ready:
            await self._await_ready(host)
        if not host.ready:
            raise self._start_failure(host)

    def launch(self) -> Host:
        """Begin a life. Raises what the factory raises."""
        self.incarnation += 1
        self.state = ActorState.STARTING
        self.born = self.system.clock.monotonic()
        self.system.counters.add(Count.STARTS if self.incarnation == 1 else Count.RESTARTS)
        try:
            host = self.spec.factory().host_in(self)
        except Exception as error:
            self._failed(Cause.of(error))
            self.state = ActorState.BACKOFF
            raise
        self.host = host
        host.begin()
        return host

    async def _await_ready(self, host: Host) -> None:
        timeout = self.spec.ready_timeout
        if not await within(self.system.clock, host.readiness, timeout):
            host.conclude(Cause(CauseKind.NOT_READY, f"not ready within {timeout:g} s"))
            await self.shut_down()

    def _start_failure(self, host: Host) -> Exception:
        cause = host.outcome
        if isinstance(cause.error, Exception):
            cause.error.add_note(f"while {self.path} was starting")
            return cause.error
        if cause.kind is CauseKind.NOT_READY:
            return NotReadyError(self.path, cause)
        return StartError(self.path, cause)

    async def shut_down(self, by: float = INFINITY) -> None:
        """End the present life, if there is one: ask, wait as long as the spec allows, cancel, wait, abandon.

        Args:
            by: moment at which patience ends even if the spec allows more.
        """
        host = self.host
        if host is not None:
            await host.shut_down(by)

    def life_over(self, host: Host, cause: Cause) -> None:
        """Take the end of a life; the owner decides what becomes of the address."""
        self.host = None
        self.was_ready = host.ready
        self.last_cause = cause
        self.waiter = None
        self.signals.clear()
        self.state = ActorState.BACKOFF
        if not cause.normal:
            self._failed(cause)
        self.owner.hear(self, Terminated(Address(self.path, host.incarnation), cause))

    def _failed(self, cause: Cause) -> None:
        self.failure = cause
        self.system.counters.add(Count.FAILURES)
        self.system.failures.log(self.path, cause)

    def close(self, cause: Cause) -> None:
        """Give the address up for good: bury the mail, tell the watchers."""
        if self.limit < 0:
            return
        self.state = ActorState.GONE
        self.end = cause
        self.seal()
        while self.crowd:
            self._let_in()
        self.system.forget(self)
        terminated = Terminated(self.address, cause)
        for watcher in self._watchers or ():
            watcher.cell.post(Notice(self, terminated))
        self._watchers = None
        for callback in self._gone or ():
            callback(cause)
        self._gone = None

    def add_watcher(self, host: Host) -> None:
        """Send word of the end of this address to `host`; at once if it is gone."""
        if self.end is not None:
            host.cell.post(Notice(self, Terminated(self.address, self.end)))
        elif not host.over:
            if self._watchers is None:
                self._watchers = {}
            self._watchers[host] = None

    def remove_watcher(self, host: Host) -> None:
        """Send it no word."""
        if self._watchers is not None:
            self._watchers.pop(host, None)

    def when_gone(self, callback: Callable[[Cause], object]) -> None:
        """Call `callback(cause)` once the address is gone for good; at once if it is. Loop thread only."""
        if self.end is not None:
            callback(self.end)
            return
        if self._gone is None:
            self._gone = []
        self._gone.append(callback)

    async def wait_gone(self) -> Cause:
        """Wait until the address is gone for good."""
        waiter: asyncio.Future[Cause] = asyncio.get_running_loop().create_future()
        self.when_gone(lambda cause: None if waiter.done() else waiter.set_result(cause))
        return await waiter

    def send_drain(self, drain: Drain) -> None:
        """Tell the life here to drain. Loop thread only.

        Supervisors hear it even while they start, since others of their children may be at work, and so does who is
        draining already: in its on_drain it may not look at its mailbox.
        """
        host = self.host
        if host is not None and (host.supervises or host.draining is not None):
            host.receive_drain(drain)
        else:
            self.post(drain)

    def count_restart(self, window: float) -> None:
        """Remember a restart for as long as it counts."""
        if self.restarts is None:
            self.restarts = deque()
        self.restarts.append(self.system.clock.monotonic() + window)

    def recent_restarts(self) -> int:
        """Restarts that still count."""
        restarts, now = self.restarts, self.system.clock.monotonic()
        while restarts and restarts[0] <= now:
            restarts.popleft()
        return len(restarts or ())

    def trace(self, *, enabled: bool) -> None:
        """Log every message, or no longer."""
        self.traced = enabled
        self._look_closely()

    async def squeeze_in(self, item: Any) -> None:
        """Put an item in as soon as there is room; whoever waits longest comes first. Loop thread only.

        Raises:
            ActorGoneError: the mailbox is closed.
        """
        my_turn = not self.crowd
        while self.limit >= 0 and not (my_turn and len(self.mail) < self.mailbox.capacity):
            await self._stand_in_line(in_front=my_turn)
            my_turn = True
        if self.limit < 0:
            raise ActorGoneError(self.path)
        self.put(item)

    async def _stand_in_line(self, *, in_front: bool) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.crowd is None:
            self.crowd = deque()
        if in_front:  # it had its turn, but somebody who does not wait in line was faster
            self.crowd.appendleft(place)
        else:
            self.crowd.append(place)
        self._look_closely()
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self.crowd.remove(place)
            else:
                self._let_in()
            raise

    def let_in(self) -> None:
        """A message was taken out: whoever waits longest may put one in."""
        self.system.run_on_loop(self._let_in)

    def _let_in(self) -> None:
        if self.crowd:
            place = self.crowd.popleft()
            if not place.done():
                place.set_result(None)
        if not self.crowd:
            self._look_closely()

    def _look_closely(self) -> None:
        if self.host is not None:
            self.host.look_closely()

    def status(self) -> ActorStatus:
        """What a look at this address shows."""
        host = self.host
        now = self.system.clock.monotonic()
        return ActorStatus(
            path=self.path,
            kind=type(host.actor).__name__ if host is not None else "",
            state=self.state,
            incarnation=self.incarnation,
            mailbox=len(self.mail),
            high_water=self.high_water,
            restarts=self.recent_restarts(),
            last_failure=str(self.failure or ""),
            age=now - self.born if host is not None else 0.0,
            traced=self.traced,
        )

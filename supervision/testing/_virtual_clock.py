"""A clock that stands still: time moves when it is told to, or jumps on its own once everybody waits for it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Final

THREAD_POLL: Final = 0.0005
QUIET_ROUNDS: Final = 2


class VirtualTimer:
    """A timer of a virtual clock."""

    __slots__ = ("_args", "_callback", "cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._callback = callback
        self._args = args
        self.cancelled = False

    def cancel(self) -> None:
        """Call it off."""
        self.cancelled = True

    def fire(self) -> None:
        """Do it, unless it was called off."""
        if not self.cancelled:
            self.cancelled = True
            self._callback(*self._args)


class VirtualClock:
    """A `Clock` for tests, on asyncio's own event loops.

    Time moves when nothing else can: every task waits for something, and no thread-hosted actor is at work.

    Args:
        now: what the clock shows at first.
        auto_jump: move on to the next timer by itself whenever nothing else can happen.
    """

    def __init__(self, *, now: float = 0.0, auto_jump: bool = False) -> None:
        self._now = now
        self._auto_jump = auto_jump
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._serial = itertools.count()
        self._busy: list[Callable[[], bool]] = []
        self._settling: list[asyncio.Future[None]] = []
        self._ticking = False
        self._quiet = 0

    def monotonic(self) -> float:
        """Now."""
        return self._now

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> VirtualTimer:
        """Call `callback(*args)` at `when`; see `Clock.call_at`."""
        timer = VirtualTimer(callback, args)
        if when <= self._now:
            asyncio.get_running_loop().call_soon(timer.fire)
        else:
            heapq.heappush(self._timers, (when, next(self._serial), timer))
            self._keep_ticking()
        return timer

    async def sleep(self, delay: float) -> None:
        """Sleep in virtual time."""
        if delay <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_at(self._now + delay, _finish, waiter)
        try:
            await waiter
        finally:
            timer.cancel()

    def attach(self, busy: Callable[[], bool]) -> None:
        """Do not move time while `busy()`."""
        self._busy.append(busy)

    def run_freely(self) -> None:
        """From now on, jump to the next timer whenever nothing else can happen."""
        self._auto_jump = True
        self._keep_ticking()

    @property
    def next_timer(self) -> float | None:
        """When the next timer fires, None without one."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    async def settle(self) -> None:
        """Let everything happen that can happen without time passing."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling.append(waiter)
        self._keep_ticking()
        await waiter

    async def advance(self, seconds: float) -> None:
        """Let time pass; timers fire in order, each at its own moment, and everything settles in between."""
        target = self._now + seconds
        await self.settle()
        while (when := self.next_timer) is not None and when <= target:
            self._jump(when)
            await self.settle()
        self._now = target

    async def advance_to_next_timer(self) -> float:
        """Let time pass until the next timer has fired; returns the seconds that took, 0 without a timer."""
        await self.settle()
        before, when = self._now, self.next_timer
        if when is not None:
            self._jump(when)
            await self.settle()
        return self._now - before

    def _jump(self, when: float) -> None:
        self._now = when
        while (due := self.next_timer) is not None and due <= when:
            heapq.heappop(self._timers)[2].fire()

    def _keep_ticking(self) -> None:
        if not self._ticking and (self._settling or (self._auto_jump and self._timers)):
            loop = asyncio.get_running_loop()
            _ready(loop)
            self._ticking = True
            self._quiet = 0
            loop.call_soon(self._tick)

    def _tick(self) -> None:
        """Runs in every round of the loop until nobody needs to know any more whether it is quiet."""
        loop = asyncio.get_running_loop()
        self._ticking = False
        if any(busy() for busy in self._busy):
            self._quiet = 0
            self._ticking = True
            loop.call_later(THREAD_POLL, self._tick)
            return
        self._quiet = self._quiet + 1 if not _ready(loop) else 0
        if self._quiet >= QUIET_ROUNDS:
            self._on_quiet()
        if self._settling or (self._auto_jump and self.next_timer is not None):
            self._ticking = True
            loop.call_soon(self._tick)

    def _on_quiet(self) -> None:
        self._quiet = 0
        if self._settling:
            settled, self._settling = self._settling, []
            for waiter in settled:
                _finish(waiter)
        elif self._auto_jump and (when := self.next_timer) is not None:
            self._jump(when)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _ready(loop: asyncio.AbstractEventLoop) -> deque[Any]:
    """What the loop would run next. asyncio has no public way to ask; its own loops have had this one for ever."""
    ready: deque[Any] | None = getattr(loop, "_ready", None)
    if ready is None:
        msg = f"a virtual clock needs one of asyncio's own event loops, not {type(loop).__name__}"
        raise TypeError(msg)
    return ready

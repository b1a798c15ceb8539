"""Time, injected: every delay and every deadline of the kit is measured on one monotonic clock."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

INFINITY: Final = math.inf


class TimerHandle(Protocol):
    """Something that will happen, and can be called off."""

    def cancel(self) -> None:
        """Call it off; harmless once it happened."""
        ...


class Clock(Protocol):
    """A monotonic clock and its timers. Times are seconds since an arbitrary zero."""

    def monotonic(self) -> float:
        """Now. Safe from any thread."""
        ...

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        """Call `callback(*args)` on the loop's thread at `when`, or at once if that has passed. Loop thread only."""
        ...

    async def sleep(self, delay: float) -> None:
        """Wait `delay` seconds of this clock; zero or less only lets others run."""
        ...

    def attach(self, busy: Callable[[], bool]) -> None:
        """Name a condition under which time may not be moved by hand; a clock that runs by itself ignores it."""
        ...


class LoopClock:
    """The clock of an event loop: real time."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        # asyncio's own loops tell this time, too, only in more words.
        ordinary = isinstance(self._loop, asyncio.BaseEventLoop) and type(self._loop).time is asyncio.BaseEventLoop.time
        self.monotonic = time.monotonic if ordinary else self._loop.time

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        """Call `callback(*args)` at `when`; see `Clock.call_at`."""
        return self._loop.call_at(when, callback, *args)

    async def sleep(self, delay: float) -> None:
        """Sleep in real time."""
        await asyncio.sleep(delay)

    def attach(self, busy: Callable[[], bool]) -> None:
        """Nothing to do: nobody moves real time."""


class Limit:
    """A deadline that can only come closer: what a second drain request may do to the first."""

    def __init__(self, clock: Clock, deadline: float) -> None:
        self._clock = clock
        self._wake: Callable[[], None] | None = None
        self._timer: TimerHandle | None = None
        self.deadline = deadline

    def shorten(self, deadline: float) -> None:
        """Move the deadline closer; a later one is ignored."""
        if deadline >= self.deadline:
            return
        self.deadline = deadline
        if self._wake is not None:
            self._arm(self._wake)

    async def wait(self, future: asyncio.Future[Any]) -> bool:
        """Wait until `future` is done, or the deadline passes; the future itself is left alone.

        Returns:
            Whether the future is done.
        """
        if future.done():
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: object = None) -> None:
            if not waiter.done():
                waiter.set_result(None)

        future.add_done_callback(wake)
        self._wake = wake
        self._arm(wake)
        try:
            await waiter
        finally:
            future.remove_done_callback(wake)
            self._disarm()
            self._wake = None
        return future.done()

    def _arm(self, wake: Callable[[], None]) -> None:
        self._disarm()
        if self.deadline != INFINITY:
            self._timer = self._clock.call_at(self.deadline, wake)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def within(clock: Clock, future: asyncio.Future[Any], timeout: float) -> bool:
    """Wait at most `timeout` seconds for `future`, which is left alone; returns whether it is done."""
    return await Limit(clock, clock.monotonic() + timeout).wait(future)

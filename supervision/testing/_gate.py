"""Gates: where a test makes actors of either kind wait for it, and waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import nullcontext

from openengine_sidecar.supervision._current import Nap
from openengine_sidecar.supervision._thread_host import Cancellation
from openengine_sidecar.supervision.errors import ThreadCancelledError

PATIENCE = 30.0


class Gate:
    """Holds whoever comes along until it is opened. Actors wait by `await gate.passage()`, or by `gate.block()`.

    The test waits, by `await gate.reached()`, until they have come; a virtual clock does not mistake them for busy.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self._arrived = 0
        self._held: list[Callable[[], None]] = []
        self._awaited: list[tuple[int, Callable[[], None]]] = []

    async def passage(self) -> None:
        """Wait, on an event loop, until the gate is open."""
        waiter, wake = _sleeper()
        if not self._enter(wake):
            await waiter

    def block(self, cancelled: Cancellation | None = None) -> None:
        """Wait, on a thread without an event loop, until the gate is open.

        Args:
            cancelled: what ends the wait early.

        Raises:
            ThreadCancelledError: the actor has to give up waiting.
            TimeoutError: nobody opened the gate, for 30 real seconds.
        """
        nap = Nap()
        if self._enter(nap.wake):
            return
        with cancelled.calling(nap.wake) if cancelled is not None else nullcontext():
            woken = nap.sleep(PATIENCE)
        if not woken:
            msg = "nobody opened the gate"
            raise TimeoutError(msg)
        if not self._open:
            msg = "cancelled at the gate"
            raise ThreadCancelledError(msg)

    async def reached(self, count: int = 1) -> None:
        """Wait until `count` visitors have come, counted from the making of the gate."""
        waiter, wake = _sleeper()
        with self._lock:
            if self._arrived >= count:
                return
            self._awaited.append((count, wake))
        await waiter

    def open(self) -> None:
        """Hold nobody any more; any thread."""
        with self._lock:
            self._open = True
            held, self._held = self._held, []
        for wake in held:
            wake()

    def _enter(self, wake: Callable[[], None]) -> bool:
        """Count a visitor; returns whether the gate is open to it."""
        with self._lock:
            self._arrived += 1
            expecting = [expect for count, expect in self._awaited if count == self._arrived]
            if not self._open:
                self._held.append(wake)
        for expect in expecting:
            expect()
        return self._open


def _sleeper() -> tuple[asyncio.Future[None], Callable[[], None]]:
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def wake() -> None:
        loop.call_soon_threadsafe(finish)

    return waiter, wake

"""Gates: where a test makes actors of either kind wait for it, and waits for them."""

from __future__ import annotations

import asyncio
import threading

from openengine_sidecar.supervision._current import asleep


class Gate:
    """Holds whoever comes along until it is opened. Actors wait by `await gate.passage()`, or `gate.block()`.

    The test waits, by `await gate.reached()`, until they have come; a virtual clock does not mistake them for busy.
    """

    def __init__(self) -> None:
        self._open = threading.Event()
        self._lock = threading.Lock()
        self._arrived = 0
        self._waiters: list[tuple[int | None, asyncio.Future[None]]] = []

    @property
    def is_open(self) -> bool:
        """Whether it holds nobody any more."""
        return self._open.is_set()

    async def passage(self) -> None:
        """Wait, on an event loop, until the gate is open."""
        waiter = self._arrive(None)
        if waiter is not None:
            await waiter

    def block(self, timeout: float = 30.0) -> None:
        """Wait, on a thread without an event loop, until the gate is open.

        Raises:
            TimeoutError: nobody opened it, for as many real seconds.
        """
        self._arrive(None, here=False)
        with asleep():
            passed = self._open.wait(timeout)
        if not passed:
            msg = "nobody opened the gate"
            raise TimeoutError(msg)

    async def reached(self, count: int = 1) -> None:
        """Wait until `count` visitors have come, counted from the making of the gate."""
        with self._lock:
            if self._arrived >= count:
                return
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((count, waiter))
        await waiter

    def open(self) -> None:
        """Hold nobody any more; any thread."""
        with self._lock:
            self._open.set()
            waiting = [waiter for count, waiter in self._waiters if count is None]
            self._waiters = [entry for entry in self._waiters if entry[0] is not None]
        for waiter in waiting:
            _wake(waiter)

    def _arrive(self, count: int | None, *, here: bool = True) -> asyncio.Future[None] | None:
        with self._lock:
            self._arrived += 1
            expecting = [waiter for wanted, waiter in self._waiters if wanted is not None and wanted <= self._arrived]
            waiter: asyncio.Future[None] | None = None
            if here and not self._open.is_set():
                waiter = asyncio.get_running_loop().create_future()
                self._waiters.append((count, waiter))
        for expected in expecting:
            _wake(expected)
        return waiter


def _wake(waiter: asyncio.Future[None]) -> None:
    def finish() -> None:
        if not waiter.done():
            waiter.set_result(None)

    waiter.get_loop().call_soon_threadsafe(finish)

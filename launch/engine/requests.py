"""The requests an engine holds: ids in use, the queue for a place to run, aborts, pacing."""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from itertools import count
from typing import Any

from openengine_sidecar.launch.engine.prefix import Hold
from openengine_sidecar.launch.engine.stats import RequestRecord

REMEMBERED = 65_536


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class ActiveRequest:
    """One accepted request, from acceptance to the end of its stream.

    Attributes:
        hold: what it holds of the prefix cache.
        running: whether it has a place to run; until then it is queued.
        deaf: whether aborts change nothing, which a fault may want.
    """

    def __init__(self, record: RequestRecord, hold: Hold) -> None:
        self.record = record
        self.hold = hold
        self.running = False
        self.deaf = False
        self._abort_asked = False
        self._due = 0.0
        self._waiter: asyncio.Future[None] | None = None

    @property
    def aborted(self) -> bool:
        """Whether the generation is to end now."""
        return self._abort_asked and not self.deaf

    def abort(self) -> bool:
        """Ask the generation to end; it notices at once, even between two tokens. Return whether this is news."""
        news = not self._abort_asked
        self._abort_asked = True
        self._wake()
        return news

    async def pace(self, delay: float) -> None:
        """Wait until `delay` seconds after the last call's due time, or until aborted.

        Time lost elsewhere is caught up, so that the rate holds on a busy machine.
        """
        now = asyncio.get_running_loop().time()
        self._due = max(self._due or now, now - delay) + delay
        if self._due > now:
            await self._rest_until(self._due)

    async def rest(self, seconds: float | None) -> None:
        """Wait for so many seconds (None: for ever), or until aborted."""
        await self._rest_until(None if seconds is None else asyncio.get_running_loop().time() + seconds)

    async def outlast(self, work: asyncio.Future[Any]) -> bool:
        """Wait for other work to end, or until aborted; return whether it ended."""
        work.add_done_callback(lambda _: self._wake())
        while not (work.done() or self.aborted):
            await self._wait(None)
        return work.done()

    async def turn(self) -> None:
        """Wait until there is a place to run, or until aborted."""
        while not (self.running or self.aborted):
            await self._wait(None)

    def admit(self) -> None:
        """Give the request a place to run."""
        self.running = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            _wake(self._waiter)

    async def _rest_until(self, due: float | None) -> None:
        loop = asyncio.get_running_loop()
        while not self.aborted and (due is None or due > loop.time()):
            await self._wait(due)

    async def _wait(self, due: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = None if due is None else loop.call_at(due, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()


class RequestTable:
    """Which ids are in use, which were, and who may run.

    An id is freed by the end of its stream, never by an abort, so that a re-used id cannot slip in while the old
    request drains.
    """

    def __init__(self, places: int) -> None:
        self.active: dict[str, ActiveRequest] = {}
        self.running = 0
        self._places = places
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._queue: list[tuple[int, int, ActiveRequest]] = []
        self._arrivals = count()

    @property
    def queued(self) -> int:
        """Number of accepted requests that wait for a place to run."""
        return len(self.active) - self.running

    def add(self, request: ActiveRequest) -> None:
        """Take an id into use; the caller has made sure that it is free."""
        self.active[request.record.request_id] = request

    def ended(self, request_id: str) -> bool:
        """Tell whether a request of this id was here and is over."""
        return request_id in self._ended

    async def run(self, request: ActiveRequest, priority: int) -> None:
        """Wait for a place to run, or for an abort; the larger priority goes first, then the earlier arrival."""
        if self.running < self._places:
            self._admit(request)
            return
        heapq.heappush(self._queue, (-priority, next(self._arrivals), request))
        await request.turn()

    def remove(self, request: ActiveRequest) -> None:
        """Free the id and the place to run."""
        request_id = request.record.request_id
        del self.active[request_id]
        self._ended[request_id] = None
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
        if request.running:
            self.running -= 1
            self._pass_on()

    def _admit(self, request: ActiveRequest) -> None:
        self.running += 1
        request.admit()

    def _pass_on(self) -> None:
        while self._queue and self.running < self._places:
            _, _, request = heapq.heappop(self._queue)
            if not request.aborted and self.active.get(request.record.request_id) is request:
                self._admit(request)

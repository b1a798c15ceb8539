"""One rank's events: numbered from 1, remembered for a while, handed to whoever listens."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from openengine_sidecar.launch.engine.kv.encoding import EventWriter
from openengine_sidecar.launch.engine.prefix import Block, PrefixCache
from openengine_sidecar.proto.rev2 import kv_pb2

Batch = kv_pb2.KvEventBatch


class Listener:
    """What one subscriber has not heard yet. One that is too slow is cut off: `overrun`."""

    def __init__(self, limit: int) -> None:
        self.overrun = False
        self._limit = limit
        self._waiting: deque[Batch] = deque()
        self._woken = asyncio.Event()

    def tell(self, batch: Batch) -> None:
        """Hand over a batch."""
        if len(self._waiting) >= self._limit:
            self.overrun = True
        else:
            self._waiting.append(batch)
        self._woken.set()

    async def next(self) -> Batch | None:
        """Wait for the next batch; None once it is overrun and has heard what it was handed before."""
        while not self._waiting:
            if self.overrun:
                return None
            self._woken.clear()
            await self._woken.wait()
        return self._waiting.popleft()


class KvFeed:
    """Turns the changes of one rank's cache into batches, one a step.

    Args:
        rank: the data-parallel rank.
        writer: writes the events.
        keep: batches remembered for replay.

    Attributes:
        last: number of the newest batch, 0 before the first.
        history: the newest batches, oldest first.
    """

    def __init__(self, rank: int, writer: EventWriter, *, keep: int) -> None:
        self.rank = rank
        self.last = 0
        self.history: deque[Batch] = deque(maxlen=keep)
        self._writer = writer
        self._listeners: dict[Listener, None] = {}

    def changed(self, removed: Sequence[Block], stored: Sequence[Block]) -> None:
        """Publish one step of the cache."""
        self._publish(list(self._writer.changed(removed, stored)))

    def clear(self, cache: PrefixCache) -> None:
        """Empty the cache of what is not held, and say so; what is held is told again."""
        cache.clear()
        cleared = kv_pb2.KvEvent(all_blocks_cleared=kv_pb2.AllBlocksCleared())
        self._publish([cleared, *self._writer.snapshot(cache)])

    def restart(self) -> None:
        """Number batches from 1 again, as an engine does that came back under the same name."""
        self.last = 0
        self.history.clear()

    def snapshot(self, cache: PrefixCache) -> Batch | None:
        """What the cache holds, under the number of the newest batch; None before the first."""
        return self._batch(list(self._writer.snapshot(cache))) if self.last else None

    @contextmanager
    def heard_by(self, listener: Listener) -> Generator[None]:
        """Let a listener hear everything from now on."""
        self._listeners[listener] = None
        try:
            yield
        finally:
            del self._listeners[listener]

    def _publish(self, events: list[kv_pb2.KvEvent]) -> None:
        self.last += 1
        batch = self._batch(events)
        self.history.append(batch)
        for listener in self._listeners:
            listener.tell(batch)

    def _batch(self, events: list[kv_pb2.KvEvent]) -> Batch:
        return Batch(
            sequence_number=self.last,
            timestamp_unix_nanos=time.time_ns(),
            data_parallel_rank=self.rank,
            events=events,
        )

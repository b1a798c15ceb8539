"""Following one rank of one engine instance, whatever happens to its subscriptions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from openengine_sidecar.actors.kv.attempts import Attempt, Attempts, Past
from openengine_sidecar.actors.kv.sources import RankSource
from openengine_sidecar.messages.engine.kv import KvBatch
from openengine_sidecar.messages.errors import EngineLostError
from openengine_sidecar.proto.dialect import EngineCallError, KvEventStream
from openengine_sidecar.supervision import Backoff, Clock

Open = Callable[[Attempt], KvEventStream]


class Hearer(Protocol):
    """Who follows."""

    async def begun(self, past: Past) -> None:
        """A subscription begins: nothing that was heard before holds any more."""
        ...

    async def heard(self, batch: KvBatch) -> bool:
        """Take a batch in; whether batches before it are missing."""
        ...

    async def ended(self, why: str, *, for_good: bool = False) -> None:
        """Nothing is heard any more, for a while or until another engine instance comes."""
        ...


class Follower:
    """Subscribes, and again when a subscription ends or has a gap that another one would repair.

    A subscription that ends is followed by another after a pause, which grows while none lasts. The first gap is
    repaired at once, one that follows soon after a pause, so that an engine that always has gaps keeps nobody busy.

    Args:
        source: where to listen.
        open_stream: prepares a subscription; raises EngineLostError where no engine is attached.
        hearer: who follows.
        clock: of the pauses.
        backoff: how long they are.
        rng: their jitter.
    """

    def __init__(
        self,
        source: RankSource,
        open_stream: Open,
        hearer: Hearer,
        *,
        clock: Clock,
        backoff: Backoff,
        rng: random.Random,
    ) -> None:
        self._attempts = Attempts(source)
        self._open = open_stream
        self._hearer = hearer
        self._clock = clock
        self._backoff = backoff
        self._rng = rng
        self._tries = 0
        self._heard = False
        self._last: int | None = None
        self._missing: int | None = None

    async def run(self) -> None:
        """Follow; returns only when there is no way to listen."""
        while not self._attempts.hopeless:
            began = self._clock.monotonic()
            gap = await self._round()
            if self._clock.monotonic() - began >= self._backoff.reset_after:
                self._tries = 0
            if not (gap and self._tries == 0):
                await self._clock.sleep(self._backoff.delay(self._tries, self._rng))
            self._tries += 1
        await self._hearer.ended("the engine offers no subscription to its KV events", for_good=True)

    async def _round(self) -> bool:
        """Listen in the best way there is, until that ends; whether it ended with a gap."""
        why = "no subscription was accepted"
        for attempt in self._attempts.ways(self._missing):
            try:
                if await self._listen(attempt):
                    return True
                why = "the engine closed the subscription"
            except EngineLostError as error:
                why = str(error)
            except EngineCallError as error:
                why = str(error)
                if not self._heard and self._attempts.refused(attempt, error.status):
                    continue
            break
        await self._hearer.ended(why)
        return False

    async def _listen(self, attempt: Attempt) -> bool:
        """Listen until the engine closes the stream, or a gap is worth another subscription."""
        stream = self._open(attempt)
        self._heard = False
        self._last = None
        await self._hearer.begun(attempt.past)
        try:
            while batches := await stream.next_batches():
                self._heard = True
                for batch in batches:
                    if await self._is_gap(batch) and self._attempts.repairs(attempt):
                        return True
        finally:
            stream.cancel()
        return False

    async def _is_gap(self, batch: KvBatch) -> bool:
        gap = await self._hearer.heard(batch)
        if gap:
            self._missing = None if self._last is None else self._last + 1
        self._last = batch.sequence if self._last is None else max(self._last, batch.sequence)
        return gap

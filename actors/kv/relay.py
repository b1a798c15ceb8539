"""One rank between an engine's subscription and the event plane: state, counts, and answers to routers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from openengine_sidecar.actors.events.plane import Outlet
from openengine_sidecar.actors.kv.attempts import Past
from openengine_sidecar.actors.kv.outcomes import Outcome
from openengine_sidecar.actors.kv.rank import Fed, RankFeed
from openengine_sidecar.messages.dynamo.control import Codec
from openengine_sidecar.messages.dynamo.events import RecoveryRequest, RouterEvent, encode_answer
from openengine_sidecar.messages.engine.kv import KvBatch

if TYPE_CHECKING:
    from loguru import Logger

LARGE: Final = 4096
"""Blocks from which on an answer to a router is put together in a thread: some 10 ms of work."""

TOO_MANY_REPEATS: Final = 32
"""So many batches in a row that were heard before: the engine has begun to count anew, under the same name."""


class Told(Protocol):
    """Hears whether the rank is followed, and how or why not."""

    def __call__(self, detail: str, *, following: bool) -> None:
        """Take it in; must not block."""
        ...


class RankRelay:
    """Takes batches in and tells routers what they come to. While a large answer is put together, batches wait.

    Args:
        feed: the rank's state, over all subscriptions.
        outlet: where router events go.
        log: of the actor it works for.
        told: hears of subscriptions.

    Attributes:
        instance: the engine instance that is followed, empty where it is not known.
        missing: batches that did not arrive, until somebody takes note.
    """

    def __init__(self, feed: RankFeed, outlet: Outlet[RouterEvent], log: Logger, told: Told) -> None:
        self.instance = ""
        self.missing = 0
        self._feed = feed
        self._outlet = outlet
        self._log = log
        self._told = told
        self._counts: Counter[str] = Counter()
        self._complained: set[str] = set()
        self._repeats = 0
        self._answering: asyncio.Future[None] | None = None

    async def begun(self, past: Past) -> None:
        """A subscription begins; see Hearer."""
        await self._free()
        self._counts[Outcome.SUBSCRIBED] += 1
        self._complained.clear()
        self._outlet.tell(self._feed.subscribed())
        self._told(past.value, following=True)

    async def heard(self, batch: KvBatch) -> bool:
        """Take a batch in; see Hearer."""
        if self._answering is not None:
            await self._free()
        fed = self._feed.take(batch, self.instance)
        self._outlet.tell(fed.events)
        self._counts.update(fed.outcomes)
        if fed.problem:
            self._complain(fed)
        if fed.lost:
            self.missing += fed.missing
            self._log.warning("batches of KV events before {} are missing", batch.sequence)
        return fed.lost or self._counts_anew(fed.outcomes)

    async def ended(self, why: str, *, for_good: bool = False) -> None:
        """Nothing is heard any more; see Hearer."""
        await self._free()
        self._counts[Outcome.ENDED] += 1
        self._outlet.tell(self._feed.clear())
        self._log.log("ERROR" if for_good else "WARNING", "KV events: {}", why)
        self._told(why, following=False)

    async def cleared(self, why: str) -> None:
        """The engine is gone: the rank holds nothing."""
        await self._free()
        self._outlet.tell(self._feed.clear())
        self._told(why, following=False)

    def repeat(self) -> None:
        """Say the newest event again: who heard it passes over it, who missed it finds out."""
        newest = self._feed.log.newest
        if newest is not None:
            self._outlet.tell([newest])

    async def answer(self, request: RecoveryRequest, codec: Codec) -> msgspec.Raw:
        """Answer a router that missed events."""
        await self._free()
        if self._feed.index.size < LARGE:
            return encode_answer(self._feed.answer(request), codec)
        self._answering = asyncio.get_running_loop().create_future()
        try:
            return await asyncio.to_thread(lambda: encode_answer(self._feed.answer(request), codec))
        finally:
            self._answering.set_result(None)
            self._answering = None

    def take_counts(self) -> dict[str, int]:
        """What became of events since this was last asked, without zeros."""
        counts, self._counts = self._counts, Counter()
        counts.update(self._outlet.counts)
        self._outlet.counts.clear()
        return {str(outcome): number for outcome, number in counts.items() if number}

    async def _free(self) -> None:
        while self._answering is not None:
            await asyncio.wait((self._answering,))

    def _counts_anew(self, outcomes: Sequence[Outcome]) -> bool:
        self._repeats = self._repeats + 1 if outcomes == (Outcome.REPEATED_BATCH,) else 0
        if self._repeats < TOO_MANY_REPEATS:
            return False
        self._log.warning("{} batches of KV events in a row were heard before: the engine counts anew", self._repeats)
        self._repeats = 0
        self._counts[Outcome.RESTART] += 1
        self._outlet.tell(self._feed.subscribed())
        return True

    def _complain(self, fed: Fed) -> None:
        """Say what is wrong, each kind once in a subscription."""
        rule = fed.outcomes[-1]
        if rule not in self._complained:
            self._complained.add(rule)
            self._log.warning("KV events break a rule ({}): {}", rule.value, fed.problem)

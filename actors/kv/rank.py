"""One rank from end to end: an engine's batches in, events for routers out. No I/O, no clock, no exception."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from openengine_sidecar.actors.kv.index import RankIndex
from openengine_sidecar.actors.kv.normalise import Clear, Invalid, Normaliser, Operation, Remove, Store
from openengine_sidecar.actors.kv.outcomes import Outcome
from openengine_sidecar.actors.kv.pieces import pieces
from openengine_sidecar.actors.kv.recovery import EventLog
from openengine_sidecar.actors.kv.sequence import SequenceLaw, Step
from openengine_sidecar.messages.dynamo.events import (
    CLEARED,
    RecoveryAnswer,
    RecoveryRequest,
    RouterEvent,
    StorageTier,
)
from openengine_sidecar.messages.engine.kv import KvBatch

DEFAULT_BLOCKS = 262_144
"""Blocks in a tier, where the engine does not say how many it has: some 130 MB when full."""

MOST_IN_AN_EVENT = 2048
"""Blocks that one event names at most, so that it fits into a message of the event plane."""

DEFAULT_WINDOW = 16_384
"""Blocks named by the events that can be sent again."""


class Fed(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch comes to.

    Attributes:
        events: to be published, in order.
        outcomes: to be counted, each once.
        missing: how many batches before this one are missing: a snapshot or a replay would fill the rank again.
        problem: for the operator, where the engine broke a rule; else empty.
    """

    events: Sequence[RouterEvent] = ()
    outcomes: Sequence[Outcome]
    missing: int = 0
    problem: str = ""

    @property
    def lost(self) -> bool:
        """Whether batches are missing."""
        return self.missing > 0


class RankFeed:
    """State of one rank, over all its subscriptions.

    Whatever makes the rank's blocks doubtful (a gap, an invalid batch, another engine instance, the end of a
    subscription) clears this rank alone: `cleared` is per rank for routers.

    Args:
        worker_id: the instance id.
        rank: the data-parallel rank.
        block_size: tokens in a block, as the model card says.
        blocks: most blocks in a tier.
        window: see `EventLog`.

    Attributes:
        index: what the rank holds.
        log: what was published of it.
    """

    def __init__(
        self,
        worker_id: int,
        rank: int,
        block_size: int,
        *,
        blocks: int = DEFAULT_BLOCKS,
        window: int = DEFAULT_WINDOW,
    ) -> None:
        self.index = RankIndex(blocks)
        self.log = EventLog(worker_id, rank, window=window)
        self._normaliser = Normaliser(block_size)
        self._law = SequenceLaw()

    def subscribed(self, start: int | None = None) -> list[RouterEvent]:
        """A new subscription begins, at batch `start` where that was asked for and granted; see `clear`."""
        self._law = SequenceLaw(start)
        return self.clear()

    def clear(self) -> list[RouterEvent]:
        """Forget the rank; returns what to publish, nothing where routers know of no block."""
        self._normaliser.reset()
        return self._emptied()

    def take(self, batch: KvBatch, instance: str = "") -> Fed:
        """Take one batch in.

        Args:
            batch: as it came.
            instance: the engine instance that is known to run now, empty where it is not known.
        """
        if batch.rank != self.log.rank:
            return self._foreign(batch)
        step = self._law.observe(batch.sequence, instance)
        counted, missing = _COUNTED[step], self._law.missing
        if step is Step.REPEAT:
            return Fed(outcomes=counted)
        events = self.clear() if step.clears else []
        translated = self._normaliser.translate(batch.events)
        if isinstance(translated, Invalid):
            events += self.clear()
            return Fed(events=events, outcomes=(*counted, translated.rule), missing=missing, problem=translated.problem)
        for operation in translated.operations:
            events += self._operate(operation)
        return Fed(events=events, outcomes=(*counted, *translated.outcomes), missing=missing)

    def answer(self, request: RecoveryRequest) -> RecoveryAnswer:
        """Answer a router that missed events."""
        return self.log.answer(request, self.index)

    def _foreign(self, batch: KvBatch) -> Fed:
        """Another rank's batch: whose number it carries is anyone's guess, so the next one may carry any."""
        self._law = SequenceLaw()
        problem = f"a batch of rank {batch.rank} on the subscription of rank {self.log.rank}"
        return Fed(events=self.clear(), outcomes=(Outcome.WRONG_RANK,), problem=problem)

    def _operate(self, operation: Operation) -> list[RouterEvent]:
        match operation:
            case Store(tier, parent, blocks):
                changes = self.index[tier].store(parent, blocks)
            case Remove(tier, hashes):
                changes = self.index[tier].remove(hashes)
            case Clear():
                return self._emptied()
        return [self.log.append(tier, piece) for change in changes for piece in pieces(change, MOST_IN_AN_EVENT)]

    def _emptied(self) -> list[RouterEvent]:
        return [self.log.append(StorageTier.DEVICE, CLEARED)] if self.index.clear() else []


_COUNTED: Mapping[Step, tuple[Outcome, ...]] = {
    Step.NEXT: (),
    Step.REPEAT: (Outcome.REPEATED_BATCH,),
    Step.GAP: (Outcome.GAP,),
    Step.RESTART: (Outcome.RESTART,),
}

"""What a rank published, numbered, and the answers to routers that missed some of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from msgspec import UNSET

from openengine_sidecar.actors.kv.index import RankIndex
from openengine_sidecar.messages.dynamo.events import (
    CLEARED,
    CacheEvent,
    Change,
    EventData,
    InvalidRange,
    RecentEvents,
    RecoveryAnswer,
    RecoveryRequest,
    RouterEvent,
    StorageTier,
    TooNew,
    TreeDump,
)

RECOVERY = "recovery"


class EventLog:
    """One rank's stream of events: ids without a hole from 1 on, and a window of the newest.

    Ids must outlive every connection: routers take an id that they have passed for an old event, and drop it.

    Args:
        worker_id: the instance id.
        rank: the data-parallel rank.
        window: size of the window, in blocks named by its events (at least one each); the newest event always stays.
    """

    def __init__(self, worker_id: int, rank: int, *, window: int) -> None:
        self.worker_id = worker_id
        self.rank = rank
        self.last_id = 0
        """Id of the newest event, 0 before the first."""
        self._window = window
        self._recent: deque[RouterEvent] = deque()
        self._weight = 0

    @property
    def newest(self) -> RouterEvent | None:
        """The newest event, None before the first."""
        return self._recent[-1] if self._recent else None

    def append(self, tier: StorageTier, data: EventData) -> RouterEvent:
        """Number a change and keep it."""
        self.last_id += 1
        event = self._event(self.last_id, tier, data)
        self._recent.append(event)
        self._weight += weight(event)
        while self._weight > self._window and len(self._recent) > 1:
            self._weight -= weight(self._recent.popleft())
        return event

    def answer(self, request: RecoveryRequest, index: RankIndex) -> RecoveryAnswer:
        """Answer a router: with recent events where the window reaches back far enough, else with the whole rank."""
        refusal = self._refusal(request)
        if refusal is not None:
            return RecoveryAnswer(error=refusal)
        start, end = request.start_event_id, request.end_event_id
        if start is None:
            return self._dump(index)
        if end is not None and end < start:
            return RecoveryAnswer(invalid_range=InvalidRange(start_id=start, end_id=end))
        if not self._recent or start < self._recent[0].event.event_id:
            return self._dump(index)
        if start > self.last_id:
            newest = self.last_id
            end = newest if end is None else end
            return RecoveryAnswer(too_new=TooNew(requested_start=start, requested_end=end, newest_available=newest))
        wanted = list(islice(self._recent, start - self._recent[0].event.event_id, None))
        return RecoveryAnswer(events=RecentEvents(events=wanted, last_event_id=self.last_id))

    def _refusal(self, request: RecoveryRequest) -> str | None:
        if request.worker_id != self.worker_id:
            return f"worker {request.worker_id} was asked for, this is {self.worker_id}"
        if request.dp_rank != self.rank:
            return f"rank {request.dp_rank} was asked for, this is {self.rank}"
        if request.kind != RECOVERY:
            return "this kind of question is for other workers"
        return None

    def _dump(self, index: RankIndex) -> RecoveryAnswer:
        events = self._numbered(index.dump())
        return RecoveryAnswer(tree_dump=TreeDump(events=events, last_event_id=self.last_id))

    def _numbered(self, changes: Iterable[tuple[StorageTier, Change]]) -> list[RouterEvent]:
        return [self._event(number, tier, change) for number, (tier, change) in enumerate(changes)]

    def _event(self, event_id: int, tier: StorageTier, data: EventData) -> RouterEvent:
        return RouterEvent(
            worker_id=self.worker_id,
            storage_tier=tier,
            event=CacheEvent(event_id=event_id, data=data, dp_rank=self.rank),
        )


def weight(event: RouterEvent) -> int:
    """Blocks that an event names, at least 1."""
    data = event.event.data
    if data == CLEARED:
        return 1
    if data.stored is not UNSET:
        return max(1, len(data.stored.blocks))
    return max(1, len(data.removed.block_hashes)) if data.removed is not UNSET else 1

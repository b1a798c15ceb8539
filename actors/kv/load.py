"""An engine's load, rank by rank, for routers and for people.

Absent is not zero, and nonsense is dropped. A rank's numbers live for a while after they were measured; then they are
gone from the gauges, and routers are told 0: they keep a number for ever and skip a null (seen in ai-dynamo-runtime
1.6.1, which went on refusing requests), and 0 is what a rank that never reported counts for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec

from openengine_sidecar.messages.dynamo.events import ActiveLoad
from openengine_sidecar.messages.engine.control import Load, RankLoad


class LoadFault(StrEnum):
    """Why a rank's numbers, or an entry, were dropped."""

    NO_RANK = "no_rank"
    """An entry that names no rank of this engine, where it has several; or a rank without an entry."""

    REPEATED_RANK = "repeated_rank"
    NONSENSE = "nonsense"
    """More blocks used than there are, or none at all."""


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank measured; None was not reported. Blocks are reported both or not at all."""

    running_requests: int | None = None
    queued_requests: int | None = None
    used_blocks: int | None = None
    total_blocks: int | None = None

    @property
    def cache_usage(self) -> float | None:
        """Share of the blocks in use, 0 to 1."""
        if self.used_blocks is None or not self.total_blocks:
            return None
        return self.used_blocks / self.total_blocks


class Readings(msgspec.Struct, frozen=True):
    """The ranks that were measured, and what was dropped."""

    ranks: Mapping[int, Gauges]
    faults: Counter[LoadFault]


def read_load(load: Load, ranks: Sequence[int]) -> Readings:
    """What an engine's load says of each rank it serves.

    An engine with one rank may tell it as a whole; with several, the sum says nothing of any.
    """
    found: dict[int, Gauges] = {}
    faults: Counter[LoadFault] = Counter()
    entries = load.ranks or ((_as_rank(load),) if len(ranks) == 1 else ())
    named = Counter(_rank(entry, ranks) for entry in entries)
    for entry in entries:
        rank = _rank(entry, ranks)
        if rank is None:
            faults[LoadFault.NO_RANK] += 1
        elif named[rank] > 1:
            faults[LoadFault.REPEATED_RANK] += 1
        else:
            found[rank] = _gauges(entry, faults)
    faults[LoadFault.NO_RANK] += sum(rank not in named for rank in ranks)
    return Readings(found, +faults)


class LoadReport(msgspec.Struct, frozen=True):
    """What a poll comes to: what to publish, and what was dropped."""

    publish: Sequence[ActiveLoad] = ()
    faults: Counter[LoadFault] = msgspec.field(default_factory=Counter)


class LoadBook:
    """The load of one engine as it was last measured, until that is too long ago.

    A sample whose own timestamp stands still while requests run is no measurement, it is the last one again.

    Args:
        worker_id: the instance id.
        ranks: the data-parallel ranks.
        age_limit: seconds for which a number holds.
        monotonic: the clock, in seconds.
    """

    def __init__(
        self, worker_id: int, ranks: Sequence[int], *, age_limit: float, monotonic: Callable[[], float]
    ) -> None:
        self._worker_id = worker_id
        self._ranks = tuple(ranks)
        self._age_limit = age_limit
        self._monotonic = monotonic
        self._timestamp: int | None = None
        self._measured: dict[int, tuple[float, Gauges]] = {}
        self._told: dict[int, tuple[float, int]] = {}

    @property
    def gauges(self) -> Mapping[int, Gauges]:
        """The ranks whose numbers still hold."""
        now = self._monotonic()
        return {rank: gauges for rank, (since, gauges) in self._measured.items() if self._holds(since, now)}

    @property
    def standing(self) -> Sequence[ActiveLoad]:
        """What routers were told and still holds."""
        return [self._load(rank, used) for rank, (_, used) in self._told.items()]

    def sampled(self, load: Load) -> LoadReport:
        """Take a poll's answer in; publishes on change, and what has expired."""
        timestamp, self._timestamp = self._timestamp, load.timestamp_unix_nanos
        if timestamp is not None and timestamp == load.timestamp_unix_nanos and load.running_requests:
            return self.missed()
        readings = read_load(load, self._ranks)
        now = self._monotonic()
        changed: list[ActiveLoad] = []
        for rank, gauges in readings.ranks.items():
            self._measured[rank] = now, gauges
            if gauges.used_blocks is not None:
                changed += self._tell(rank, gauges.used_blocks, now)
        return LoadReport([*changed, *self._expired(now)], readings.faults)

    def missed(self) -> LoadReport:
        """A poll brought nothing; publishes what has expired."""
        return LoadReport(self._expired(self._monotonic()))

    def _tell(self, rank: int, used_blocks: int, now: float) -> list[ActiveLoad]:
        _, before = self._told.get(rank, (now, None))
        self._told[rank] = now, used_blocks
        return [] if used_blocks == before else [self._load(rank, used_blocks)]

    def _expired(self, now: float) -> list[ActiveLoad]:
        gone = {rank: used for rank, (since, used) in self._told.items() if not self._holds(since, now)}
        for rank in gone:
            del self._told[rank]
        return [self._load(rank, 0) for rank, used in gone.items() if used]

    def _holds(self, since: float, now: float) -> bool:
        return now - since <= self._age_limit

    def _load(self, rank: int, used_blocks: int) -> ActiveLoad:
        return ActiveLoad(worker_id=self._worker_id, dp_rank=rank, kv_used_blocks=used_blocks)


def _as_rank(load: Load) -> RankLoad:
    return RankLoad(
        running_requests=load.running_requests,
        queued_requests=load.queued_requests,
        used_kv_blocks=load.used_kv_blocks,
        total_kv_blocks=load.total_kv_blocks,
    )


def _rank(entry: RankLoad, ranks: Sequence[int]) -> int | None:
    """The rank that an entry is about; an only rank need not be named."""
    if entry.rank is None and len(ranks) == 1:
        return ranks[0]
    return entry.rank if entry.rank in ranks else None


def _gauges(entry: RankLoad, faults: Counter[LoadFault]) -> Gauges:
    used, total = entry.used_kv_blocks, entry.total_kv_blocks
    if used is None or total is None:
        used = total = None
    elif not 0 <= used <= total or not total:
        faults[LoadFault.NONSENSE] += 1
        used = total = None
    return Gauges(
        running_requests=entry.running_requests,
        queued_requests=entry.queued_requests,
        used_blocks=used,
        total_blocks=total,
    )

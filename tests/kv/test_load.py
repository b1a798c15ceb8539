from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from openengine_sidecar.actors.kv.load import Gauges, LoadBook, LoadFault, LoadReport, read_load
from openengine_sidecar.messages.dynamo.events import ActiveLoad
from openengine_sidecar.messages.engine.control import Load, RankLoad

WORKER = 2**64 - 1
AGE_LIMIT = 5.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def blocks(rank: int | None, used: int | None, total: int | None = 10, **fields: Any) -> RankLoad:
    return RankLoad(rank=rank, used_kv_blocks=used, total_kv_blocks=total, **fields)


def active(rank: int, used: int) -> ActiveLoad:
    return ActiveLoad(worker_id=WORKER, dp_rank=rank, kv_used_blocks=used)


def book(clock: Clock, *ranks: int) -> LoadBook:
    return LoadBook(WORKER, ranks, age_limit=AGE_LIMIT, monotonic=clock)


def published(report: LoadReport) -> list[ActiveLoad]:
    return list(report.publish)


def test_c61_each_rank_is_read_with_zero_as_a_value() -> None:
    readings = read_load(Load(ranks=(blocks(2, 0), blocks(3, 10, queued_requests=0))), (2, 3))
    assert readings.ranks == {
        2: Gauges(used_blocks=0, total_blocks=10),
        3: Gauges(used_blocks=10, total_blocks=10, queued_requests=0),
    }
    assert not readings.faults


@pytest.mark.parametrize(("used", "total"), [(None, 10), (4, None), (None, None)])
def test_c61_absent_is_not_zero(used: int | None, total: int | None) -> None:
    readings = read_load(Load(ranks=(blocks(0, used, total, running_requests=3),)), (0,))
    assert readings.ranks == {0: Gauges(running_requests=3)}
    assert not readings.faults
    assert readings.ranks[0].cache_usage is None


@pytest.mark.parametrize(("used", "total"), [(11, 10), (0, 0), (1, 0)])
def test_c61_nonsense_is_dropped_and_the_rest_kept(used: int, total: int) -> None:
    readings = read_load(Load(ranks=(blocks(0, used, total, running_requests=3),)), (0,))
    assert readings.ranks == {0: Gauges(running_requests=3)}
    assert readings.faults == Counter([LoadFault.NONSENSE])


def test_c61_an_only_rank_may_be_told_as_the_whole() -> None:
    whole = Load(used_kv_blocks=4, total_kv_blocks=10, running_requests=1, queued_requests=2)
    expected = Gauges(used_blocks=4, total_blocks=10, running_requests=1, queued_requests=2)
    assert read_load(whole, (5,)).ranks == {5: expected}
    assert read_load(Load(ranks=(blocks(None, 4),)), (5,)).ranks == {5: Gauges(used_blocks=4, total_blocks=10)}


def test_c61_the_whole_says_nothing_of_one_rank_of_several() -> None:
    readings = read_load(Load(used_kv_blocks=4, total_kv_blocks=10), (0, 1))
    assert readings.ranks == {}
    assert readings.faults == Counter({LoadFault.NO_RANK: 2})


@pytest.mark.parametrize(
    ("entries", "kept", "fault"),
    [
        pytest.param([blocks(0, 1)], {0}, LoadFault.NO_RANK, id="a_rank_without_an_entry"),
        pytest.param([blocks(0, 1), blocks(1, 1), blocks(7, 1)], {0, 1}, LoadFault.NO_RANK, id="a_foreign_rank"),
        pytest.param([blocks(0, 1), blocks(1, 1), blocks(None, 1)], {0, 1}, LoadFault.NO_RANK, id="an_unnamed_rank"),
        pytest.param([blocks(0, 1), blocks(0, 2), blocks(1, 1)], {1}, LoadFault.REPEATED_RANK, id="one_rank_twice"),
    ],
)
def test_c61_entries_that_cannot_be_placed_are_dropped(
    entries: list[RankLoad], kept: set[int], fault: LoadFault
) -> None:
    readings = read_load(Load(ranks=tuple(entries)), (0, 1))
    assert set(readings.ranks) == kept
    assert set(readings.faults) == {fault}


def test_the_share_of_the_cache_in_use() -> None:
    assert Gauges(used_blocks=1, total_blocks=4).cache_usage == 0.25
    assert Gauges(used_blocks=0, total_blocks=4).cache_usage == 0.0
    assert Gauges().cache_usage is None


def test_c61_routers_hear_of_changes_and_of_the_first_zero() -> None:
    load = book(Clock(), 0, 1)
    assert published(load.sampled(Load(ranks=(blocks(0, 0), blocks(1, 3))))) == [active(0, 0), active(1, 3)]
    assert published(load.sampled(Load(ranks=(blocks(0, 0), blocks(1, 4))))) == [active(1, 4)]


def test_c61_failing_polls_let_a_value_expire_once() -> None:
    clock = Clock()
    load = book(clock, 0, 1)
    load.sampled(Load(ranks=(blocks(0, 0), blocks(1, 3))))
    clock.now += AGE_LIMIT
    assert published(load.missed()) == []
    assert set(load.gauges) == {0, 1}
    clock.now += 0.001
    assert load.gauges == {}
    assert published(load.missed()) == [active(1, 0)]
    assert published(load.missed()) == []
    assert published(load.sampled(Load(ranks=(blocks(0, 0), blocks(1, 3))))) == [active(0, 0), active(1, 3)]


def test_c61_a_rank_that_falls_silent_expires_while_the_other_lives() -> None:
    clock = Clock()
    load = book(clock, 0, 1)
    load.sampled(Load(ranks=(blocks(0, 1), blocks(1, 3))))
    clock.now += AGE_LIMIT + 1
    report = load.sampled(Load(ranks=(blocks(0, 2),)))
    assert published(report) == [active(0, 2), active(1, 0)]
    assert report.faults == Counter([LoadFault.NO_RANK])
    assert load.gauges == {0: Gauges(used_blocks=2, total_blocks=10)}


def test_c61_blocks_that_are_no_longer_reported_expire_though_requests_are() -> None:
    clock = Clock()
    load = book(clock, 0)
    load.sampled(Load(ranks=(blocks(0, 3, running_requests=1),)))
    clock.now += AGE_LIMIT + 1
    assert published(load.sampled(Load(ranks=(blocks(0, None, running_requests=2),)))) == [active(0, 0)]
    assert load.gauges == {0: Gauges(running_requests=2)}


def stamped(timestamp: int | None, used: int, running: int | None) -> Load:
    return Load(timestamp_unix_nanos=timestamp, running_requests=running, ranks=(blocks(0, used),))


@pytest.mark.parametrize(
    ("timestamp", "running", "fresh"), [(7, 1, False), (8, 1, True), (None, 1, True), (7, 0, True)]
)
def test_a_timestamp_that_stands_still_while_requests_run_is_no_new_measurement(
    timestamp: int | None, running: int, *, fresh: bool
) -> None:
    clock = Clock()
    load = book(clock, 0)
    load.sampled(stamped(7, 3, 1))
    clock.now += AGE_LIMIT + 1
    report = load.sampled(stamped(timestamp, 4, running))
    assert published(report) == [active(0, 4 if fresh else 0)]
    assert (0 in load.gauges) is fresh

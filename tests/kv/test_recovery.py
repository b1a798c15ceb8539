from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from openengine_sidecar.actors.kv.index import RankIndex
from openengine_sidecar.actors.kv.recovery import EventLog
from openengine_sidecar.messages.dynamo.events import (
    CLEARED,
    Change,
    InvalidRange,
    RecentEvents,
    RecoveryAnswer,
    RecoveryRequest,
    Removed,
    RouterEvent,
    StorageTier,
    StoredBlock,
    TooNew,
    TreeDump,
)
from tests.kv.routers import Router

WORKER, RANK = 2**64 - 1, 3
DEVICE, DISK = StorageTier.DEVICE, StorageTier.DISK


def log(events: int = 0, *, window: int = 100) -> EventLog:
    log = EventLog(WORKER, RANK, window=window)
    for _ in range(events):
        log.append(DEVICE, CLEARED)
    return log


def ask(start: int | None = None, end: int | None = None, **changes: Any) -> RecoveryRequest:
    fields = {"worker_id": WORKER, "dp_rank": RANK, "start_event_id": start, "end_event_id": end, **changes}
    return RecoveryRequest(**fields)


def answered(log: EventLog, start: int | None = None, end: int | None = None) -> RecoveryAnswer:
    return log.answer(ask(start, end), RankIndex(100))


def ids(events: RecentEvents | TreeDump | Any) -> list[int]:
    return [event.event.event_id for event in events.events]


def test_ids_count_from_one_without_a_hole_and_carry_worker_and_rank() -> None:
    history = log(2)
    event = history.append(DISK, Change(removed=Removed([5])))
    assert (event.event.event_id, history.last_id) == (3, 3)
    assert (event.worker_id, event.event.dp_rank, event.storage_tier) == (WORKER, RANK, DISK)


@pytest.mark.parametrize(("start", "end"), [(None, None), (None, 4), (0, None), (2, 4)])
def test_without_a_start_or_from_before_the_window_the_whole_rank_is_sent(start: int | None, end: int | None) -> None:
    history = log(8, window=4)
    expected = TreeDump(events=[], last_event_id=8)
    assert answered(history, start, end) == RecoveryAnswer(tree_dump=expected)


@pytest.mark.parametrize("start", [None, 0, 1, 9])
def test_before_the_first_event_there_is_an_empty_rank(start: int | None) -> None:
    assert answered(log(), start) == RecoveryAnswer(tree_dump=TreeDump(events=[], last_event_id=0))


@pytest.mark.parametrize(("start", "end", "expected"), [(5, None, [5, 6, 7, 8]), (6, 7, [6, 7, 8]), (8, 99, [8])])
def test_recent_events_go_to_the_newest_wherever_the_question_ends(
    start: int, end: int | None, expected: list[int]
) -> None:
    recent = answered(log(8, window=4), start, end).events
    assert isinstance(recent, RecentEvents)
    assert (ids(recent), recent.last_event_id) == (expected, 8)


@pytest.mark.parametrize(("end", "said"), [(None, 8), (100, 100)])
def test_what_was_never_published_is_too_new(end: int | None, said: int) -> None:
    expected = TooNew(requested_start=9, requested_end=said, newest_available=8)
    assert answered(log(8), 9, end) == RecoveryAnswer(too_new=expected)


@pytest.mark.parametrize("events", [0, 8])
def test_an_end_before_the_start_is_an_invalid_range(events: int) -> None:
    expected = InvalidRange(start_id=3, end_id=1)
    assert answered(log(events), 3, 1) == RecoveryAnswer(invalid_range=expected)


@pytest.mark.parametrize(
    "changes", [{"worker_id": 5}, {"dp_rank": 0}, {"kind": "status"}, {"kind": {"state_agent_recovery": {}}}]
)
def test_a_question_for_somebody_else_is_an_error(changes: dict[str, Any]) -> None:
    answer = log(8).answer(ask(**changes), RankIndex(100))
    assert answer.error
    assert (answer.tree_dump, answer.events) == (UNSET, UNSET)


def test_the_window_is_measured_in_blocks_and_keeps_the_newest_event_always() -> None:
    history = log(window=5)
    for size in (2, 3, 1):
        history.append(DEVICE, Change(removed=Removed(list(range(size)))))
    recent = answered(history, 2).events
    assert ids(recent) == [2, 3]
    assert isinstance(answered(history, 1).tree_dump, TreeDump)
    history.append(DEVICE, Change(removed=Removed(list(range(50)))))
    assert ids(answered(history, 4).events) == [4]
    assert isinstance(answered(history, 3).tree_dump, TreeDump)


def test_a_dump_builds_the_rank_anew_parents_first_with_ids_from_zero() -> None:
    index, history = RankIndex(100), log()
    live = Router()
    for tier, parent, hashes in ((DEVICE, None, (1, 2)), (DEVICE, 1, (3,)), (DEVICE, 3, (4,)), (DISK, 2, (5,))):
        stored = index[tier].store(parent, [StoredBlock(one, one) for one in hashes])
        live.hear([history.append(tier, change) for change in stored])
    dump = history.answer(ask(), index).tree_dump
    assert isinstance(dump, TreeDump)
    assert (ids(dump), dump.last_event_id) == (list(range(len(dump.events))), 4)
    late = Router()
    for event in dump.events:
        assert isinstance(event, RouterEvent)
        late.apply(event.storage_tier, event.event.data)
    assert late.tiers == live.tiers

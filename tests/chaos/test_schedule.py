from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.schedule import SHARES, STALL_PAST_LEASE, VICTIMS, Kind, crashes, schedule

LEASE = 10.0

seeds = st.integers(0, 2**32)


@given(seeds)
def test_a_seed_gives_the_same_schedule_again(seed: int) -> None:
    assert schedule(seed, 120, targets=2) == schedule(seed, 120, targets=2)
    assert schedule(seed, 120) != schedule(seed + 1, 120)


@given(seeds, st.floats(1, 600), st.integers(1, 4))
def test_one_fault_ends_before_the_next_begins(seed: int, duration: float, targets: int) -> None:
    faults = schedule(seed, duration, targets=targets)
    assert all(before.at + before.seconds < after.at for before, after in pairwise(faults))
    assert all(0 < fault.at < duration for fault in faults)
    assert all(fault.target < targets for fault in faults)


@given(seeds)
def test_a_long_run_leaves_nothing_out(seed: int) -> None:
    faults = schedule(seed, 1_800, targets=2)
    assert {fault.kind for fault in faults} == set(Kind)
    assert {fault.victim for fault in faults if fault.kind is Kind.ACTOR_CRASH} == set(VICTIMS)
    assert {fault.target for fault in faults} == {0, 1}


@given(seeds, st.sets(st.sampled_from(Kind), min_size=1))
def test_only_what_was_asked_for_goes_wrong(seed: int, kinds: set[Kind]) -> None:
    assert {fault.kind for fault in schedule(seed, 60, kinds=kinds)} <= kinds


@given(seeds)
def test_a_stopped_worker_outlives_its_lease(seed: int) -> None:
    for fault in schedule(seed, 100, kinds=[Kind.WORKER_STALL]):
        assert STALL_PAST_LEASE[0] <= fault.seconds <= STALL_PAST_LEASE[1]


@given(seeds)
def test_a_wrong_clock_is_wrong_by_more_than_a_lease_and_either_way(seed: int) -> None:
    skews = {fault.skew for fault in schedule(seed, 600, kinds=[Kind.CLOCK_SKEW])}
    assert min(skews) < 0 < max(skews)
    assert min(map(abs, skews)) > LEASE


@given(seeds, st.integers(0, 200), st.integers(0, 20))
def test_crashes_come_in_the_numbers_asked_for(seed: int, count: int, deaths: int) -> None:
    kinds = [fault.kind for fault in crashes(seed, count, deaths)]
    assert (kinds.count(Kind.ACTOR_CRASH), kinds.count(Kind.ENGINE_KILL)) == (count, deaths)


def test_every_kind_has_a_share() -> None:
    assert set(SHARES) == set(Kind)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_fault_says_what_it_hits(victim: str) -> None:
    found = [fault for fault in schedule(1, 600) if fault.victim == victim]
    assert found
    assert victim in str(found[0])

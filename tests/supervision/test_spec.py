from __future__ import annotations

from random import Random
from typing import Any

import pytest

from openengine_sidecar.messages.signals import Address, Cause, CauseKind
from openengine_sidecar.supervision import (
    INFINITY,
    KILL,
    Backoff,
    ChildSpec,
    ChildSpecError,
    Mailbox,
    RestartBudget,
)
from openengine_sidecar.supervision._spec import BudgetWindow
from openengine_sidecar.supervision.testing import Probe


def dice(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - no secrets here


@pytest.mark.parametrize("name", ["", "a/b", "/"])
def test_a_name_is_a_segment_of_a_path(name: str) -> None:
    with pytest.raises(ChildSpecError, match="segment of a path"):
        ChildSpec(name=name, factory=Probe)


@pytest.mark.parametrize(
    "durations", [{"shutdown": -1.0}, {"ready_timeout": -0.1}, {"ready_timeout": float("nan")}, {"drain_reserve": -1.0}]
)
def test_durations_are_not_negative(durations: dict[str, Any]) -> None:
    with pytest.raises(ChildSpecError, match="durations are seconds"):
        ChildSpec(name="a", factory=Probe, **durations)


def test_a_supervisor_may_take_for_ever_to_stop_and_a_worker_five_seconds() -> None:
    spec = ChildSpec(name="a", factory=Probe)
    assert spec.patience(supervises=True) == INFINITY
    assert spec.patience(supervises=False) == 5.0
    assert ChildSpec(name="a", factory=Probe, shutdown=7.0).patience(supervises=True) == 7.0
    assert ChildSpec(name="a", factory=Probe, shutdown=KILL).patience(supervises=False) is KILL


def test_a_mailbox_holds_at_least_one_message() -> None:
    with pytest.raises(ChildSpecError):
        Mailbox(capacity=0)


@pytest.mark.parametrize("wrong", [{"minimum": 2.0, "maximum": 1.0}, {"minimum": -1.0}, {"jitter": 1.5}])
def test_a_back_off_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ChildSpecError):
        Backoff(**wrong)


def test_back_off_doubles_and_never_overflows() -> None:
    backoff = Backoff(minimum=0.1, maximum=10.0, jitter=0.0)
    rng = dice(1)
    assert [backoff.delay(attempt, rng) for attempt in range(8)] == pytest.approx(
        [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0]
    )
    assert backoff.delay(100_000, rng) == 10.0


def test_full_jitter_spreads_over_the_whole_delay_and_comes_from_the_given_dice() -> None:
    backoff = Backoff(minimum=1.0, maximum=1.0, jitter=1.0)
    delays = [backoff.delay(0, dice(seed)) for seed in range(200)]
    assert min(delays) < 0.1
    assert 0.9 < max(delays) <= 1.0
    assert all(delay > 0 for delay in delays)
    assert delays == [backoff.delay(0, dice(seed)) for seed in range(200)]


def test_half_jitter_keeps_half_of_the_delay() -> None:
    backoff = Backoff(minimum=1.0, maximum=1.0, jitter=0.5)
    delays = [backoff.delay(0, dice(seed)) for seed in range(200)]
    assert min(delays) > 0.5
    assert max(delays) <= 1.0


def test_the_window_slides() -> None:
    window = BudgetWindow(RestartBudget(max_restarts=2, window=10.0))
    assert [window.spend(now) for now in (0.0, 5.0, 10.0, 14.9, 15.1, 40.0)] == [True, True, True, False, False, True]


def test_a_budget_of_nothing_covers_nothing() -> None:
    assert not BudgetWindow(RestartBudget(max_restarts=0)).spend(0.0)


def test_causes_and_addresses_read_well() -> None:
    assert str(Cause(CauseKind.STOPPED)) == "stopped"
    assert str(Cause.of(ValueError("why"))) == "failed: ValueError: why"
    assert Cause(CauseKind.STOPPED).normal
    assert not Cause(CauseKind.KILLED).normal
    assert str(Address("/a/b", 3)) == "/a/b#3"
    assert Address("/a/b", 3).name == "b"

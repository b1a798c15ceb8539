from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from openengine_sidecar.actors.reporter.health_state import (
    LONGEST_REASON,
    MOST_ENGINE_CHECKS,
    HealthBook,
    HealthFact,
    State,
)
from openengine_sidecar.messages.engine.control import HealthCheck, HealthState
from openengine_sidecar.messages.facts import EngineDown, EngineHealth, EventPlaneState, KvFollowing
from tests.reporter.facts import (
    CONNECTED,
    DISCONNECTED,
    DOWN,
    EVERYTHING,
    NOT_SERVING,
    REGISTERED,
    UP,
    WITHDRAWN,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


class Wall:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def wall() -> Wall:
    return Wall()


def book(wall: Wall, *facts: HealthFact, ignore_engine: bool = False) -> HealthBook:
    health = HealthBook(ignore_engine=ignore_engine, now=wall)
    for fact in facts:
        health.apply(fact)
    return health


def states(health: HealthBook) -> dict[str, str]:
    return {name: status.state.value for name, status in health.report().checks.items()}


def test_a_worker_without_an_engine_waits_and_says_for_what(wall: Wall) -> None:
    health = book(wall)
    assert states(health) == {"runtime": "ready", "plane": "waiting", "discovery": "waiting", "engine": "notready"}
    report = health.report()
    assert not report.ready
    assert not report.endpoint_ready
    assert report.checks["engine"].why == "not discovered yet"


def test_readiness_needs_engine_plane_and_records(wall: Wall) -> None:
    health = book(wall)
    changes = [health.apply(fact) for fact in EVERYTHING]
    assert changes == [False, False, True]
    assert health.report().endpoint_ready
    assert health.report().checks["engine"].why == "reference 1.0 serves toy as agg"
    assert health.report().checks["discovery"].why == "toy as instance abc"


def test_with_the_engine_up_what_is_missing_is_not_ready(wall: Wall) -> None:
    assert states(book(wall, UP)) == {
        "runtime": "ready",
        "plane": "notready",
        "discovery": "notready",
        "engine": "ready",
    }


@pytest.mark.parametrize(
    ("fact", "check", "why"),
    [
        (DOWN, "engine", "lost: connection refused"),
        (NOT_SERVING, "engine", "not serving: says draining"),
        (DISCONNECTED, "plane", "broken pipe"),
        (WITHDRAWN, "discovery", "withdrawn: engine lost"),
    ],
)
def test_any_loss_ends_readiness_and_says_why(fact: HealthFact, check: str, why: str, wall: Wall) -> None:
    health = book(wall, *EVERYTHING)
    assert health.apply(fact)
    assert not health.ready
    assert health.report().checks[check].state is State.NOT_READY
    assert health.report().checks[check].why == why


def test_readiness_returns_with_what_was_lost(wall: Wall) -> None:
    health = book(wall, *EVERYTHING, WITHDRAWN, DOWN)
    assert states(health)["discovery"] == "waiting"
    assert [health.apply(UP), health.apply(REGISTERED)] == [False, True]


def test_since_is_the_moment_of_the_change_not_of_the_last_word(wall: Wall) -> None:
    health = book(wall, *EVERYTHING)
    wall.advance(5)
    health.apply(DISCONNECTED)
    wall.advance(5)
    health.apply(DISCONNECTED)
    checks = health.report().checks
    assert checks["plane"].since == START + timedelta(seconds=5)
    assert checks["engine"].since == START
    wall.advance(5)
    health.apply(CONNECTED)
    assert health.report().checks["plane"].since == START + timedelta(seconds=15)


def test_missed_polls_are_shown_and_do_not_decide(wall: Wall) -> None:
    health = book(wall, *EVERYTHING)
    assert not health.apply(EngineHealth(state=HealthState.READY, misses=2, detail="deadline exceeded"))
    assert health.ready
    why = health.report().checks["engine"].why
    assert why.endswith("; 2 polls in a row without an answer, deadline exceeded")
    health.apply(EngineHealth(state=HealthState.READY))
    assert health.report().checks["engine"].why == "reference 1.0 serves toy as agg"


def test_a_degraded_engine_that_serves_is_ready_and_says_so(wall: Wall) -> None:
    health = book(wall, *EVERYTHING, EngineHealth(state=HealthState.DEGRADED))
    assert health.ready
    assert health.report().checks["engine"].why.endswith("; says degraded")


def test_the_engines_own_checks_are_shown_not_judged(wall: Wall) -> None:
    checks = (HealthCheck("kv", HealthState.NOT_READY, "transfer stalled"), HealthCheck("scheduler", HealthState.READY))
    health = book(wall, *EVERYTHING, EngineHealth(state=HealthState.READY, checks=checks))
    wall.advance(3)
    health.apply(EngineHealth(state=HealthState.READY, checks=checks, misses=1))
    shown = health.report().checks
    assert (shown["engine/kv"].state, shown["engine/kv"].why) == (State.NOT_READY, "transfer stalled")
    assert shown["engine/kv"].since == START
    assert shown["engine/scheduler"].state is State.READY
    assert health.report().endpoint_ready


def test_what_a_peer_says_is_bounded(wall: Wall) -> None:
    checks = tuple(HealthCheck(f"check-{number}", HealthState.READY, "x" * 10_000) for number in range(1000))
    health = book(wall, EngineHealth(state=HealthState.READY, checks=checks), EngineDown(cause="y" * 10_000, lost=True))
    report = health.report()
    assert len(report.checks) == 4 + MOST_ENGINE_CHECKS
    assert all(len(status.why) <= LONGEST_REASON for status in report.checks.values())


def test_a_worker_told_to_ignore_the_engine_is_ready_before_there_is_one(wall: Wall) -> None:
    health = book(wall, ignore_engine=True)
    assert health.ready
    assert not health.report().endpoint_ready


@pytest.mark.parametrize("facts", [EVERYTHING, (*EVERYTHING, DOWN, WITHDRAWN), (*EVERYTHING, WITHDRAWN, DOWN)])
def test_a_worker_told_to_ignore_the_engine_stays_ready_without_it(facts: tuple[HealthFact, ...], wall: Wall) -> None:
    assert book(wall, *facts, ignore_engine=True).ready


@pytest.mark.parametrize("facts", [(DISCONNECTED,), (*EVERYTHING, DISCONNECTED), (*EVERYTHING, WITHDRAWN), (UP,)])
def test_a_worker_told_to_ignore_the_engine_still_needs_its_own_parts(
    facts: tuple[HealthFact, ...], wall: Wall
) -> None:
    assert not book(wall, *facts, ignore_engine=True).ready


@pytest.mark.parametrize("ignore_engine", [True, False])
def test_a_process_on_its_way_out_is_not_ready(ignore_engine: bool, wall: Wall) -> None:  # noqa: FBT001 - a case
    health = book(wall, *EVERYTHING, ignore_engine=ignore_engine)
    health.stopping("SIGTERM")
    assert not health.ready
    assert health.report().checks["runtime"].why == "SIGTERM"


def test_what_serves_beside_the_requests_is_shown_and_not_judged(wall: Wall) -> None:
    health = book(wall, *EVERYTHING)
    assert not health.apply(KvFollowing(rank=0, following=True, detail="grpc, from a snapshot"))
    assert not health.apply(EventPlaneState(connected=True))
    wall.advance(5)
    for fact in (
        KvFollowing(rank=0, following=False, detail="engine lost"),
        KvFollowing(rank=None, following=False, detail="off"),
        EventPlaneState(connected=True),
    ):
        assert not health.apply(fact)
    checks = {name: status for name, status in health.report().checks.items() if name.startswith("extras/")}
    assert {name: (status.state, status.why) for name, status in checks.items()} == {
        "extras/kv_events": (State.NOT_READY, "off"),
        "extras/kv_events/0": (State.NOT_READY, "engine lost"),
        "extras/event_plane": (State.READY, "connected"),
    }
    assert checks["extras/kv_events/0"].since == START + timedelta(seconds=5)
    assert checks["extras/event_plane"].since == START
    assert health.report().endpoint_ready


def test_three_strikes_in_a_window_degrade_what_is_reported_and_nothing_else() -> None:
    wall = Wall()
    health = book(wall, *EVERYTHING)
    for _ in range(2):
        health.strike("no_terminal")
        wall.advance(10)
    assert "engine/contract" not in health.report().checks
    health.strike("wrong_request_id")
    report = health.report()
    assert report.checks["engine/contract"].state is State.DEGRADED
    assert "wrong_request_id" in report.checks["engine/contract"].why
    assert report.ready
    wall.advance(50)
    assert "engine/contract" not in health.report().checks

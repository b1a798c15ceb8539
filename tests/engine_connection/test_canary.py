from __future__ import annotations

from typing import Any

import pytest

from openengine_sidecar.actors.engine.canary import PROBE, Canary
from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.messages.engine.control import Health, HealthCheck, HealthState
from openengine_sidecar.messages.engine.generation import GenerateCall, Stopping
from openengine_sidecar.messages.facts import EngineDown, EngineHealth, EngineUp
from tests.support.backstage import Backstage, pass_time

GOOD = Health(HealthState.READY, (HealthCheck(PROBE, HealthState.READY),))
BAD = Health(HealthState.DEGRADED, (HealthCheck(PROBE, HealthState.DEGRADED),))


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.begun = 0
        self.busy = False
        self.canary = Canary(wait=10.0, monotonic=lambda: self.now, begun=lambda: self.begun, busy=lambda: self.busy)

    def due_after(self, seconds: float) -> bool:
        self.now += seconds
        return self.canary.due


def test_it_is_due_after_a_while_without_requests_and_again_after_another() -> None:
    world = World()
    assert [world.due_after(seconds) for seconds in (9.0, 1.0, 0.0)] == [False, True, True]
    assert world.canary.judge(GOOD) is HealthState.READY
    assert [world.due_after(seconds) for seconds in (9.0, 1.0)] == [False, True]


def test_a_request_begins_the_while_anew_and_so_does_one_that_runs() -> None:
    world = World()
    world.begun = 1
    assert [world.due_after(9.0), world.due_after(9.0)] == [False, False]
    world.busy = True
    assert [world.due_after(9.0), world.due_after(900.0)] == [False, False]
    world.busy = False
    assert [world.due_after(9.0), world.due_after(1.0)] == [False, True]


def test_after_a_failure_it_is_due_until_it_succeeds() -> None:
    world = World()
    world.canary.failed()
    assert world.due_after(0.0)
    assert world.canary.judge(BAD) is HealthState.NOT_READY
    assert world.due_after(0.0)
    assert world.canary.judge(GOOD) is HealthState.READY
    assert not world.due_after(0.0)


def test_what_the_engine_does_not_have_is_never_due() -> None:
    world = World()
    world.canary.absent()
    assert not world.due_after(1000.0)


@pytest.mark.parametrize("state", list(HealthState))
def test_an_answer_without_a_run_stands_for_itself(state: HealthState) -> None:
    assert World().canary.judge(Health(state)) is state


async def connect(backstage: Backstage, engine: ReferenceEngine, **changes: Any) -> None:
    await backstage.connect(
        engine.address, canary=True, canary_wait=5.0, canary_timeout=0.3, health_interval=1.0, **changes
    )


async def probed(backstage: Backstage, engine: ReferenceEngine) -> None:
    """Lets time pass until a run was asked for."""
    known = engine.stats.faults["rpc"]
    await pass_time(backstage.stage.clock, lambda: engine.stats.faults["rpc"] > known, "a run of the model")


async def test_an_idle_engine_is_asked_for_a_run_and_a_busy_one_is_not(
    backstage: Backstage, engine: ReferenceEngine
) -> None:
    engine.core.faults.play(["rpc:InferenceProbe"])
    await connect(backstage, engine)
    clock, began = backstage.stage.clock, backstage.stage.clock.monotonic()
    model = backstage.heard(EngineUp)[0].discovery.model_id
    for number in range(12):
        call = GenerateCall(request_id=f"r{number}", model=model, token_ids=[1], stopping=Stopping(max_tokens=1))
        backstage.client.generate(call)
        await pass_time(clock, lambda due=began + number + 1: clock.monotonic() >= due, "a second")  # type: ignore[misc]  # bound at once
    assert engine.stats.faults["rpc"] == 0
    await probed(backstage, engine)
    assert backstage.heard(EngineDown) == []


async def test_a_failed_run_takes_the_engine_out_whatever_it_thinks_of_itself_and_a_good_one_brings_it_back(
    backstage: Backstage, engine: ReferenceEngine
) -> None:
    await connect(backstage, engine, degraded_is_ready=True)
    engine.core.health.play("degraded")
    down = await backstage.fact(EngineDown)
    assert (down.lost, "not_ready" in down.cause) == (False, True)
    assert backstage.heard(EngineHealth)[-1].checks[-1].name == PROBE
    engine.core.health.play("ready")
    await backstage.fact(EngineUp, 2)


async def test_a_run_that_takes_too_long_costs_service_but_no_stream(
    backstage: Backstage, engine: ReferenceEngine
) -> None:
    engine.core.faults.play(["rpc:InferenceProbe,hang"])
    await connect(backstage, engine, health_misses=2)
    down = await backstage.fact(EngineDown)
    assert (down.lost, "inference probe" in down.cause) == (False, True)
    assert backstage.client.attached
    engine.core.faults.play([])
    await backstage.fact(EngineUp, 2)


async def test_an_engine_without_such_a_run_is_asked_once_and_stays(
    backstage: Backstage, engine: ReferenceEngine
) -> None:
    engine.core.faults.play(["rpc:InferenceProbe,status=unimplemented"])
    await connect(backstage, engine)
    await probed(backstage, engine)
    clock = backstage.stage.clock
    later = clock.monotonic() + 30.0
    await pass_time(clock, lambda: clock.monotonic() >= later, "half a minute")
    assert engine.stats.faults["rpc"] == 1
    assert backstage.heard(EngineDown) == []


async def test_an_engine_that_died_is_lost_also_when_a_run_was_asked_for(
    backstage: Backstage, engine: ReferenceEngine
) -> None:
    engine.core.faults.play(["rpc:InferenceProbe,status=unavailable"])
    await connect(backstage, engine, health_misses=2)
    down = await backstage.fact(EngineDown)
    assert down.lost

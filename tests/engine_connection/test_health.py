from __future__ import annotations

import asyncio
from typing import Any

import pytest

from openengine_sidecar.actors.engine.connection import Suspect
from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.messages.engine.control import HealthState
from openengine_sidecar.messages.facts import EngineDown, EngineHealth, EngineUp
from tests.support.backstage import Backstage, come_back, pass_time
from tests.support.waiting import eventually


async def polled(backstage: Backstage, engine: ReferenceEngine, times: int) -> None:
    """Lets the watch ask for health that often, from now on."""
    clock, target = backstage.stage.clock, engine.stats.calls["Health"] + times
    await pass_time(clock, lambda: engine.stats.calls["Health"] >= target, f"{times} polls")
    await eventually(lambda: clock.next_timer is not None, "the last answer is taken in")


def ups_and_downs(backstage: Backstage) -> list[str]:
    words = {True: "lost", False: "not serving"}
    told = [fact for fact in backstage.probe.heard if isinstance(fact, EngineUp | EngineDown)]
    return ["up" if isinstance(fact, EngineUp) else words[fact.lost] for fact in told]


async def test_c60_a_steady_engine_is_told_once(backstage: Backstage, engine: ReferenceEngine) -> None:
    await backstage.connect(engine.address)
    await polled(backstage, engine, 12)
    assert ups_and_downs(backstage) == ["up"]
    assert len(backstage.heard(EngineHealth)) == 1


@pytest.mark.parametrize("failure", ["unavailable", "deadline_exceeded", "internal", "overloaded"])
@pytest.mark.parametrize("times", [1, 2])
async def test_c60_few_failures_in_a_row_change_nothing(
    backstage: Backstage, engine: ReferenceEngine, failure: str, times: int
) -> None:
    await backstage.connect(engine.address, health_misses=3)
    engine.core.health.play(f"{failure}*{times},ready,{failure}*{times},ready")
    await polled(backstage, engine, 2 * times + 2)
    assert ups_and_downs(backstage) == ["up"]
    assert [health.misses for health in backstage.heard(EngineHealth)][-1] == 0


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        ("unavailable", "lost"),
        ("deadline_exceeded", "lost"),
        ("internal", "not serving"),
        ("overloaded", "not serving"),
    ],
)
async def test_c60_enough_failures_in_a_row_take_it_out_and_one_success_brings_it_back(
    backstage: Backstage, engine: ReferenceEngine, failure: str, verdict: str
) -> None:
    await backstage.connect(engine.address, health_misses=3)
    engine.core.health.play(f"{failure}*3,ready")
    await polled(backstage, engine, 3)
    assert ups_and_downs(backstage) == ["up", verdict]
    assert backstage.client.attached == (verdict == "not serving")
    await polled(backstage, engine, 1)
    assert ups_and_downs(backstage) == ["up", verdict, "up"]
    assert backstage.client.attached


async def test_c60_a_late_answer_is_a_miss(backstage: Backstage, engine: ReferenceEngine) -> None:
    await backstage.connect(engine.address, health_misses=2, health_timeout=0.1)
    engine.core.health.play("hang*2,ready")
    await polled(backstage, engine, 2)
    assert ups_and_downs(backstage) == ["up", "lost"]


@pytest.mark.parametrize("state", ["starting", "not_ready", "draining", "unspecified", "77"])
async def test_c60_what_the_engine_says_of_itself_counts_at_once(
    backstage: Backstage, engine: ReferenceEngine, state: str
) -> None:
    await backstage.connect(engine.address)
    engine.core.health.play(f"{state},ready")
    await polled(backstage, engine, 1)
    assert ups_and_downs(backstage) == ["up", "not serving"]
    await polled(backstage, engine, 1)
    assert ups_and_downs(backstage) == ["up", "not serving", "up"]


@pytest.mark.parametrize(
    ("options", "told"), [({}, ["up"]), ({"degraded_is_ready": False}, ["up", "not serving"])], ids=["ready", "not"]
)
async def test_c60_degraded_serves_by_option(
    backstage: Backstage, engine: ReferenceEngine, options: dict[str, bool], told: list[str]
) -> None:
    await backstage.connect(engine.address, **options)
    engine.core.health.play("degraded")
    await polled(backstage, engine, 2)
    assert ups_and_downs(backstage) == told
    assert backstage.heard(EngineHealth)[-1].state is HealthState.DEGRADED


async def test_c60_77_is_shown_as_unknown(backstage: Backstage, engine: ReferenceEngine) -> None:
    await backstage.connect(engine.address)
    engine.core.health.play("77")
    await polled(backstage, engine, 1)
    assert backstage.heard(EngineHealth)[-1].state is HealthState.UNKNOWN


async def test_c60_without_a_health_method_discovery_shows_life(backstage: Backstage, engine: ReferenceEngine) -> None:
    engine.core.faults.play(["rpc:Health,status=unimplemented"])
    await backstage.connect(engine.address, health_misses=2)
    await polled(backstage, engine, 3)
    assert ups_and_downs(backstage) == ["up"]
    await engine.stop()
    await pass_time(backstage.stage.clock, lambda: bool(backstage.heard(EngineDown)), "down")
    assert ups_and_downs(backstage) == ["up", "lost"]


async def test_f20_an_engine_that_comes_back_is_told_again_as_a_new_instance(
    backstage: Backstage, engine: ReferenceEngine
) -> None:
    await backstage.connect(engine.address, health_misses=2)
    await engine.stop()
    await backstage.fact(EngineDown)
    assert not backstage.client.attached
    again = await come_back(engine.options, port=engine.port)
    up = await backstage.fact(EngineUp, 2)
    assert up.discovery.instance_id == again.core.instance_id != engine.core.instance_id
    assert ups_and_downs(backstage) == ["up", "lost", "up"]
    await again.stop()


async def test_c12_an_engine_exchanged_between_two_polls_is_noticed(
    backstage: Backstage, engine: ReferenceEngine
) -> None:
    await backstage.connect(engine.address)
    engine.core.instance_id = "another"
    up = await backstage.fact(EngineUp, 2)
    assert up.discovery.instance_id == "another"
    assert ups_and_downs(backstage) == ["up", "up"]


async def test_c60_a_late_poll_cannot_hide_what_another_was_told_meanwhile(
    backstage: Backstage, engine: ReferenceEngine
) -> None:
    await backstage.connect(engine.address)
    engine.core.health.play("not_ready,ready,not_ready")
    await polled(backstage, engine, 1)
    assert ups_and_downs(backstage) == ["up", "not serving"]
    engine.core.faults.play(["rpc:Health,delay=300@1"])
    asked = engine.stats.calls["Health"]
    await pass_time(backstage.stage.clock, lambda: engine.stats.calls["Health"] > asked, "the watch asks")
    assert await suspicion(backstage)
    assert ups_and_downs(backstage) == ["up", "not serving", "up"]
    await eventually(lambda: len(ups_and_downs(backstage)) > 3, "the late answer")
    assert ups_and_downs(backstage) == ["up", "not serving", "up", "not serving"]


async def suspicion(backstage: Backstage) -> Any:
    return await backstage.stage.ref("engine").ask(Suspect("r"), timeout=60.0)


async def test_polls_that_end_together_tell_a_loss_once(backstage: Backstage, engine: ReferenceEngine) -> None:
    await backstage.connect(engine.address, health_misses=1, health_timeout=0.2)
    engine.core.health.play("hang")
    asked = engine.stats.calls["Health"]
    await pass_time(backstage.stage.clock, lambda: engine.stats.calls["Health"] > asked, "the watch asks")
    assert not await suspicion(backstage)
    await asyncio.sleep(0)
    assert ups_and_downs(backstage) == ["up", "lost"]


async def test_its_end_is_told_and_takes_the_channels_away(backstage: Backstage, engine: ReferenceEngine) -> None:
    await backstage.connect(engine.address)
    backstage.stage.ref("engine").cancel("over")
    await backstage.stage.ref("engine").stopped()
    assert ups_and_downs(backstage) == ["up", "lost"]
    assert not backstage.client.attached

from __future__ import annotations

import asyncio

import pytest

from openengine_sidecar.launch.engine import ReferenceEngine
from tests.engine.caller import Caller, ask
from tests.support.backstage import Backstage
from tests.support.waiting import eventually


async def drained(backstage: Backstage, seconds: float) -> None:
    clock = backstage.stage.clock
    ref = backstage.stage.ref("engine")
    ref.drain(clock.monotonic() + seconds, "the test is over")
    actor = backstage.stage.system.host_at(ref.path)
    assert actor is not None
    await actor.drained


async def test_c66_no_drain_call_without_the_option(backstage: Backstage, engine: ReferenceEngine) -> None:
    await backstage.connect(engine.address)
    await drained(backstage, 30.0)
    assert engine.stats.calls["Drain"] == 0
    assert not engine.core.draining


async def test_c65_the_engine_is_drained_by_option(backstage: Backstage, engine: ReferenceEngine) -> None:
    await backstage.connect(engine.address, drain_engine=True)
    await drained(backstage, 30.0)
    assert engine.stats.calls["Drain"] == 1
    assert engine.core.draining


async def test_c65_an_engine_that_does_not_get_there_ends_with_the_budget(
    backstage: Backstage, engine: ReferenceEngine
) -> None:
    await backstage.connect(engine.address, drain_engine=True)
    engine.core.faults.play(["silent"])
    async with Caller(engine.address) as caller:
        others = asyncio.create_task(caller.generate(ask()))
        await eventually(lambda: engine.stats.active, "another client's stream runs")
        await drained(backstage, 0.3)
        assert engine.stats.active == 1
        others.cancel()


@pytest.mark.parametrize("left", [0.0, -5.0])
async def test_c65_no_time_left_is_no_reason_to_wait(
    backstage: Backstage, engine: ReferenceEngine, left: float
) -> None:
    await backstage.connect(engine.address, drain_engine=True)
    await drained(backstage, left)
    assert engine.stats.active == 0

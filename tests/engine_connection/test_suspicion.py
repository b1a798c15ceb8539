from __future__ import annotations

import asyncio
from typing import Any

from openengine_sidecar.actors.engine.connection import Suspect
from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.messages.facts import EngineDown
from tests.support.backstage import Backstage, pass_time

STREAMS = 2_000
NEVER = 1e9


def suspicions(backstage: Backstage, count: int) -> asyncio.Task[list[Any]]:
    engine = backstage.stage.ref("engine")
    asks = [engine.ask(Suspect(f"r{number}"), timeout=60.0) for number in range(count)]

    async def answers() -> list[Any]:
        return [await ask for ask in asks]

    return asyncio.create_task(answers())


async def test_f20_many_suspicions_share_one_question(backstage: Backstage, engine: ReferenceEngine) -> None:
    await backstage.connect(engine.address, health_interval=NEVER)
    asked = engine.stats.calls["Health"]
    assert await suspicions(backstage, STREAMS) == [True] * STREAMS
    assert engine.stats.calls["Health"] == asked + 1
    assert await suspicions(backstage, 1) == [True]
    assert engine.stats.calls["Health"] == asked + 2


async def test_f20_many_suspicions_share_one_burst_and_one_loss(backstage: Backstage, engine: ReferenceEngine) -> None:
    await backstage.connect(engine.address, health_misses=3, health_interval=NEVER)
    engine.core.health.play("unavailable")
    asked, began = engine.stats.calls["Health"], backstage.stage.clock.monotonic()
    answers = suspicions(backstage, STREAMS)
    await pass_time(backstage.stage.clock, answers.done, "answers", leap=1.0)
    assert await answers == [False] * STREAMS
    assert engine.stats.calls["Health"] == asked + 3
    assert backstage.stage.clock.monotonic() - began < 1.0
    [down] = backstage.heard(EngineDown)
    assert down.lost


async def test_a_stumble_is_no_loss(backstage: Backstage, engine: ReferenceEngine) -> None:
    await backstage.connect(engine.address, health_misses=3, health_interval=NEVER)
    engine.core.health.play("unavailable,ready")
    answers = suspicions(backstage, 10)
    await pass_time(backstage.stage.clock, answers.done, "answers", leap=1.0)
    assert await answers == [True] * 10
    assert backstage.heard(EngineDown) == []


async def test_an_engine_that_is_not_ready_is_alive(backstage: Backstage, engine: ReferenceEngine) -> None:
    await backstage.connect(engine.address, health_interval=NEVER)
    engine.core.health.play("not_ready")
    assert await suspicions(backstage, 1) == [True]
    [down] = backstage.heard(EngineDown)
    assert not down.lost

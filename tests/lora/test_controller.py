from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openengine_sidecar.actors.lora.shelf import ENDPOINTS
from openengine_sidecar.actors.records import NOT_REGISTERED, PublishRecord, WithdrawRecord
from openengine_sidecar.launch.engine import EngineOptions, ReferenceEngine
from openengine_sidecar.messages.errors import EngineUnreachableError, InvalidRequestError
from openengine_sidecar.proto.rev2 import lora_pb2
from tests.lora.stage import Scene
from tests.support.backstage import Backstage
from tests.support.waiting import eventually

NEVER = 1e9


@pytest.fixture
async def engine() -> AsyncIterator[ReferenceEngine]:
    async with ReferenceEngine(EngineOptions()) as engine:
        yield engine


@pytest.fixture
async def scene(engine: ReferenceEngine, tmp_path: Path) -> AsyncIterator[Scene]:
    async with Backstage.opened() as backstage:
        await backstage.connect(engine.address, health_interval=NEVER)
        scene = await Scene.set_up(backstage, engine, tmp_path)
        scene.register()
        await eventually(scene.connected, "it met the engine")
        engine.stats.calls.clear()
        await eventually(lambda: len(scene.books.records) == len(ENDPOINTS), "its endpoints stand")
        yield scene


async def test_the_control_endpoints_stand_once_the_gate_listens(scene: Scene) -> None:
    assert scene.books.exposed == list(ENDPOINTS)
    assert {key.split("/")[4] for key in scene.books.records} == set(ENDPOINTS)


async def test_c47_a_card_that_is_refused_undoes_the_load(scene: Scene) -> None:
    scene.books.refusals[PublishRecord] = "the disk is full"
    answer = await scene.load("a")
    assert not answer.ok
    assert answer.message == "the disk is full"
    assert (scene.held, scene.books.cards) == (set(), set())
    assert scene.engine.stats.calls["UnloadLora"] == 1
    with pytest.raises(InvalidRequestError), scene.uses.use("r", "a"):
        pass


async def test_c50_a_card_that_cannot_be_withdrawn_keeps_the_adapter(scene: Scene) -> None:
    assert (await scene.load("a")).ok
    scene.books.refusals[WithdrawRecord] = "the disk is gone"
    answer = await scene.unload("a")
    assert not answer.ok
    assert answer.message == "the disk is gone"
    assert (scene.held, scene.books.cards, await scene.listed()) == ({"a"}, {"a"}, {"a"})


async def test_c48_an_adapter_of_somebody_else_is_a_conflict(scene: Scene) -> None:
    scene.engine.core.adapters.load(lora_pb2.LoraAdapter(lora_name="a", lora_id=1, source_path="/other"))
    answer = await scene.load("a")
    assert not answer.ok
    assert "conflict" in str(answer.message)
    assert (scene.held, scene.books.cards, await scene.listed()) == ({"a"}, set(), set())


async def test_c51_a_call_that_hangs_holds_nobody_else_up(scene: Scene) -> None:
    scene.engine.core.faults.play(["rpc:LoadLora,hang@1"])
    hanging = asyncio.create_task(scene.load("a"))
    await eventually(lambda: scene.engine.stats.calls["LoadLora"], "it hangs")
    assert (await scene.load("b")).ok
    assert await scene.listed() == {"b"}
    with pytest.raises(EngineUnreachableError, match="is loading"), scene.uses.use("r", "a"):
        pass
    assert not hanging.done()
    hanging.cancel()


async def test_c51_what_the_engine_holds_is_adopted_by_the_next_life(scene: Scene) -> None:
    assert (await scene.load("a")).ok
    scene.controller.cancel("the test ends this life")
    await scene.controller.stopped()
    await eventually(lambda: not scene.books.records, "nothing stands that nobody looks after")
    again = await scene.again()
    again.register()
    await eventually(lambda: scene.books.cards == {"a"}, "it is shown again")
    assert await again.listed() == {"a"}
    assert scene.engine.stats.calls["LoadLora"] == 1


async def test_records_come_back_with_the_worker(scene: Scene) -> None:
    assert (await scene.load("a")).ok
    scene.withdraw()
    assert await scene.listed() == {"a"}
    assert (await scene.load("b")).ok
    assert scene.books.cards == set()
    scene.register()
    await eventually(lambda: scene.books.cards == {"a", "b"}, "both cards stand")
    assert len(scene.books.records) == len(ENDPOINTS) + 2


async def test_a_worker_that_was_withdrawn_just_now_is_no_failure_of_a_load(scene: Scene) -> None:
    scene.books.refusals[PublishRecord] = NOT_REGISTERED
    assert (await scene.load("a")).ok
    assert (scene.held, scene.books.cards) == ({"a"}, set())
    scene.books.refusals.clear()
    scene.register()
    await eventually(lambda: scene.books.cards == {"a"}, "it is shown with the worker")


async def test_what_could_not_be_announced_is_announced_later(scene: Scene) -> None:
    assert (await scene.load("a")).ok
    scene.withdraw()
    scene.books.refusals[PublishRecord] = "busy"
    scene.register()
    await eventually(lambda: "PublishRecord a" in scene.books.log[-1:], "it was tried")
    scene.books.refusals.clear()
    await scene.backstage.stage.clock.advance(60.0)
    await eventually(lambda: scene.books.cards == {"a"}, "its card stands")


async def test_c49_a_fetch_that_fails_leaves_nothing(scene: Scene) -> None:
    answer = await scene.load("a", (scene.directory / "nowhere").as_uri())
    assert not answer.ok
    assert "nowhere" in str(answer.message)
    assert await scene.listed() == set()
    assert scene.engine.stats.calls["LoadLora"] == 0


async def test_f27_twenty_loads_are_one_call(scene: Scene) -> None:
    answers = await asyncio.gather(*(scene.load("a") for _ in range(20)), scene.load("b"))
    assert all(answer.ok for answer in answers)
    assert scene.engine.stats.calls["LoadLora"] == 2
    assert scene.books.cards == {"a", "b"}

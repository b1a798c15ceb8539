from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from msgspec import UNSET

from openengine_sidecar.actors.config import KvEvents
from openengine_sidecar.launch.engine import EngineOptions, ReferenceEngine
from openengine_sidecar.messages.errors import DiscoveryError
from openengine_sidecar.messages.facts import EventPlaneState
from openengine_sidecar.supervision.testing import crash_now
from tests.kv.routers import Router
from tests.kv.troupe import BLOCK_SIZE, Troupe
from tests.support.backstage import Backstage, pass_time
from tests.support.waiting import eventually

NEVER = 1e9
Start = Callable[..., Awaitable[Troupe]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    engines: list[ReferenceEngine] = []
    async with Backstage.opened() as backstage:

        async def start(engine: dict[str, Any] | None = None, **changes: Any) -> Troupe:
            options = {"kv_events": frozenset({"grpc"}), "kv_block_size": BLOCK_SIZE, **(engine or {})}
            engines.append(ReferenceEngine(EngineOptions(**options)))
            await engines[-1].start()
            await backstage.connect(engines[-1].address, health_interval=NEVER)
            return await Troupe.set_up(backstage, engines[-1], **changes)

        yield start
    for engine in engines:
        await engine.stop()


async def followed(troupe: Troupe, subscriptions: int = 1) -> None:
    await eventually(lambda: troupe.engine.stats.calls["SubscribeKvEvents"] >= subscriptions, "the ranks are followed")


async def until_believed(troupe: Troupe, blocks: int, rank: int = 0) -> None:
    async def so() -> bool:
        return await troupe.believed(rank) == blocks

    await eventually(so, f"routers know of {blocks} blocks of rank {rank}")


async def test_each_rank_has_a_publisher_of_its_own(start: Start) -> None:
    troupe = await start({"data_parallel_size": 2})
    await followed(troupe, 2)
    troupe.cache(0, blocks=2)
    troupe.cache(1, blocks=3)
    await until_believed(troupe, 2, rank=0)
    await until_believed(troupe, 3, rank=1)
    assert sorted(troupe.ranks.values()) == [0, 1]


async def test_a_rank_that_crashes_is_another_publisher_and_its_neighbour_does_not_notice(start: Start) -> None:
    troupe = await start({"data_parallel_size": 2})
    await followed(troupe, 2)
    troupe.register()
    await eventually(lambda: len(troupe.books.records) == 6, "endpoint, channel and source of both ranks stand")
    troupe.cache(0)
    troupe.cache(1)
    await until_believed(troupe, 2, rank=0)
    await until_believed(troupe, 2, rank=1)
    before, records = dict(troupe.ranks), set(troupe.books.records)
    crash_now(troupe.backstage.stage.system, troupe.path(0))
    await pass_time(troupe.backstage.stage.clock, lambda: troupe.engine.stats.calls["SubscribeKvEvents"] == 3, "again")
    troupe.cache(0)
    await until_believed(troupe, 4, rank=0)
    assert [troupe.ranks[publisher] for publisher in troupe.ranks if publisher not in before] == [0]
    await eventually(lambda: len(troupe.books.records) == 6, "the records of the new one stand")
    assert len(records & set(troupe.books.records)) == 3


async def test_c55_an_engine_that_comes_back_is_believed_to_hold_what_it_says(start: Start) -> None:
    troupe = await start()
    await followed(troupe)
    troupe.cache(blocks=5)
    await until_believed(troupe, 5)
    troupe.engine.core.feeds[0].clear(troupe.engine.core.caches[0])
    await until_believed(troupe, 0)
    troupe.cache(blocks=1)
    await until_believed(troupe, 1)


async def test_c56_a_subscription_that_ends_clears_and_begins_again_from_a_snapshot(start: Start) -> None:
    troupe = await start()
    await followed(troupe)
    troupe.cache(blocks=2)
    await until_believed(troupe, 2)
    troupe.engine.core.faults.play(["kv-status:unavailable@1"])
    troupe.cache(blocks=3)
    await eventually(lambda: troupe.engine.core.feeds[0].last == 2, "it was sent")
    await until_believed(troupe, 0)
    await pass_time(troupe.backstage.stage.clock, lambda: troupe.engine.stats.calls["SubscribeKvEvents"] == 2, "again")
    await until_believed(troupe, 5)


async def test_what_a_slow_plane_drops_is_counted_and_can_be_asked_for(start: Start) -> None:
    troupe = await start(room=12)
    await followed(troupe)
    troupe.register()
    await eventually(lambda: troupe.books.exposed, "routers can ask")
    for _ in range(20):
        troupe.cache(blocks=4)
    clock = troupe.backstage.stage.clock
    await pass_time(clock, lambda: troupe.counted("stored") == 20, "everything was taken in", leap=1.0)
    assert troupe.counted("dropped") == 17, "there is room for three events of four blocks"
    dump = (await troupe.ask(0)).tree_dump
    assert dump is not UNSET
    router = Router()
    for event in dump.events:
        router.apply(event.storage_tier, event.event.data)
    assert (len(router.device), dump.last_event_id) == (80, 20)


async def test_a_router_is_given_the_events_from_the_first_it_missed(start: Start) -> None:
    troupe = await start()
    await followed(troupe)
    troupe.register()
    await eventually(lambda: troupe.books.exposed, "routers can ask")
    for _ in range(4):
        troupe.cache(blocks=1)
    await until_believed(troupe, 4)
    answer = await troupe.ask(0, start=3)
    assert answer.events is not UNSET
    assert [event.event.event_id for event in answer.events.events] == [3, 4]
    late = Router()
    late.last_id = 2
    late.hear(answer.events.events)
    too_new = await troupe.ask(0, start=99)
    assert too_new.too_new is not UNSET
    assert too_new.too_new.newest_available == 4


async def test_a_publisher_that_is_gone_has_no_answer(start: Start) -> None:
    troupe = await start()
    await followed(troupe)
    answer = await troupe.ask(0, endpoint="worker_kv_query_source_dead")
    assert answer.error == "that publisher is gone"


async def test_live_only_offers_no_recovery(start: Start) -> None:
    troupe = await start(live_only=True)
    await followed(troupe)
    troupe.register()
    await eventually(lambda: len(troupe.books.records) == 2, "channel and source stand")
    assert troupe.books.exposed == []
    assert not any(b"recovery_target" in record for record in troupe.books.records.values())
    troupe.cache()
    await until_believed(troupe, 2)


async def test_the_newest_is_said_again_when_the_plane_is_back(start: Start) -> None:
    troupe = await start()
    await followed(troupe)
    troupe.cache()
    await until_believed(troupe, 2)
    troupe.backstage.stage.system.facts.publish(EventPlaneState(connected=True))
    await eventually(lambda: not troupe.plane.empty, "something is said")
    _, [again] = await troupe.plane.next()
    assert again.event.event_id == 1


async def test_events_that_are_required_and_not_offered_end_the_start(start: Start) -> None:
    with pytest.raises(DiscoveryError, match="KV events are required"):
        await start({"kv_events": frozenset()}, events=KvEvents.REQUIRED)

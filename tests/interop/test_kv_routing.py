from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator

import msgspec
import nats
import pytest
from nats.aio.msg import Msg

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from tests.interop.routing import (
    HELD,
    Routed,
    ask,
    family,
    routing_frontend,
    served,
    share_landed,
    stock_workers,
    try_ask,
    until_known,
)
from tests.support.openai import OpenAIClient
from tests.support.site import Lab, Site
from tests.support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

POINTS = 0.05


@pytest.fixture(scope="module")
def kv_frontend(site: Site) -> OpenAIEndpoint:
    return routing_frontend(site)


@pytest.fixture(scope="module")
def both(module_lab: Lab, kv_frontend: OpenAIEndpoint) -> Routed:
    """Two workers that several tests share."""
    return Routed.start(module_lab, kv_frontend, count=2)


@pytest.fixture
async def client(both: Routed) -> AsyncIterator[OpenAIClient]:
    async with both.client as client:
        yield client


async def test_as_many_requests_find_their_prefix_as_with_stock_workers(
    site: Site, client: OpenAIClient, kv_frontend: OpenAIEndpoint
) -> None:
    ours = await share_landed(client)
    async with stock_workers(site, kv_frontend, "stock") as stock:
        theirs = await share_landed(stock)
    print(f"landed on a holder of the prefix: {ours:.1%}, stock mocker workers {theirs:.1%}")  # noqa: T201
    assert ours >= theirs - POINTS


async def test_the_router_believes_what_the_engine_finds(client: OpenAIClient) -> None:
    for number in range(10):
        prompt = family(number, seed=1)
        first = await ask(client, prompt)
        assert first.found < HELD
        await until_known(client, prompt)
        again = await ask(client, f"{prompt} and more of it")
        assert again.believed == again.found >= HELD


async def test_nothing_is_routed_to_a_worker_whose_engine_drains(both: Routed, client: OpenAIClient) -> None:
    held = await ask(client, family(0, seed=2))
    await until_known(client, family(0, seed=2))
    [holder] = [n for n, worker in enumerate(both.workers) if f"instance {held.worker} " in worker.process.output()]
    await both.engines[holder].play("health", "draining")

    async def goes_there() -> bool:
        landing = await try_ask(client, family(0, seed=2), max_tokens=1)
        return landing is not None and landing.worker == held.worker and landing.believed == landing.found >= HELD

    async def goes_elsewhere() -> bool:
        return (await ask(client, family(0, seed=2), max_tokens=1)).worker != held.worker

    await eventually(goes_elsewhere, "the router has let the worker go")
    for _ in range(10):
        assert await goes_elsewhere()
    await both.engines[1 - holder].play("health", "draining")
    await both.engines[holder].play("health", "ready")
    await eventually(goes_there, "the router has it again")
    await both.engines[1 - holder].play("health", "ready")
    await eventually(lambda: len(both.serving()) == 2, "both serve")


@pytest.mark.parametrize("transport", ["grpc", "zmq"])
async def test_a_gap_in_the_engines_events_is_healed(lab: Lab, kv_frontend: OpenAIEndpoint, transport: str) -> None:
    routed = Routed.start(lab, kv_frontend, engine=("--kv-events", transport))
    async with routed.client as client:
        await ask(client, family(0))
        await until_known(client, family(0))
        await routed.engines[0].play("faults", "kv-drop@1")
        await ask(client, family(1))
        assert (await ask(client, family(1))).believed < HELD, "the events were not lost"
        began = time.monotonic()
        await ask(client, family(2))
        for number in range(3):
            await until_known(client, family(number))
        print(f"{transport}: a gap was healed after {time.monotonic() - began:.2f} s")  # noqa: T201
        await eventually(lambda: routed.outcome("gap"), "the gap is counted")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
async def test_what_the_engine_holds_is_known_again_after_a_restart_of_the_worker(
    lab: Lab, kv_frontend: OpenAIEndpoint, how: signal.Signals
) -> None:
    routed = Routed.start(lab, kv_frontend)
    async with routed.client as client:
        before = await ask(client, family(0))
        await until_known(client, family(0))
        routed.workers[0].signal(how)
        await routed.workers[0].ended()
        began = time.monotonic()
        routed.workers[0] = lab.worker(routed.engines[0], name="next-life")
        assert (await until_known(client, family(0))).worker != before.worker
        print(f"known again {time.monotonic() - began:.2f} s after {how.name}")  # noqa: T201


async def test_an_engine_that_comes_back_empty_is_not_believed_to_hold_anything(
    lab: Lab, kv_frontend: OpenAIEndpoint
) -> None:
    routed = Routed.start(lab, kv_frontend)
    engine = routed.engines[0]
    async with routed.client as client:
        await ask(client, family(0))
        await until_known(client, family(0))
        engine.process.kill()
        await eventually(lambda: not routed.serving(), "the worker is withdrawn")
        lab.engine("--kv-events", "grpc", name="next-engine", port=engine.port)
        await eventually(routed.serving, "the worker is back")
        await eventually(lambda: served(client), "it is served")
        again = await ask(client, family(0))
        assert again.believed == again.found < HELD


async def test_each_rank_is_known_by_itself(lab: Lab, kv_frontend: OpenAIEndpoint) -> None:
    engine = ("--kv-events", "grpc", "--data-parallel-size", "2", "--token-delay-ms", "5")
    routed = Routed.start(lab, kv_frontend, engine=engine)
    async with routed.client as client:
        before = await routed.outcome("stored")
        at_once = await asyncio.gather(*(ask(client, family(number), max_tokens=40) for number in range(6)))
        assert {landing.rank for landing in at_once} == {0, 1}

        async def told() -> bool:
            return await routed.outcome("stored") >= before + len(at_once)

        await eventually(told, "the events are on their way")
        for number, landing in enumerate(at_once):
            assert (await until_known(client, family(number))).rank == landing.rank


async def test_a_frontend_that_comes_later_learns_what_was_cached_before(
    site: Site, lab: Lab, kv_frontend: OpenAIEndpoint
) -> None:
    routed = Routed.start(lab, kv_frontend)
    async with routed.client as client:
        await until_known(client, family(0))
    late = Routed(lab, routing_frontend(site, name="late"), routed.engines, routed.workers)
    lab.await_listed(late.frontend, routed.workers[0])
    async with late.client as client:
        await until_known(client, family(0))


async def test_without_recovery_live_events_are_believed(lab: Lab, kv_frontend: OpenAIEndpoint) -> None:
    async with Routed.start(lab, kv_frontend, "--kv-events-live-only").client as client:
        await ask(client, family(0))
        await until_known(client, family(0))


async def test_routers_hear_the_load_of_each_rank(lab: Lab, site: Site, kv_frontend: OpenAIEndpoint) -> None:
    heard: list[dict[str, int | None]] = []

    async def take(message: Msg) -> None:
        heard.append(msgspec.msgpack.decode(msgspec.msgpack.decode(message.data)["payload"]))

    connection = await nats.connect(site.planes.nats_url)
    await connection.subscribe(f"namespace.{lab.namespace}.component.backend.endpoint.generate.kv_metrics", cb=take)
    routed = Routed.start(
        lab, kv_frontend, "--load-interval-secs", "0.1", engine=("--kv-events", "grpc", "--token-delay-ms", "20")
    )
    async with routed.client as client:
        running = asyncio.create_task(ask(client, family(0), max_tokens=60))
        await eventually(lambda: any(load["kv_used_blocks"] for load in heard), "a load is told")
        await running
        await eventually(lambda: heard[-1]["kv_used_blocks"] == 0, "its end is told")
    await connection.close()
    assert {load["dp_rank"] for load in heard} == {0}

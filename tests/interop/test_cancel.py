from __future__ import annotations

import asyncio

import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from tests.support.leaks import Census
from tests.support.openai import Answer, OpenAIClient
from tests.support.site import Lab, Worker
from tests.support.waiting import eventually

pytestmark = pytest.mark.interop

CLIENTS = 50
SHORT = "short"
LONGER = "a longer prompt, so that the engine's records tell the two kinds of client apart"


async def no_streams(worker: Worker) -> bool:
    return not any("/gate/" in path for path in await worker.actors())


async def at_rest(worker: Worker, limit: Census) -> None:
    """Waits until the worker holds no more than `limit`."""
    held = worker.census()

    def rests() -> bool:
        nonlocal held
        held = worker.census()
        return held.within(limit)

    try:
        await eventually(rests, "worker is at rest")
    except AssertionError as error:
        error.add_note(f"it holds {held}, the limit is {limit}")
        raise


@pytest.mark.timeout(120)
async def test_each_hang_up_cancels_its_own_request_once(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    engine, worker = lab.serve(frontend, engine_options=("--token-delay-ms", "10"))
    await asyncio.gather(*(client.chat(SHORT, max_tokens=8) for _ in range(20)))
    await eventually(lambda: no_streams(worker), "the first streams are over")
    before = worker.census()

    hanging_up = (client.hang_up_after(3, LONGER, max_tokens=2_000, ignore_eos=True) for _ in range(CLIENTS))
    by_length = (client.stream_chat(SHORT, max_tokens=12) for _ in range(CLIENTS // 2))
    by_end = (client.stream_chat(SHORT, max_tokens=64) for _ in range(CLIENTS // 2))
    answers: list[Answer] = await asyncio.gather(*hanging_up, *by_length, *by_end)

    reasons = [answer.finish_reason for answer in answers]
    assert reasons == [None] * CLIENTS + ["length"] * (CLIENTS // 2) + ["stop"] * (CLIENTS // 2)
    records = (await engine.settled())["records"][20:]
    stopped = [record for record in records if record["prompt_tokens"] > 2 * len(SHORT) + 20]
    others = [record for record in records if record not in stopped]
    assert (len(stopped), len(others)) == (CLIENTS, CLIENTS)
    assert [record["aborts"] for record in stopped] == [1] * CLIENTS
    assert all(record["tokens"] < 2_000 for record in stopped)
    assert [record["aborts"] for record in others] == [0] * CLIENTS
    assert not any(record["cancelled"] for record in others)
    await eventually(lambda: no_streams(worker), "no stream is left")
    await at_rest(worker, before)
    assert await worker.metric("dynamo_component_inflight_requests") == 0
    assert await worker.metric("dynamo_component_cancellation_total") == CLIENTS


async def test_unary_hang_up_cancels(lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient) -> None:
    engine, _ = lab.serve(frontend, engine_options=("--token-delay-ms", "10"))
    asking = asyncio.create_task(client.chat(LONGER, max_tokens=2_000, ignore_eos=True))
    await eventually(lambda: engine.count("tokens"), "tokens flow")
    asking.cancel()
    stats = await engine.settled()
    assert stats["records"][0]["aborts"] == 1
    assert stats["records"][0]["tokens"] < 2_000


async def test_stop_match_of_the_frontend_leaves_nothing_running(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    engine, _ = lab.serve(frontend, engine_options=("--token-delay-ms", "10"))
    answer = await client.stream_chat(LONGER, max_tokens=2_000, stop=["longer"])
    assert answer.finish_reason == "stop"
    assert (await engine.settled())["records"][0]["tokens"] < 2_000


@pytest.mark.timeout(90)
async def test_f01_cancel_needs_no_first_token_and_holds_nobody_up(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    engine, _ = lab.serve(frontend, engine_options=("--fault", "silent:600@1"))
    silent = asyncio.create_task(client.chat(LONGER, max_tokens=8))
    await eventually(lambda: engine.count("active"), "engine holds the request")
    silent.cancel()
    assert (await client.chat(SHORT, max_tokens=4)).status == 200
    stats = await engine.settled()
    assert [record["aborts"] for record in stats["records"]] == [1, 0]

from __future__ import annotations

import asyncio
import signal

import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from tests.interop.pairs import NO_CLEANUP, Half, Pair, await_served, half, pair, under_way, unloaded
from tests.interop.streams import PACE, begun
from tests.support.openai import Answer, OpenAIClient
from tests.support.site import Lab
from tests.support.waiting import eventually
from tests.support.wire import RawFrontend, request_body

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90)]

QUICK = ("--health-interval-secs", "0.3", "--health-timeout-secs", "1", "--health-misses", "2")
SOON = ("--grace-period-secs", "0.2", *QUICK, "--grpc-retry-interval-secs", "0.3")
TOKENS = 60
CLIENTS = 32
ORDERS = [
    ("prefill worker", "decode worker", "prefill engine", "decode engine"),
    ("decode worker", "decode engine", "prefill worker", "prefill engine"),
    ("prefill engine", "decode worker", "decode engine", "prefill worker"),
    ("decode engine", "prefill worker", "prefill engine", "decode worker"),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: f"{order[0]} first")
async def test_each_of_the_four_ends_in_good_order(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient, order: tuple[str, ...]
) -> None:
    served = pair(lab, frontend, *SOON, engine=PACE)
    streams = await begun(client, 3, max_tokens=TOKENS, ignore_eos=True)
    for part in order:
        await end(served, part)
    answers = await asyncio.gather(*(task for task, _ in streams))
    assert lab.cards() == lab.instances() == []
    gone_under_them = order[0] == "decode engine"
    assert {answer.status for answer in answers} == ({503} if gone_under_them else {200})
    if not gone_under_them:
        assert [answer.completion_tokens for answer in answers] == [TOKENS] * 3


async def end(served: Pair, part: str) -> None:
    """Asks a part to end, and waits until it has, in good order."""
    role, kind = part.split()
    one: Half = served.prefill if role == "prefill" else served.decode
    process = one.worker.process if kind == "worker" else one.engine.process
    process.signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 40.0) == 0, process.tail()


async def test_a_pair_is_listed_while_both_halves_are_there(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    served = pair(lab, frontend, *SOON)
    assert (await client.chat("hello", max_tokens=4)).status == 200
    served.prefill.engine.process.kill()
    await eventually(lambda: _status(client, {404, 503}), "the model is gone with its prefill half")
    again = lab.engine("--role", "prefill", name="prefill-engine-again", port=served.prefill.engine.port)
    await eventually(lambda: _status(client, {200}), "the pair serves again")
    served.prefill.engine = again
    await served.at_rest()


async def _status(client: OpenAIClient, wanted: set[int]) -> bool:
    return (await client.chat("hello", max_tokens=1)).status in wanted


async def test_2p2d_survives_the_death_of_a_decode_worker_under_load(
    lab: Lab, migrating_frontend: OpenAIEndpoint
) -> None:
    engine = (*PACE, "--kv-session-ttl", "2")
    prefills = [half(lab, "prefill", *SOON, engine=engine, number=number) for number in (1, 2)]
    decodes = [half(lab, "decode", *SOON, engine=engine, number=number) for number in (1, 2)]
    for one in decodes:
        lab.await_listed(migrating_frontend, one.worker)
    async with lab.client(migrating_frontend) as client:
        await_served(lab, migrating_frontend, decodes[1].worker)
        await eventually(lambda: _all_serve(client, [*prefills, *decodes]), "both pairs serve")
        answers = await load(client, decodes[0])
        assert len(answers) == CLIENTS
        for number, answer in enumerate(answers):
            whole = (answer.status, answer.text) == (200, f'You said: "{_prompt(number)}".')
            assert whole or (answer.error is not None and answer.status in {499, 500, 503, 529}), answer
        assert sum(answer.status == 200 for answer in answers) >= CLIENTS // 2
        late = await asyncio.gather(*(client.chat(_prompt(n), max_tokens=200) for n in range(8)))
        assert [answer.status for answer in late] == [200] * 8
    for one in prefills:
        await Pair(one, decodes[1]).at_rest()
    await eventually(lambda: unloaded(decodes[0].engine), "nothing runs for the dead worker")
    used = [await one.sessions() for one in prefills]
    assert all(counts["taken"] for counts in used)


def _prompt(number: int) -> str:
    return f"request {number} takes its time to be echoed"


async def load(client: OpenAIClient, victim: Half) -> list[Answer]:
    """Many streams at once; in the middle of them one decode worker is killed."""
    tasks = [asyncio.create_task(client.stream_chat(_prompt(n), max_tokens=200)) for n in range(CLIENTS)]
    await eventually(lambda: _tokens(victim, 50), "the victim is busy")
    victim.worker.process.kill()
    return await asyncio.gather(*tasks)


async def _tokens(one: Half, count: int) -> bool:
    return await one.engine.count("tokens") >= count


async def _all_serve(client: OpenAIClient, halves: list[Half]) -> bool:
    await asyncio.gather(*(client.chat("hello", max_tokens=1) for _ in range(4)))
    return all([await one.engine.count("requests") for one in halves])


async def test_f04_a_cancelled_decode_is_held_until_its_engine_took_the_session(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    served = pair(lab, frontend, engine=(NO_CLEANUP, "--prompt-faults", *PACE))
    prompt = "<<fault slow-transfer:0.7>>"
    asking = asyncio.create_task(client.chat(prompt, max_tokens=2_000, ignore_eos=True))
    await under_way(asking, lambda: served.decode.engine.count("active"), "the decode waits for its session")
    asking.cancel()
    assert (await client.chat("hello", max_tokens=4)).status == 200
    await served.at_rest()
    [held, *_] = sorted(
        (await served.decode.engine.stats())["records"], key=lambda record: record["aborts"], reverse=True
    )
    assert (held["aborts"], held["ended"]) == (1, "cancelled")
    assert held["tokens"] < 100
    assert await served.prefill.sessions() == {"created": 3, "taken": 3}
    assert await served.decode.holds() == {"first_token": 1}
    assert await served.decode.kv() == {"taken": 3}


async def test_c42_a_session_that_nobody_could_free_ends_by_the_engines_time_out(
    lab: Lab, frontend: OpenAIEndpoint
) -> None:
    served = pair(lab, frontend, prefill=("--kv-session-ttl", "1"))
    [subject] = [
        record["transport"]["nats_tcp"]
        for record in lab.site.store.records("instances", lab.namespace)
        if (record["component"], record["endpoint"]) == ("prefill", "generate")
    ]
    async with RawFrontend(lab.site.planes.nats_url) as raw:
        _, caller = await raw.ask(subject, request_body([72, 105], max_tokens=1))
        await caller.closed.wait()
    [item] = caller.items
    assert item["data"]["finish_reason"] == "length"
    await served.at_rest()
    assert await served.prefill.sessions() == {"created": 2, "taken": 1, "expired": 1}
    assert await served.prefill.kv() == {"delivered": 2}


async def test_an_engine_that_does_not_say_takes_the_configured_role(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    silent = ("--answer", 'GetEngineInfo={"role": 0}')
    engines = [lab.engine("--role", role, *silent, name=f"{role}-engine") for role in ("prefill", "decode")]
    workers = [
        lab.worker(engine, "--disaggregation-mode", role, name=role)
        for engine, role in zip(engines, ("prefill", "decode"), strict=True)
    ]
    await_served(lab, frontend, workers[1])
    assert (await client.chat("hello", max_tokens=40)).text == 'You said: "hello".'
    assert {record["component"] for record in lab.site.store.records("mdc", lab.namespace)} == {"prefill", "backend"}


async def test_a_role_that_contradicts_the_engines_ends_the_worker(lab: Lab) -> None:
    worker = lab.worker(lab.engine("--role", "prefill"), "--disaggregation-mode", "decode")
    assert await worker.ended() == 1
    said = worker.process.output()
    assert "it serves as prefill" in said
    assert "configured as decode" in said
    assert lab.instances() == []


async def test_the_routers_rank_reaches_the_prefill_and_its_session_the_decode(
    lab: Lab, frontend: OpenAIEndpoint
) -> None:
    ranks = ("--data-parallel-size", "3", "--data-parallel-start-rank", "4")
    served = pair(lab, frontend, engine=ranks)
    subjects = {
        record["component"]: record["transport"]["nats_tcp"]
        for record in lab.site.store.records("instances", lab.namespace)
        if record["endpoint"] == "generate"
    }
    async with RawFrontend(lab.site.planes.nats_url) as raw:
        for rank in (6, 4, 5):
            routing = {"prefill_dp_rank": rank, "dp_rank": 4}
            _, prefill = await raw.ask(subjects["prefill"], request_body([72, 105], max_tokens=1, routing=routing))
            await prefill.closed.wait()
            params = prefill.items[0]["data"]["disaggregated_params"]
            result = {"disaggregated_params": params}
            body = request_body([72, 105], max_tokens=4, routing={"dp_rank": 4}, prefill_result=result)
            _, decode = await raw.ask(subjects["backend"], body)
            await decode.closed.wait()
            assert decode.error is None
    for one in (served.prefill, served.decode):
        assert [record["rank"] for record in (await one.engine.stats())["records"]][-3:] == [6, 4, 5]
    cards = [record["card_json"]["runtime_config"] for record in lab.site.store.records("mdc", lab.namespace)]
    assert [(card["data_parallel_start_rank"], card["data_parallel_size"]) for card in cards] == [(4, 3)] * 2

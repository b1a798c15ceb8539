from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from tests.interop.pairs import Half, Pair, idle, pair, under_way
from tests.support.openai import CHAT, OpenAIClient
from tests.support.site import Lab
from tests.support.waiting import eventually
from tests.support.wire import RawFrontend, request_body

pytestmark = pytest.mark.interop

LONG = "a prompt that fills more than one block of sixteen tokens, so that it can be found in the cache"
FAULTS = {
    "prefill-finished:cancelled": 499,
    "prefill-finished:stop": 503,
    "prefill-finished:length": 503,
    "missing-session": 503,
    "usage-missing": 503,
    "session-odd:number": 503,
    "session-odd:nan": 503,
    "session-odd:port": 503,
    "session-odd:rank": 503,
    "session-odd:huge": 500,
    "refuse-handoff": 503,
    "lose-session": 500,
    "error:kv_session_not_found": 500,
    "error:kv_transfer_failed": 503,
    "no-terminal:3": 503,
}


@pytest.fixture(scope="module")
def served(module_lab: Lab, frontend: OpenAIEndpoint) -> Pair:
    return pair(module_lab, frontend, engine=("--prompt-faults", "--data-parallel-size", "2"))


@pytest.fixture
async def client(module_lab: Lab, served: Pair, frontend: OpenAIEndpoint) -> AsyncIterator[OpenAIClient]:
    async with module_lab.client(frontend) as client:
        yield client
    await served.at_rest()


def test_each_half_registers_where_the_frontend_looks_for_it(module_lab: Lab, served: Pair) -> None:
    assert served.prefill.worker.process.exit_code is None
    cards = {
        record["component"]: record["card_json"]
        for record in module_lab.site.store.records("mdc", module_lab.namespace)
    }
    assert {name: (card["worker_type"], card["needs"], card["model_type"]) for name, card in cards.items()} == {
        "prefill": ("prefill", [["decode"]], "Prefill"),
        "backend": ("decode", [["prefill"]], "Chat | Completions"),
    }
    assert not any("disaggregated_endpoint" in card["runtime_config"] for card in cards.values())
    assert {card["display_name"] for card in cards.values()} == {module_lab.model}
    assert [card["runtime_config"]["data_parallel_size"] for card in cards.values()] == [2, 2]


async def test_the_decode_engine_goes_on_from_the_prefill_engines_session(client: OpenAIClient, served: Pair) -> None:
    before = [await half.sessions() for half in (served.prefill, served.decode)]
    answer = await client.stream_chat("hello", max_tokens=40)
    assert (answer.text, answer.finish_reason) == ('You said: "hello".', "stop")
    assert (answer.prompt_tokens, answer.completion_tokens, answer.total_tokens) == (9, 18, 27)
    first, second = await served.prefill.engine.stats(), await served.decode.engine.stats()
    made, used = first["records"][-1], second["records"][-1]
    assert made["session"] == used["session"] is not None
    assert (made["ended"], made["tokens"], used["ended"], used["rank"]) == ("handoff", 0, "stop", made["rank"])
    after = [await half.sessions() for half in (served.prefill, served.decode)]
    assert [
        now.get(name, 0) - then.get(name, 0) for then, now, name in zip(before, after, ("taken", "pulled"), strict=True)
    ] == [
        1,
        1,
    ]
    assert "live" not in after[0]
    [sent] = [heard["request"]["stopping"] for heard in (await served.prefill.engine.heard())[-1:]]
    assert (sent["max_tokens"], "min_tokens" in sent) == (1, False)


async def test_f48_cached_tokens_of_the_prefill_reach_the_client(client: OpenAIClient) -> None:
    cached: list[int] = []
    for ask in (client.stream_chat, client.chat, client.stream_chat):
        answer = await ask(LONG, max_tokens=4)
        assert answer.usage is not None, answer
        cached.append(answer.usage["prompt_tokens_details"]["cached_tokens"])
        assert answer.total_tokens == answer.prompt_tokens + answer.completion_tokens
    assert cached[0] == 0
    assert max(cached) >= 16


async def test_f48_several_outputs_do_not_multiply_the_prompt(client: OpenAIClient) -> None:
    _, reply = await client.post(
        "/v1/chat/completions", client.chat_body("hello", n=2, temperature=0.7, seed=5, max_tokens=3, ignore_eos=True)
    )
    assert isinstance(reply, dict)
    assert [choice["finish_reason"] for choice in reply["choices"]] == ["length", "length"]
    assert (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]) == (9, 6)


async def test_logprobs_come_for_every_token(client: OpenAIClient) -> None:
    _, reply = await client.post(
        "/v1/chat/completions", client.chat_body("hello", max_tokens=5, logprobs=True, top_logprobs=2)
    )
    assert isinstance(reply, dict)
    content = reply["choices"][0]["logprobs"]["content"]
    assert len(content) == 5
    assert all(len(token["top_logprobs"]) == 2 for token in content)


@pytest.mark.parametrize(("fault", "status"), FAULTS.items(), ids=FAULTS)
async def test_f36_a_failure_of_either_half_has_its_status_and_costs_one_request(
    client: OpenAIClient, served: Pair, fault: str, status: int
) -> None:
    prompt = f"<<fault {fault}>>"
    unary = await client.chat(prompt, max_tokens=8)
    streamed = await client.stream_chat(prompt, max_tokens=8)
    assert (unary.status, streamed.status) == (status, status), (unary, streamed)
    assert (await client.chat("hello", max_tokens=4)).status == 200
    await served.at_rest()


@pytest.mark.parametrize("how", [{}, {"stream": True}], ids=["unary", "streamed"])
async def test_what_a_pair_refuses_is_the_clients_fault_and_costs_one_request(
    client: OpenAIClient, served: Pair, how: dict[str, bool]
) -> None:
    status, reply = await client.post(CHAT, client.chat_body("hello", max_tokens=10_000_000, **how))
    assert (status, "10000000" in str(reply)) == (400, True), reply
    assert (await client.chat("hello", max_tokens=4)).status == 200
    await served.at_rest()


async def test_c34_tokens_before_the_handoff_and_fields_of_a_newer_schema_pass(client: OpenAIClient) -> None:
    for fault in ("prefill-tokens:1", "session-field:3", "slow-transfer:0.05"):
        prompt = f"<<fault {fault}>>"
        answer = await client.stream_chat(prompt, max_tokens=80)
        assert (answer.text, answer.finish_reason) == (f'You said: "{prompt}".', "stop")


@pytest.mark.parametrize(
    ("fault", "end"),
    [("silent:0.3", "released"), ("slow-transfer:600", "released"), ("slow:0.02", "taken")],
    ids=["during prefill", "before the first token", "after it"],
)
async def test_c41_c42_a_client_that_leaves_strands_nothing(
    client: OpenAIClient, served: Pair, fault: str, end: str
) -> None:
    # The stock frontend tells nobody of a client that left during the prefill, but ends the decode at once afterwards.
    before, tokens = await served.decode.kv(), await served.decode.engine.count("tokens")
    asking = asyncio.create_task(client.chat(f"<<fault {fault}>>", max_tokens=4_000, ignore_eos=True))

    async def far_enough() -> bool:
        if fault.startswith("silent"):
            return bool(await served.prefill.engine.count("active"))
        if end == "released":
            return bool(await served.decode.engine.count("active"))
        return await served.decode.engine.count("tokens") > tokens

    await under_way(asking, far_enough, "it is under way")
    asking.cancel()
    await eventually(lambda: counted(served.decode, end, before.get(end, 0) + 1), "the decode half knows the end")
    await served.at_rest()


async def counted(half: Half, end: str, count: int) -> bool:
    return (await half.kv()).get(end) == count


async def test_a_prefill_that_is_killed_is_aborted_by_its_id(module_lab: Lab, served: Pair) -> None:
    subject = subject_of(module_lab, "prefill")
    before = await served.prefill.kv()
    async with RawFrontend(module_lab.site.planes.nats_url) as raw:
        body = request_body([72, 105], max_tokens=1, extra_args={"metadata": {"fault": "silent:600"}})
        _, caller = await raw.ask(subject, body)
        await eventually(lambda: served.prefill.engine.count("active"), "the prefill runs")
        caller.kill()
        await served.at_rest()
    record = (await served.prefill.engine.stats())["records"][-1]
    assert (record["aborts"], record["ended"], record["session"]) == (1, "cancelled", None)
    await eventually(lambda: counted(served.prefill, "aborted", before.get("aborted", 0) + 1), "it is counted")


def subject_of(lab: Lab, component: str) -> str:
    records = lab.site.store.records("instances", lab.namespace)
    [subject] = [
        str(record["transport"]["nats_tcp"])
        for record in records
        if (record["component"], record["endpoint"]) == (component, "generate")
    ]
    return subject


async def test_f36_c39_a_decode_worker_asked_without_a_session_refuses_and_stays(
    module_lab: Lab, served: Pair, client: OpenAIClient
) -> None:
    subject = subject_of(module_lab, "backend")
    before = (await served.decode.engine.stats())["calls"]["Generate"]
    async with RawFrontend(module_lab.site.planes.nats_url) as raw:
        _, caller = await raw.ask(subject, request_body([72, 105], max_tokens=4))
        await caller.closed.wait()
    assert caller.ended_once
    assert caller.error is not None
    assert "result of none" in caller.error["message"]
    assert (await served.decode.engine.stats())["calls"]["Generate"] == before
    assert await idle(served.decode.worker)
    assert (await client.chat("hello", max_tokens=4)).status == 200


async def test_requests_side_by_side_each_take_their_own_session(client: OpenAIClient, served: Pair) -> None:
    answers = await asyncio.gather(*(client.stream_chat(f"number {n}", max_tokens=60) for n in range(32)))
    assert [answer.text for answer in answers] == [f'You said: "number {n}".' for n in range(32)]
    first, second = await served.prefill.engine.stats(), await served.decode.engine.stats()
    assert sorted(record["session"] for record in first["records"][-32:]) == sorted(
        record["session"] for record in second["records"][-32:]
    )
    assert {record["rank"] for record in second["records"][-32:]} == {0, 1}

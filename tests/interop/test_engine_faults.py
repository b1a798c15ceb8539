from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from tests.support.openai import OpenAIClient
from tests.support.site import Engine, Lab

pytestmark = pytest.mark.interop

BROKEN = 503
CASES = {
    "error:invalid_argument": 400,
    "error:unsupported_feature": 400,
    "error:model_not_found": 400,
    "error:overloaded": 529,
    "error:internal": 500,
    "error:internal,after=3": 500,
    "refuse": 529,
    "status:invalid_argument": 400,
    "status:unimplemented": 400,
    "status:resource_exhausted": 529,
    "status:unavailable": 503,
    "status:unavailable,after=3": 503,
    "status:deadline_exceeded": 504,
    "status:internal": 500,
    "cancelled:3": 499,
    "no-terminal:3": BROKEN,
    "wrong-id:2": BROKEN,
    "garbage:2": BROKEN,
    "prefill-ready": BROKEN,
}
F45_F46_CASES = {
    "cumulative": BROKEN,
    "extra-tokens:3": BROKEN,
    "index-out-of-range:2": BROKEN,
    "missing-index:2": BROKEN,
}


@pytest.fixture(scope="module")
def engine(module_lab: Lab, frontend: OpenAIEndpoint) -> Engine:
    return module_lab.serve(frontend, engine_options=("--prompt-faults",))[0]


@pytest.fixture
async def client(module_lab: Lab, engine: Engine, frontend: OpenAIEndpoint) -> AsyncIterator[OpenAIClient]:
    assert engine.process.exit_code is None
    async with module_lab.client(frontend) as client:
        yield client


async def check(client: OpenAIClient, fault: str, status: int) -> None:
    prompt = f"<<fault {fault}>>"
    unary = await client.chat(prompt, max_tokens=8)
    streamed = await client.stream_chat(prompt, max_tokens=8)
    assert (unary.status, streamed.status) == (status, status), (unary, streamed)
    assert streamed.error is not None
    assert streamed.done
    after = await client.chat("hello", max_tokens=4)
    assert after.status == 200, f"one bad request took the worker out: {after}"


@pytest.mark.parametrize(("fault", "status"), CASES.items(), ids=CASES)
async def test_a_failure_has_its_status_and_costs_one_request(client: OpenAIClient, fault: str, status: int) -> None:
    await check(client, fault, status)


@pytest.mark.parametrize(("fault", "status"), F45_F46_CASES.items(), ids=F45_F46_CASES)
async def test_f45_f46_broken_streams_are_errors_not_garbage(client: OpenAIClient, fault: str, status: int) -> None:
    await check(client, fault, status)


async def test_f45_repeats_that_end_before_the_limit_are_an_error_too(client: OpenAIClient) -> None:
    prompt = "<<fault cumulative>>"
    unary, streamed = await client.chat(prompt, max_tokens=5_000), await client.stream_chat(prompt, max_tokens=5_000)
    assert (unary.status, streamed.status) == (BROKEN, BROKEN)


@pytest.mark.parametrize("fault", ["token-after-finished", "finished-twice", "after-terminal"])
async def test_f46_nothing_after_the_terminal_reaches_the_client(client: OpenAIClient, fault: str) -> None:
    prompt = f"<<fault {fault}>>"
    answer = await client.stream_chat(prompt, max_tokens=200)
    assert (answer.status, answer.finish_reason, answer.text) == (200, "stop", f'You said: "{prompt}".')


async def test_tokens_before_a_failure_are_delivered(client: OpenAIClient) -> None:
    answer = await client.stream_chat("<<fault error:internal,after=3>>", max_tokens=8)
    assert (answer.text, answer.status, answer.finish_reason) == ("You", 500, None)


async def test_the_client_sees_what_the_engine_refuses(client: OpenAIClient) -> None:
    answer = await client.chat("<<fault error:invalid_argument,message=top_k must be small>>", max_tokens=8)
    assert answer.status == 400
    assert answer.error is not None
    assert "top_k must be small" in answer.error["message"]


async def test_the_client_does_not_see_what_broke_inside(client: OpenAIClient) -> None:
    answer = await client.chat("<<fault error:internal,message=segfault at 0x7f>>", max_tokens=8)
    assert answer.status == 500
    assert answer.error is not None
    assert "0x7f" not in answer.error["message"]

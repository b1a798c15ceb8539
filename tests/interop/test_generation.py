from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from tests.support.openai import Answer, OpenAIClient
from tests.support.site import Engine, Lab

pytestmark = pytest.mark.interop

PROMPT = "hello"
ANSWER = 'You said: "hello".'


@pytest.fixture(scope="module")
def engine(module_lab: Lab, frontend: OpenAIEndpoint) -> Engine:
    return module_lab.serve(frontend)[0]


@pytest.fixture
async def client(module_lab: Lab, engine: Engine, frontend: OpenAIEndpoint) -> AsyncIterator[OpenAIClient]:
    assert engine.process.exit_code is None
    async with module_lab.client(frontend) as client:
        yield client


async def test_unary_chat_ends_by_end_of_sequence(client: OpenAIClient) -> None:
    answer = await client.chat(PROMPT, max_tokens=64)
    assert (answer.status, answer.text, answer.finish_reason) == (200, ANSWER, "stop")


async def test_streamed_chat_says_the_same_in_pieces(client: OpenAIClient) -> None:
    answer = await client.stream_chat(PROMPT, max_tokens=64)
    assert (answer.status, answer.text, answer.finish_reason) == (200, ANSWER, "stop")
    assert answer.done
    assert len(answer.pieces) > 5


async def test_chat_without_a_limit_is_answered(client: OpenAIClient) -> None:
    answer = await client.chat(PROMPT)
    assert (answer.text, answer.finish_reason) == (ANSWER, "stop")


@pytest.mark.parametrize("ask", ["complete", "stream_completion"])
async def test_completion_is_answered(client: OpenAIClient, ask: str) -> None:
    answer = await getattr(client, ask)(PROMPT, max_tokens=64)
    assert (answer.status, answer.text, answer.finish_reason, answer.done) == (200, ANSWER, "stop", True)


@pytest.mark.parametrize("ask", ["chat", "stream_chat"])
async def test_length_limit_ends_with_length(client: OpenAIClient, ask: str) -> None:
    answer = await getattr(client, ask)(PROMPT, max_tokens=8)
    assert (answer.text, answer.finish_reason) == (ANSWER[:8], "length")
    assert answer.completion_tokens == 8


@pytest.mark.parametrize("ask", ["chat", "stream_chat"])
async def test_stop_string_ends_with_stop_and_is_not_shown(client: OpenAIClient, ask: str) -> None:
    answer = await getattr(client, ask)(PROMPT, max_tokens=64, stop=["said"])
    assert (answer.text, answer.finish_reason) == ("You ", "stop")


async def test_ignoring_the_end_goes_on_to_the_limit(client: OpenAIClient) -> None:
    answer = await client.chat(PROMPT, max_tokens=100, ignore_eos=True)
    assert answer.finish_reason == "length"
    assert answer.completion_tokens == 100


@pytest.mark.parametrize(("unary", "streamed"), [("chat", "stream_chat"), ("complete", "stream_completion")])
async def test_usage_counts_the_same_unary_and_streamed(client: OpenAIClient, unary: str, streamed: str) -> None:
    answers: list[Answer] = [await getattr(client, ask)(PROMPT, max_tokens=8) for ask in (unary, streamed)]
    counts = [(answer.prompt_tokens, answer.completion_tokens, answer.total_tokens) for answer in answers]
    assert counts[0] == counts[1]
    prompt, completion, total = counts[0]
    assert (completion, total) == (8, prompt + 8)
    assert prompt >= len(PROMPT)


async def test_prompt_tokens_reach_the_engine_unchanged(client: OpenAIClient, engine: Engine) -> None:
    answer = await client.complete("exactly these bytes", max_tokens=4)
    record = (await engine.stats())["records"][-1]
    assert record["prompt_tokens"] == answer.prompt_tokens


async def test_engine_ids_name_request_and_attempt(client: OpenAIClient, engine: Engine) -> None:
    for _ in range(2):
        await client.chat(PROMPT, max_tokens=4)
    ids = [record["request_id"].partition(".") for record in (await engine.stats())["records"][-2:]]
    assert [str(UUID(request)) for request, _, _ in ids] == [request for request, _, _ in ids]
    assert all(attempt for _, _, attempt in ids)
    assert ids[0] != ids[1]


async def test_parallel_requests_are_not_mixed_up(client: OpenAIClient) -> None:
    prompts = [f"number {number}" for number in range(40)]
    answers = await asyncio.gather(*(client.stream_chat(prompt, max_tokens=64) for prompt in prompts))
    assert [answer.text for answer in answers] == [f'You said: "{prompt}".' for prompt in prompts]


@pytest.mark.parametrize("tokens_per_event", ["1", "5", "64"])
async def test_f45_f46_every_token_comes_before_the_end(
    lab: Lab, frontend: OpenAIEndpoint, tokens_per_event: str
) -> None:
    lab.serve(frontend, engine_options=("--tokens-per-event", tokens_per_event))
    async with lab.client(frontend) as client:
        answer = await client.stream_chat(PROMPT, max_tokens=64)
        cut = await client.stream_chat(PROMPT, max_tokens=7)
    assert (answer.text, answer.finish_reason) == (ANSWER, "stop")
    assert (cut.text, cut.finish_reason, cut.completion_tokens) == (ANSWER[:7], "length", 7)

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from math import exp
from typing import Any

import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from tests.support.openai import CHAT, COMPLETIONS, OpenAIClient
from tests.support.site import Engine, Lab, Site

pytestmark = pytest.mark.interop

ANSWER = 'You said: "hello".'
CHAT_END = {"stop_token_id": 257}
PNG = "data:image/png;base64,iVBORw0KGgo="
OTHER_PNG = "data:image/png;base64,AAAA"
WAV = "data:audio/wav;base64,UklGRg=="
MP4 = "https://media.example/clip.mp4"
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}

Ask = Callable[..., Awaitable[tuple[dict[str, Any], dict[str, Any]]]]


@pytest.fixture(scope="module")
def engine(module_lab: Lab, frontend: OpenAIEndpoint) -> Engine:
    return module_lab.serve(frontend)[0]


@pytest.fixture
async def client(module_lab: Lab, engine: Engine, frontend: OpenAIEndpoint) -> AsyncIterator[OpenAIClient]:
    assert engine.process.exit_code is None
    async with module_lab.client(frontend) as client:
        yield client


@pytest.fixture
def ask(client: OpenAIClient, engine: Engine) -> Ask:
    """Asks, and returns the client's answer and what the engine heard."""

    async def ask(path: str = CHAT, prompt: object = "hello", **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        body = client.chat_body("", **options)
        if path == CHAT:
            body["messages"][0]["content"] = prompt
        else:
            body = {"model": client.model, "prompt": prompt, **options}
        status, reply = await client.post(path, body)
        assert status == 200, reply
        assert isinstance(reply, dict)
        return reply, (await engine.heard())[-1]["request"]

    return ask


@pytest.fixture(scope="module")
def bare_lab(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(site, tmp_path_factory.mktemp("bare"))
    yield lab
    lab.stack.kill()


@pytest.fixture(scope="module")
def bare_engine(bare_lab: Lab, frontend: OpenAIEndpoint) -> Engine:
    return bare_lab.serve(frontend, engine_options=("--minimal",))[0]


@pytest.fixture
async def bare(bare_lab: Lab, bare_engine: Engine, frontend: OpenAIEndpoint) -> AsyncIterator[OpenAIClient]:
    assert bare_engine.process.exit_code is None
    async with bare_lab.client(frontend) as client:
        yield client


def texts(reply: dict[str, Any]) -> list[str]:
    return [choice["message"]["content"] for choice in reply["choices"]]


async def test_chat_logprobs_come_with_alternatives(ask: Ask) -> None:
    reply, heard = await ask(max_tokens=3, logprobs=True, top_logprobs=2)
    content = reply["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content) == ANSWER[:3] == texts(reply)[0]
    assert [len(entry["top_logprobs"]) for entry in content] == [2, 2, 2]
    assert all(entry["top_logprobs"][0]["token"] == entry["token"] for entry in content)
    assert all(0 < exp(entry["logprob"]) <= 1 for entry in content)
    assert heard["response"] == {"return_output_logprobs": True, "output_candidates": {"top_n": 2}}


async def test_c30_logprobs_of_the_chosen_token_alone(ask: Ask) -> None:
    reply, heard = await ask(COMPLETIONS, max_tokens=3, logprobs=0)
    logprobs = reply["choices"][0]["logprobs"]
    assert logprobs["tokens"] == list(ANSWER[:3])
    assert len(logprobs["token_logprobs"]) == 3
    assert heard["response"] == {"return_output_logprobs": True}


async def test_completion_logprobs_are_aligned_with_tokens(ask: Ask) -> None:
    reply, heard = await ask(COMPLETIONS, max_tokens=3, logprobs=2)
    logprobs = reply["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"]) == reply["choices"][0]["text"] == ANSWER[:3]
    assert len(logprobs["token_logprobs"]) == len(logprobs["top_logprobs"]) == 3
    assert heard["response"]["output_candidates"] == {"top_n": 2}


async def test_prompt_logprobs_reach_the_client_of_a_unary_chat(ask: Ask) -> None:
    reply, heard = await ask(max_tokens=1, prompt_logprobs=1)
    scores = reply["prompt_logprobs"]
    assert scores[0] is None
    assert len(scores) == len(heard["token_ids"]["ids"]) == reply["usage"]["prompt_tokens"]
    assert [list(score) for score in scores[1:]] == [[str(token)] for token in heard["token_ids"]["ids"][1:]]


async def test_three_answers_have_three_texts(ask: Ask) -> None:
    reply, heard = await ask(max_tokens=6, n=3, temperature=0.7, seed=5)
    assert sorted(choice["index"] for choice in reply["choices"]) == [0, 1, 2]
    assert len(set(texts(reply))) == 3
    assert {choice["finish_reason"] for choice in reply["choices"]} == {"length"}
    assert reply["usage"]["completion_tokens"] == 18
    assert heard["sampling"]["num_sequences"] == 3


async def test_f46_both_streams_of_two_answers_end(client: OpenAIClient) -> None:
    ends: dict[int, str] = {}
    pieces: dict[int, str] = {}
    body = client.chat_body("hello", n=2, temperature=0.5, max_tokens=10)
    async for event in client.events(CHAT, body):
        for choice in event.get("choices", ()):
            index = choice["index"]
            assert index not in ends
            pieces[index] = pieces.get(index, "") + (choice["delta"].get("content") or "")
            if choice.get("finish_reason"):
                ends[index] = choice["finish_reason"]
    assert ends == {0: "length", 1: "length"}
    assert all(len(text) == 10 for text in pieces.values())


@pytest.mark.parametrize("stop", ["said", ["nowhere", "said"]], ids=["string", "list"])
async def test_stops_are_the_engines_business_too(ask: Ask, stop: object) -> None:
    reply, heard = await ask(max_tokens=32, stop=stop)
    assert (texts(reply), reply["choices"][0]["finish_reason"]) == (["You "], "stop")
    wanted = [stop] if isinstance(stop, str) else stop
    conditions = heard["stopping"]["conditions"]
    assert [condition["stop_text"] for condition in conditions if "stop_text" in condition] == wanted
    assert CHAT_END in conditions


async def test_a_seed_repeats_its_answer(ask: Ask) -> None:
    sampled = {"max_tokens": 24, "temperature": 1.0, "seed": 7}
    first, _ = await ask(**sampled)
    again, heard = await ask(**sampled)
    other, _ = await ask(**{**sampled, "seed": 8})
    assert texts(first) == texts(again) != texts(other)
    assert heard["sampling"]["seed"] == "7"


async def test_a_json_schema_shapes_the_answer(ask: Ask) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    reply, heard = await ask(max_tokens=64, response_format=wanted)
    assert list(json.loads(texts(reply)[0])) == ["a"]
    assert json.loads(heard["guided"]["json_schema"]) == SCHEMA


async def test_a_json_object_is_asked_for_as_one(ask: Ask) -> None:
    reply, heard = await ask(max_tokens=64, response_format={"type": "json_object"})
    assert isinstance(json.loads(texts(reply)[0]), dict)
    assert heard["guided"] == {"json_object": {}}


async def test_one_token_is_one_token(ask: Ask) -> None:
    reply, heard = await ask(max_tokens=1)
    assert (texts(reply), reply["choices"][0]["finish_reason"]) == (["Y"], "length")
    assert heard["stopping"]["max_tokens"] == 1


async def test_priority_and_cache_salt_reach_the_engine(ask: Ask) -> None:
    _, heard = await ask(max_tokens=1, nvext={"agent_hints": {"priority": 7}, "cache_salt": "tenant"})
    assert heard["priority"] == 7
    assert heard["kv"] == {"cache_salt": "tenant"}


async def test_f49_media_arrive_in_the_order_of_the_message(ask: Ask) -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "audio_url", "audio_url": {"url": WAV}},
        {"type": "text", "text": "and"},
        {"type": "image_url", "image_url": {"url": OTHER_PNG}},
        {"type": "video_url", "video_url": {"url": MP4}},
    ]
    reply, heard = await ask(prompt=parts, max_tokens=200)
    assert heard["media"] == [
        {"modality": "MODALITY_IMAGE", "data_uri": PNG},
        {"modality": "MODALITY_AUDIO", "data_uri": WAV},
        {"modality": "MODALITY_IMAGE", "data_uri": OTHER_PNG},
        {"modality": "MODALITY_VIDEO", "url": MP4},
    ]
    said = texts(reply)[0]
    places = [said.index(f"[{kind} ") for kind in ("image", "audio", "video")]
    assert places == sorted(places)
    assert said.count("[image ") == 2


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"n": 2, "temperature": 1.0}, "sampling_options.n"),
        ({"logprobs": True}, "logprobs"),
        ({"response_format": {"type": "json_object"}}, "guided_decoding"),
        ({"nvext": {"agent_hints": {"priority": 1}}}, "priority"),
        ({"nvext": {"cache_salt": "tenant"}}, "cache_salt"),
    ],
    ids=["n", "logprobs", "guided", "priority", "cache-salt"],
)
async def test_what_an_engine_does_not_advertise_is_refused_by_name(
    bare: OpenAIClient, options: dict[str, Any], field: str
) -> None:
    unary = await bare.chat("hello", max_tokens=4, **options)
    streamed = await bare.stream_chat("hello", max_tokens=4, **options)
    assert (unary.status, streamed.status) == (400, 400), (unary, streamed)
    assert field in str(unary.error)
    assert field in str(streamed.error)


async def test_f49_an_image_for_a_text_engine_is_refused_before_it_hears_of_it(
    bare: OpenAIClient, bare_engine: Engine
) -> None:
    before = await bare_engine.count("requests")
    body = bare.chat_body("")
    body["messages"][0]["content"] = [{"type": "image_url", "image_url": {"url": PNG}}]
    status, reply = await bare.post(CHAT, body)
    assert status == 400
    assert "image" in str(reply)
    assert await bare_engine.count("requests") == before


async def test_an_engine_that_advertises_nothing_optional_serves_text(bare: OpenAIClient) -> None:
    assert (await bare.chat("hello", max_tokens=64)).text == ANSWER

from __future__ import annotations

from typing import Any

import grpc
import pytest

from openengine_sidecar.launch.engine import ReferenceEngine
from tests.engine.caller import Caller, Request, ask, serving

NAN = float("nan")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"request_id": ""}, "request_id"),
        ({"sampling": {"temperature": -0.1}}, "temperature"),
        ({"sampling": {"temperature": NAN}}, "temperature"),
        ({"sampling": {"temperature": float("inf")}}, "temperature"),
        ({"sampling": {"top_p": 0.0}}, "top_p"),
        ({"sampling": {"top_p": 1.1}}, "top_p"),
        ({"sampling": {"top_p": NAN}}, "top_p"),
        ({"sampling": {"top_k": -2}}, "top_k"),
        ({"sampling": {"min_p": 1.5}}, "min_p"),
        ({"sampling": {"frequency_penalty": 2.5}}, "frequency_penalty"),
        ({"sampling": {"presence_penalty": -2.5}}, "presence_penalty"),
        ({"sampling": {"repetition_penalty": 0.0}}, "repetition_penalty"),
        ({"sampling": {"num_sequences": 0}}, "num_sequences"),
        ({"stopping": {"max_tokens": 0}}, "max_tokens"),
        ({"stopping": {"max_tokens": 3, "min_tokens": 4}}, "min_tokens"),
        ({"stopping": {"max_tokens": 40_000}}, "context"),
        ({"stopping": {"min_tokens": 40_000}}, "min_tokens"),
        ({"stopping": {"conditions": [{"stop_text": ""}]}}, "stop condition is empty"),
        ({"stopping": {"conditions": [{}]}}, "stop condition is empty"),
        ({"stopping": {"conditions": [{"stop_token_id": 1}] * 65}}, "64 stop conditions"),
        ({"response": {"output_candidates": {"top_n": 1}}}, "return_output_logprobs"),
        ({"response": {"prompt_candidates": {"top_n": 1}}}, "return_prompt_logprobs"),
        (
            {"response": {"return_output_logprobs": True, "output_candidates": {"token_ids": {"ids": [266]}}}},
            "vocabulary",
        ),
        ({"response": {"return_prompt_logprobs": True, "prompt_logprob_start": 99}}, "prompt_logprob_start"),
        ({"guided": {"regex": "("}}, "character"),
        ({"guided": {"regex": "(" * 20_000}}, "too deeply"),
        ({"guided": {"regex": "a", "backend": "another"}}, "backend 'another'"),
        ({"guided": {"json_schema": '{"type":"integer","minimum":2,"maximum":1}'}}, "no number"),
        ({"metadata": {"fault": "nonsense"}}, "nonsense"),
    ],
)
async def test_what_no_engine_could_do_is_invalid(
    engine: ReferenceEngine, caller: Caller, fields: dict[str, Any], problem: str
) -> None:
    answer = await caller.generate(ask(**{"request_id": "r", **fields}))
    assert answer.status is grpc.StatusCode.INVALID_ARGUMENT
    assert problem in answer.reason
    assert not answer.events
    assert engine.stats.requests == engine.stats.active == 0
    assert engine.stats.refused == {"INVALID_ARGUMENT": 1}


@pytest.mark.parametrize("ids", [[], [1, 2, 266], [4_000_000_000]])
async def test_bad_token_ids_are_invalid(caller: Caller, ids: list[int]) -> None:
    answer = await caller.generate(Request(request_id="r", token_ids={"ids": ids}))
    assert answer.status is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_request_without_input_is_invalid(caller: Caller) -> None:
    assert (await caller.generate(Request(request_id="r"))).status is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_prompt_as_long_as_the_context_is_invalid() -> None:
    async with serving(max_context_length=10) as (_, caller):
        statuses = [(await caller.generate(ask("x" * length))).status for length in (5, 6)]
    assert statuses == [grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT]


async def test_another_model_is_not_found() -> None:
    async with serving(served_model_name="toy", aliases=("pet",)) as (engine, caller):
        models = ["", "toy", "pet", str(engine.options.model_path), "model"]
        statuses = [(await caller.generate(ask(model=model))).status for model in models]
    assert statuses == [grpc.StatusCode.OK] * 4 + [grpc.StatusCode.NOT_FOUND]


async def test_a_session_is_not_for_an_aggregated_engine(caller: Caller) -> None:
    answer = await caller.generate(ask(kv={"session": {"session_id": "s"}}))
    assert answer.status is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize("temperature", [0.0, 5.0])
@pytest.mark.parametrize("conditions", [[], [{"stop_token_id": 0}] * 64])
async def test_the_edges_are_valid(caller: Caller, temperature: float, conditions: list[Any]) -> None:
    sampling = {"temperature": temperature, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "frequency_penalty": -2.0}
    answer = await caller.generate(ask(sampling=sampling, stopping={"max_tokens": 1, "conditions": conditions}))
    assert answer.status is grpc.StatusCode.OK

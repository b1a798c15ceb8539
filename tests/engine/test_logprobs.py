from __future__ import annotations

import math
from typing import Any

import pytest

from openengine_sidecar.proto.rev2 import generation_pb2
from tests.engine.caller import Caller, ask

TokenInfo = generation_pb2.TokenInfo


async def infos(caller: Caller, response: dict[str, Any], **fields: Any) -> list[TokenInfo]:
    answer = await caller.generate(ask("hey", response={"return_output_logprobs": True, **response}, **fields))
    return answer.infos()


async def prompt(caller: Caller, response: dict[str, Any]) -> list[TokenInfo]:
    answer = await caller.generate(ask("hey", response={"return_prompt_logprobs": True, **response}))
    assert answer.kinds.count("prompt") == 1
    assert answer.kinds[0] == "prompt"
    return list(answer.events[0].prompt.tokens)


async def test_no_logprobs_unless_asked_for(caller: Caller) -> None:
    answer = await caller.generate(ask())
    assert "prompt" not in answer.kinds
    assert not any(info.HasField("logprob") or info.HasField("rank") or info.token for info in answer.infos())


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.5, "seed": 3}])
async def test_candidates_of_the_whole_vocabulary_sum_to_one(caller: Caller, sampling: dict[str, Any]) -> None:
    for info in await infos(caller, {"output_candidates": {"all": {}}}, sampling=sampling):
        assert math.isclose(sum(math.exp(candidate.logprob) for candidate in info.candidates), 1.0, rel_tol=1e-9)
        assert sorted(candidate.token_id for candidate in info.candidates) == list(range(266))
        assert [candidate.rank for candidate in info.candidates] == list(range(1, 267))
        [own] = [candidate for candidate in info.candidates if candidate.token_id == info.token_id]
        assert (own.logprob, own.rank, own.token) == (info.logprob, info.rank, info.token)


async def test_the_chosen_token_alone(caller: Caller) -> None:
    found = await infos(caller, {})
    assert "".join(info.token for info in found) == 'You said: "hey".'
    assert all(info.HasField("logprob") and info.rank == 1 and not info.candidates for info in found)


async def test_garbled_tokens_have_lower_ranks(caller: Caller) -> None:
    found = await infos(caller, {"output_candidates": {"top_n": 1}}, sampling={"temperature": 2.0, "seed": 3})
    strays = [info for info in found if info.rank > 1]
    assert strays
    for info in strays:
        assert info.candidates[0].rank == 1
        assert info.candidates[0].logprob > info.logprob


@pytest.mark.parametrize("count", [0, 1, 5, 20])
async def test_top_candidates_come_by_rank(caller: Caller, count: int) -> None:
    for info in await infos(caller, {"output_candidates": {"top_n": count}}):
        assert [candidate.rank for candidate in info.candidates] == list(range(1, count + 1))
        logprobs = [candidate.logprob for candidate in info.candidates]
        assert logprobs == sorted(logprobs, reverse=True)


async def test_candidates_by_id(caller: Caller) -> None:
    for info in await infos(caller, {"output_candidates": {"token_ids": {"ids": [5, 65]}}}):
        assert [candidate.token_id for candidate in info.candidates] == [5, 65]


async def test_details_stay_aligned_when_a_stop_is_cut(caller: Caller) -> None:
    found = await infos(caller, {}, stopping={"conditions": [{"stop_text": "said"}]})
    assert [(info.token_id, info.token) for info in found] == [(ord(char), char) for char in "You "]


async def test_a_guided_answer_has_logprobs_too(caller: Caller) -> None:
    found = await infos(caller, {}, guided={"choice": {"choices": ["yes"]}})
    assert [info.token for info in found] == ["y", "e", "s"]
    assert all(info.logprob < 0 for info in found)


async def test_prompt_logprobs_leave_the_first_token_bare(caller: Caller) -> None:
    first, *others = await prompt(caller, {"prompt_candidates": {"top_n": 2}})
    assert (first.token_id, first.token) == (256, "<|bos|>")
    assert not first.HasField("logprob")
    assert not first.HasField("rank")
    assert not first.candidates
    assert [info.token for info in others] == ["<|user|>", "h", "e", "y", "<|eot|>", "<|assistant|>"]
    assert all(info.HasField("logprob") and len(info.candidates) == 2 for info in others)


async def test_prompt_logprobs_may_start_later(caller: Caller) -> None:
    found = await prompt(caller, {"prompt_logprob_start": 4})
    assert [info.token for info in found] == ["y", "<|eot|>", "<|assistant|>"]
    assert all(info.HasField("logprob") for info in found)


async def test_long_prompts_are_scored_whole(caller: Caller) -> None:
    answer = await caller.generate(
        ask("x" * 700, response={"return_prompt_logprobs": True}, stopping={"max_tokens": 1})
    )
    assert len(answer.events[0].prompt.tokens) == 704

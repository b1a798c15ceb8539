from __future__ import annotations

from typing import Any

import pytest

from openengine_sidecar.launch.engine.distribution import Distribution, Sampler, log_softmax, uniform
from openengine_sidecar.launch.engine.options import SHIPPED_MODEL
from openengine_sidecar.launch.engine.tokenizer import load_tokenizer
from openengine_sidecar.proto.rev2 import generation_pb2
from tests.engine.caller import Caller, ask

TEXT = "the quick brown fox jumps over the lazy dog"
ECHO = f'You said: "{TEXT}".'
TOKENIZER = load_tokenizer(SHIPPED_MODEL)
DISTRIBUTION = Distribution(TOKENIZER, seed=0)


async def said(caller: Caller, request_id: str = "r", **sampling: Any) -> str:
    return (await caller.generate(ask(TEXT, request_id, sampling=sampling))).text()


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.0}, {"temperature": 0.0, "seed": 3}, {"top_p": 0.5}])
async def test_without_temperature_it_is_the_echo(caller: Caller, sampling: dict[str, Any]) -> None:
    assert await said(caller, **sampling) == ECHO


async def test_a_temperature_garbles_letters_and_a_seed_repeats_them(caller: Caller) -> None:
    garbled = await said(caller, temperature=1.5, seed=1)
    assert garbled != ECHO
    assert len(garbled) == len(ECHO)
    assert garbled.isascii()
    assert garbled.isprintable()
    assert await said(caller, "another", temperature=1.5, seed=1) == garbled
    assert await said(caller, temperature=1.5, seed=2) != garbled


async def test_without_seed_requests_differ(caller: Caller) -> None:
    assert await said(caller, "a", temperature=1.5) != await said(caller, "b", temperature=1.5)


async def test_more_temperature_garbles_more(caller: Caller) -> None:
    def distance(text: str) -> int:
        return sum(a != b for a, b in zip(text, ECHO, strict=True))

    cool, hot = [distance(await said(caller, temperature=t, seed=5)) for t in (0.7, 2.0)]
    assert cool < hot


@pytest.mark.parametrize("sampling", [{"top_k": 1}, {"top_p": 0.01}, {"min_p": 1.0}])
async def test_truncation_leaves_only_the_likeliest(caller: Caller, sampling: dict[str, Any]) -> None:
    assert await said(caller, temperature=2.0, seed=5, **sampling) == ECHO


@pytest.mark.parametrize("top_k", [0, -1])
async def test_top_k_may_be_off(caller: Caller, top_k: int) -> None:
    plain = await said(caller, temperature=2.0, seed=5)
    assert await said(caller, temperature=2.0, seed=5, top_k=top_k) == plain


@pytest.mark.parametrize(
    "sampling", [{"frequency_penalty": 2.0}, {"presence_penalty": 2.0}, {"repetition_penalty": 2.0}]
)
async def test_penalties_change_what_repeats(caller: Caller, sampling: dict[str, Any]) -> None:
    text = await said(caller, **sampling, temperature=1.0, seed=11)
    assert text != await said(caller, temperature=1.0, seed=11)


async def test_a_frequency_penalty_works_without_temperature(caller: Caller) -> None:
    answer = await caller.generate(ask("a" * 12, sampling={"frequency_penalty": 2.0}))
    assert answer.text().count("a") < 12


async def test_outputs_are_garbled_each_in_its_way(caller: Caller) -> None:
    answer = await caller.generate(ask(TEXT, sampling={"temperature": 1.5, "seed": 4, "num_sequences": 2}))
    tails = [answer.text(index)[-len(TEXT) :] for index in (0, 1)]
    assert tails[0] != tails[1]


def test_top_k_limits_the_choice() -> None:
    logits = DISTRIBUTION.logits(ord("x"), 1, 1)
    best = sorted(range(len(logits)), key=logits.__getitem__, reverse=True)[:3]
    sampler = Sampler(generation_pb2.SamplingParams(temperature=50.0, top_k=3), "seed", [])
    assert {sampler.choose(logits, position) for position in range(200)} == set(best)


def test_choices_follow_the_distribution() -> None:
    logits = DISTRIBUTION.logits(ord("x"), 1, 1)
    share = 2.718281828 ** log_softmax(logits)[ord("x")]
    sampler = Sampler(generation_pb2.SamplingParams(temperature=1.0), "seed", [])
    hits = sum(sampler.choose(logits, position) == ord("x") for position in range(1500))
    assert abs(hits / 1500 - share) < 0.03


def test_uniform_numbers_lie_in_the_unit_interval() -> None:
    numbers = [uniform("s", position) for position in range(500)]
    assert 0 <= min(numbers) < 0.02
    assert 0.98 < max(numbers) < 1

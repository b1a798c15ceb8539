from __future__ import annotations

import json
import re
from typing import Any

import pytest

from openengine_sidecar.proto.rev2 import generation_pb2
from tests.engine.caller import Answer, Caller, Request, ask, chat

STOP = generation_pb2.FINISH_REASON_STOP


async def guided(caller: Caller, guide: dict[str, Any], text: str = "I like green", **fields: Any) -> Answer:
    return await caller.generate(ask(text, guided=guide, **fields))


async def test_choice(caller: Caller) -> None:
    answer = await guided(caller, {"choice": {"choices": ["red", "green"]}})
    assert (answer.text(), answer.finished().reason) == ("green", STOP)


async def test_regex(caller: Caller) -> None:
    assert re.fullmatch(r"\d{3}-[a-z]+", (await guided(caller, {"regex": r"\d{3}-[a-z]+"})).text())


async def test_grammar(caller: Caller) -> None:
    assert (await guided(caller, {"ebnf_grammar": 'root ::= "a" [b]{3}'})).text() == "abbb"


async def test_json_object(caller: Caller) -> None:
    assert json.loads((await guided(caller, {"json_object": {}})).text()) == {"said": "I like green"}


async def test_json_schema(caller: Caller) -> None:
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "green"]}}, "required": ["colour"]}
    answer = await guided(caller, {"json_schema": json.dumps(schema), "backend": "auto"})
    assert json.loads(answer.text()) == {"colour": "green"}


@pytest.mark.parametrize("stopping", [{"ignore_eos": True}, {"min_tokens": 100}])
async def test_a_complete_constraint_ends_the_output(caller: Caller, stopping: dict[str, Any]) -> None:
    answer = await guided(caller, {"choice": {"choices": ["green"]}}, stopping=stopping)
    assert (answer.text(), answer.finished().reason) == ("green", STOP)


async def test_the_length_limit_cuts_a_constraint(caller: Caller) -> None:
    answer = await guided(caller, {"choice": {"choices": ["green"]}}, stopping={"max_tokens": 3})
    assert (answer.text(), answer.finished().reason) == ("gre", generation_pb2.FINISH_REASON_LENGTH)


async def test_sampling_varies_within_the_constraint(caller: Caller) -> None:
    texts = [
        (await guided(caller, {"regex": "[a-z]{12}"}, sampling={"temperature": 1.0, "seed": seed})).text()
        for seed in (1, 2, 1)
    ]
    assert texts[0] == texts[2] != texts[1]
    assert all(re.fullmatch("[a-z]{12}", text) for text in texts)


async def test_outputs_satisfy_it_each(caller: Caller) -> None:
    answer = await guided(caller, {"regex": "[0-9]{12}"}, sampling={"num_sequences": 2})
    assert all(re.fullmatch("[0-9]{12}", answer.text(index)) for index in (0, 1))
    assert answer.text(0) != answer.text(1)


async def test_a_resumed_constraint_goes_on(caller: Caller) -> None:
    guide: Any = {"json_object": {}}
    whole = (await guided(caller, guide, "hello")).ids()
    request = Request(request_id="2", token_ids={"ids": [*chat("hello"), *whole[:5]]}, guided=guide)
    assert whole[:5] + (await caller.generate(request)).ids() == whole

from __future__ import annotations

import json
from typing import Any

import pytest

from openengine_sidecar.launch.engine.core import ANSWERS
from openengine_sidecar.launch.engine.service import METHODS
from openengine_sidecar.messages.errors import ConfigurationError
from openengine_sidecar.proto.rev2 import engine_pb2, lifecycle_pb2, model_pb2, observability_pb2
from tests.engine.caller import Caller, serving


async def engine_info(caller: Caller) -> Any:
    return await caller.unary("GetEngineInfo", engine_pb2.GetEngineInfoRequest(), engine_pb2.EngineInfo)


def test_every_unary_method_that_is_built_can_be_amended() -> None:
    assert ANSWERS.keys() == {name for name, method in METHODS.items() if method.unary is not None}


async def test_fields_are_replaced_and_null_clears() -> None:
    change = {"role": 99, "supported_models": ["a", "b"], "engine_version": None}
    text = json.dumps({**change, "parallelism": {"data_parallel_size": 3}})
    async with serving(answers=(f"GetEngineInfo={text}",)) as (_, caller):
        info = await engine_info(caller)
    assert (info.role, list(info.supported_models), info.engine_version) == (99, ["a", "b"], "")
    assert (info.parallelism.data_parallel_size, info.parallelism.tensor_parallel_size) == (3, 1)


async def test_lists_inside_messages_are_replaced_too() -> None:
    change = '{"generation": {"guided_decoding": {"modes": [2]}, "max_num_sequences": null}, "supports_lora": null}'
    async with serving(answers=(f"GetModelInfo={change}",)) as (_, caller):
        info = await caller.unary("GetModelInfo", model_pb2.GetModelInfoRequest(), model_pb2.ModelInfo)
    assert list(info.generation.guided_decoding.modes) == [2]
    assert not info.generation.HasField("max_num_sequences")
    assert info.generation.supports_priority
    assert not info.HasField("supports_lora")


async def test_answers_change_while_it_runs() -> None:
    async with serving() as (engine, caller):
        first = await engine_info(caller)
        engine.core.answers.play(['GetEngineInfo={"instance_id": "another"}', 'GetLoad={"used_kv_blocks": null}'])
        second = await engine_info(caller)
        load = await caller.unary("GetLoad", observability_pb2.GetLoadRequest(), observability_pb2.LoadInfo)
        health = await caller.unary("Health", lifecycle_pb2.HealthRequest(), lifecycle_pb2.HealthResponse)
        engine.core.answers.play([])
        third = await engine_info(caller)
    assert first == third != second
    assert second.instance_id == "another"
    assert not load.HasField("used_kv_blocks")
    assert health.state == lifecycle_pb2.HEALTH_STATE_READY


@pytest.mark.parametrize("method", ["GetLoad", "Generate"])
@pytest.mark.parametrize("body", ["", "=x", "=[]", '={"ranks": 1}', '={"x": 1}'])
async def test_bad_amendments_are_refused(method: str, body: str) -> None:
    with pytest.raises(ConfigurationError, match="--answer"):
        async with serving(answers=(method + body,)):
            pass

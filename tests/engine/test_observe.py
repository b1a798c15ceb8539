from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from openengine_sidecar.launch.engine.health import HealthScript
from openengine_sidecar.messages.errors import ConfigurationError
from openengine_sidecar.proto.rev2 import engine_pb2, lifecycle_pb2, model_pb2, observability_pb2
from tests.engine.caller import Caller, ask, serving


async def health(caller: Caller, **fields: Any) -> lifecycle_pb2.HealthResponse:
    request = lifecycle_pb2.HealthRequest(**fields)
    response: lifecycle_pb2.HealthResponse = await caller.unary(
        "Health", request, lifecycle_pb2.HealthResponse, timeout=5
    )
    return response


async def outcome(caller: Caller, **fields: Any) -> object:
    try:
        return (await health(caller, **fields)).state
    except grpc.aio.AioRpcError as error:
        return error.code()


async def load(caller: Caller, *, ranks: bool = False) -> observability_pb2.LoadInfo:
    request = observability_pb2.GetLoadRequest(include_per_rank=ranks)
    response: observability_pb2.LoadInfo = await caller.unary("GetLoad", request, observability_pb2.LoadInfo)
    return response


async def test_health_names_its_checks(caller: Caller) -> None:
    plain = await health(caller)
    assert plain.state == lifecycle_pb2.HEALTH_STATE_READY
    assert [check.name for check in plain.checks] == ["grpc", "model", "scheduler"]
    probed = await health(caller, include_inference_probe=True, role="ENGINE_ROLE_AGGREGATED")
    assert [check.name for check in probed.checks][-1] == "inference_probe"
    assert all(check.state == lifecycle_pb2.HEALTH_STATE_READY for check in probed.checks)


async def test_health_of_another_model_or_role(caller: Caller) -> None:
    assert await outcome(caller, model="another") is grpc.StatusCode.NOT_FOUND
    assert await outcome(caller, role="ENGINE_ROLE_DECODE") is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_script_answers_in_order_and_its_last_entry_stays() -> None:
    script = "starting*2,unavailable,77,unimplemented,overloaded,degraded"
    async with serving(health=script) as (_, caller):
        found = [await outcome(caller) for _ in range(9)]
    codes = grpc.StatusCode
    assert found == [1, 1, codes.UNAVAILABLE, 77, codes.UNIMPLEMENTED, codes.RESOURCE_EXHAUSTED, 3, 3, 3]


async def test_a_script_may_hang_and_be_replaced() -> None:
    async with serving(health="hang") as (engine, caller):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await caller.unary("Health", lifecycle_pb2.HealthRequest(), lifecycle_pb2.HealthResponse, timeout=0.05)
        assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        engine.core.health.play("not_ready")
        assert await outcome(caller) == lifecycle_pb2.HEALTH_STATE_NOT_READY


@pytest.mark.parametrize("script", ["", "happy", "ready*", "ready,,ready", "ready*x"])
def test_a_bad_script_is_refused(script: str) -> None:
    with pytest.raises(ConfigurationError, match="--health"):
        HealthScript(script)


async def test_a_starting_engine_is_unavailable_until_it_is_ready() -> None:
    async with serving(start_delay=3600.0) as (engine, caller):
        assert (await caller.generate(ask())).status is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await caller.unary("GetEngineInfo", engine_pb2.GetEngineInfoRequest(), engine_pb2.EngineInfo)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await outcome(caller) == lifecycle_pb2.HEALTH_STATE_STARTING
        engine.core.starting = False
        assert await outcome(caller) == lifecycle_pb2.HEALTH_STATE_READY
        assert (await caller.generate(ask())).status is grpc.StatusCode.OK


async def test_the_start_delay_ends() -> None:
    async with serving(start_delay=0.01) as (engine, caller):
        await asyncio.gather(*engine.tasks)
        assert (await caller.generate(ask())).status is grpc.StatusCode.OK


async def test_info_is_what_the_options_say() -> None:
    options: dict[str, Any] = {
        "schema_release": "main",
        "schema_revision": 0,
        "minimum_client_revision": 9,
        "engine_name": "toy",
        "served_model_name": "pet",
        "aliases": ("dog",),
        "reasoning_parser": "r",
        "tool_call_parser": "t",
    }
    async with serving(**options) as (engine, caller):
        info = await caller.unary("GetEngineInfo", engine_pb2.GetEngineInfoRequest(), engine_pb2.EngineInfo)
        model = await caller.unary("GetModelInfo", model_pb2.GetModelInfoRequest(model="dog"), model_pb2.ModelInfo)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await caller.unary("GetModelInfo", model_pb2.GetModelInfoRequest(model="cat"), model_pb2.ModelInfo)
    assert (info.schema_release, info.schema_revision, info.minimum_client_revision) == ("main", 0, 9)
    assert (info.engine_name, info.role, info.instance_id) == ("toy", 1, engine.core.instance_id)
    assert list(info.supported_models) == [model.model_id] == [str(engine.options.model_path)]
    assert (model.served_model_name, list(model.served_model_aliases)) == ("pet", ["dog"])
    assert (model.reasoning_parser, model.tool_call_parser) == ("r", "t")
    assert error.value.code() is grpc.StatusCode.NOT_FOUND


async def test_each_engine_is_an_instance_of_its_own() -> None:
    async with serving() as (first, _), serving() as (second, _):
        assert first.core.instance_id != second.core.instance_id


async def test_load_of_an_idle_engine_is_measured_zero(caller: Caller) -> None:
    found = await load(caller)
    for field in ("running_requests", "queued_requests", "used_kv_blocks", "running_tokens", "waiting_tokens"):
        assert found.HasField(field)
        assert getattr(found, field) == 0
    assert found.total_kv_blocks == 8192
    assert found.HasField("timestamp_unix_nanos")
    assert not found.HasField("active_kv_sessions")
    assert not found.ranks
    assert dict(found.attributes) == {"simulator": "true"}


async def test_load_counts_running_and_queued_by_rank() -> None:
    async with serving(faults=("silent",), max_running_requests=3, data_parallel_size=2, kv_block_size=8) as (
        engine,
        caller,
    ):
        calls = [caller.start(ask("x" * 12, str(n), kv={"data_parallel_rank": n % 2})) for n in range(4)]
        await asyncio.wait_for(engine.stats.until(lambda stats: stats.active == 4), 10)
        found = await load(caller, ranks=True)
        for call in calls:
            call.cancel()
        await asyncio.wait_for(engine.stats.until(lambda stats: stats.active == 0), 10)
        assert (await load(caller)).running_requests == 0
    assert (found.running_requests, found.queued_requests) == (3, 1)
    assert (found.running_tokens, found.waiting_tokens) == (48, 16)
    assert (found.used_kv_blocks, found.total_kv_blocks) == (6, 2 * 8192)
    ranks = [(rank.running_requests, rank.queued_requests, rank.used_kv_blocks) for rank in found.ranks]
    assert [rank.data_parallel_rank for rank in found.ranks] == [0, 1]
    assert sorted(ranks) == [(1, 1, 2), (2, 0, 4)]

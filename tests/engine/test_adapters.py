from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from openengine_sidecar.proto.rev2 import lora_pb2
from tests.engine.caller import Caller, ask, serving

OK, NOT_FOUND = grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND
ADAPTER = {"lora_name": "a", "lora_id": 1, "source_path": "/adapters/a"}


async def load(caller: Caller, **changes: Any) -> lora_pb2.LoadLoraResponse:
    request = lora_pb2.LoadLoraRequest(adapter=lora_pb2.LoraAdapter(**{**ADAPTER, **changes}))
    answer: lora_pb2.LoadLoraResponse = await caller.unary("LoadLora", request, lora_pb2.LoadLoraResponse)
    return answer


async def load_status(caller: Caller, **changes: Any) -> grpc.StatusCode:
    try:
        await load(caller, **changes)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return OK


async def unload(caller: Caller, name: str) -> grpc.StatusCode:
    try:
        await caller.unary("UnloadLora", lora_pb2.UnloadLoraRequest(lora_name=name), lora_pb2.UnloadLoraResponse)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return OK


async def names(caller: Caller) -> list[str]:
    listing = await caller.unary("ListLoras", lora_pb2.ListLorasRequest(), lora_pb2.ListLorasResponse)
    return [adapter.lora_name for adapter in listing.adapters]


async def test_an_adapter_is_loaded_listed_shown_in_answers_and_unloaded(caller: Caller) -> None:
    assert not (await load(caller)).already_loaded
    assert (await load(caller)).already_loaded
    assert await names(caller) == ["a"]
    assert "[adapter a]" in (await caller.generate(ask("hi", lora_name="a"))).text()
    assert "[adapter" not in (await caller.generate(ask("hi"))).text()
    assert await unload(caller, "a") is OK
    assert await names(caller) == []
    assert (await caller.generate(ask("hi", lora_name="a"))).status is NOT_FOUND
    assert await unload(caller, "a") is NOT_FOUND


@pytest.mark.parametrize("changes", [{"lora_id": 2}, {"lora_name": "b"}, {"source_path": "/elsewhere"}], ids=str)
async def test_an_adapter_is_all_three_together(caller: Caller, changes: dict[str, Any]) -> None:
    await load(caller)
    assert await load_status(caller, **changes) is grpc.StatusCode.ALREADY_EXISTS
    assert await names(caller) == ["a"]


@pytest.mark.parametrize("changes", [{"lora_id": 0}, {"lora_id": -1}, {"lora_name": ""}, {"source_path": "a"}], ids=str)
async def test_an_unusable_adapter_is_refused(caller: Caller, changes: dict[str, Any]) -> None:
    assert await load_status(caller, **changes) is grpc.StatusCode.INVALID_ARGUMENT
    assert await names(caller) == []


async def test_there_is_room_for_so_many() -> None:
    async with serving(max_loras=1) as (_, caller):
        await load(caller)
        assert await load_status(caller, lora_name="b", lora_id=2) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await unload(caller, "a") is OK
        assert await load_status(caller, lora_name="b", lora_id=2) is OK


async def test_an_engine_may_be_started_without_adapters() -> None:
    async with serving(without=frozenset({"lora"})) as (_, caller):
        assert await load_status(caller) is grpc.StatusCode.FAILED_PRECONDITION
        assert await unload(caller, "a") is grpc.StatusCode.FAILED_PRECONDITION
        with pytest.raises(grpc.aio.AioRpcError, match="without adapters"):
            await names(caller)


async def test_a_minimal_engine_has_no_such_calls() -> None:
    async with serving(minimal=True) as (_, caller):
        assert await load_status(caller) is grpc.StatusCode.UNIMPLEMENTED


async def test_an_engine_that_comes_back_has_forgotten_them() -> None:
    for _ in range(2):
        async with serving() as (_, caller):
            assert await names(caller) == []
            await load(caller)


async def test_calls_can_be_refused_by_script() -> None:
    async with serving(faults=("rpc:LoadLora,status=resource_exhausted@1",)) as (_, caller):
        assert await load_status(caller) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await load_status(caller) is OK

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from openengine_sidecar.messages.engine.lora import LoraAdapter, LoraListing, LoraOutcome, LoraStatus
from openengine_sidecar.proto.dialect import EngineCallError, UndecodableError
from openengine_sidecar.proto.fields import FieldError
from openengine_sidecar.proto.rev2.lora_pb2 import ListLorasResponse, LoadLoraResponse, UnloadLoraResponse
from openengine_sidecar.proto.rev2.lora_pb2 import LoraAdapter as WireAdapter
from openengine_sidecar.proto.rev2_dialect import Method, Revision2
from tests.proto.engine import Reply, answering, connected, refusing

REV2 = Revision2()
ADAPTER = LoraAdapter(name="my/lora", id=7, path="/adapters/my")
ANOTHER = WireAdapter(lora_id=8, lora_name="ano\nther", source_path="/adapters/another")
ANSWERS = {
    Method.LOAD_LORA: (grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.FAILED_PRECONDITION),
    Method.UNLOAD_LORA: (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION),
    Method.LIST_LORAS: (grpc.StatusCode.FAILED_PRECONDITION,),
}
ERRORS = [
    (method, code)
    for method, answers in ANSWERS.items()
    for code in grpc.StatusCode
    if code not in {grpc.StatusCode.OK, grpc.StatusCode.UNIMPLEMENTED, *answers}
]


async def call(channel: grpc.aio.Channel, method: Method, *, timeout: float = 5) -> LoraOutcome | LoraListing:
    match method:
        case Method.LOAD_LORA:
            return await REV2.load_lora(channel, ADAPTER, timeout=timeout)
        case Method.UNLOAD_LORA:
            return await REV2.unload_lora(channel, ADAPTER.name, timeout=timeout)
        case _:
            return await REV2.list_loras(channel, timeout=timeout)


async def test_c01_the_calls_use_the_paths_of_their_service() -> None:
    handlers = {
        Method.LOAD_LORA: answering(LoadLoraResponse()),
        Method.UNLOAD_LORA: answering(UnloadLoraResponse()),
        Method.LIST_LORAS: answering(ListLorasResponse()),
    }
    async with connected(handlers) as (engine, channel):
        for method in handlers:
            await call(channel, method)
        assert engine.methods == list(handlers)


@pytest.mark.parametrize(("already", "status"), [(False, LoraStatus.DONE), (True, LoraStatus.ALREADY_LOADED)])
async def test_c47_c48_a_load_carries_all_three_and_says_whether_it_was_there(
    *, already: bool, status: LoraStatus
) -> None:
    echo = WireAdapter(lora_id=7, lora_name="my/lora", source_path="/adapters/my")
    answer = LoadLoraResponse(adapter=echo, already_loaded=already)
    async with connected({Method.LOAD_LORA: answering(answer)}) as (engine, channel):
        assert await REV2.load_lora(channel, ADAPTER, timeout=5) == LoraOutcome(status)
        assert engine.calls[0].request.adapter == echo


@pytest.mark.parametrize(
    ("method", "code", "status"),
    [
        (Method.LOAD_LORA, grpc.StatusCode.ALREADY_EXISTS, LoraStatus.CONFLICT),
        (Method.LOAD_LORA, grpc.StatusCode.FAILED_PRECONDITION, LoraStatus.DISABLED),
        (Method.LOAD_LORA, grpc.StatusCode.UNIMPLEMENTED, LoraStatus.UNSUPPORTED),
        (Method.UNLOAD_LORA, grpc.StatusCode.NOT_FOUND, LoraStatus.NOT_FOUND),
        (Method.UNLOAD_LORA, grpc.StatusCode.FAILED_PRECONDITION, LoraStatus.DISABLED),
        (Method.UNLOAD_LORA, grpc.StatusCode.UNIMPLEMENTED, LoraStatus.UNSUPPORTED),
        (Method.LIST_LORAS, grpc.StatusCode.FAILED_PRECONDITION, LoraStatus.DISABLED),
        (Method.LIST_LORAS, grpc.StatusCode.UNIMPLEMENTED, LoraStatus.UNSUPPORTED),
    ],
)
async def test_c48_c50_refusals_that_are_answers(method: Method, code: grpc.StatusCode, status: LoraStatus) -> None:
    async with connected({method: refusing(code, "because\n")}) as (_, channel):
        answer = await call(channel, method)
    assert (answer.status, answer.detail) == (status, r"because\n")


@pytest.mark.parametrize(("method", "code"), ERRORS)
async def test_c51_every_other_status_is_an_error(method: Method, code: grpc.StatusCode) -> None:
    async with connected({method: refusing(code, "no")}) as (_, channel):
        with pytest.raises(EngineCallError) as failure:
            await call(channel, method)
    assert (failure.value.status, failure.value.method) == (code, method)


@pytest.mark.parametrize("method", ANSWERS)
async def test_c51_a_call_that_hangs_ends_at_its_own_timeout(method: Method) -> None:
    async def silent(_request: Any, _context: Any) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    async with connected({method: silent}) as (_, channel):
        with pytest.raises(EngineCallError) as failure:
            await call(channel, method, timeout=0.01)
    assert failure.value.status is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    ("adapter", "field"),
    [
        (LoraAdapter(name="", id=1, path="/a"), "name"),
        (LoraAdapter(name="\ud800", id=1, path="/a"), "name"),
        (LoraAdapter(name="a", id=0, path="/a"), "id"),
        (LoraAdapter(name="a", id=-1, path="/a"), "id"),
        (LoraAdapter(name="a", id=2**63, path="/a"), "id"),
        (LoraAdapter(name="a", id=1, path=""), "path"),
        (LoraAdapter(name="a", id=1, path="a"), "path"),
        (LoraAdapter(name="a", id=1, path="~/a"), "path"),
        (LoraAdapter(name="a", id=1, path="/\ud800"), "path"),
    ],
)
async def test_c49_what_is_no_adapter_is_refused_before_the_engine_hears_of_it(
    adapter: LoraAdapter, field: str
) -> None:
    async with connected({Method.LOAD_LORA: answering(LoadLoraResponse())}) as (engine, channel):
        with pytest.raises(FieldError, match=rf"^adapter\.{field}: "):
            await REV2.load_lora(channel, adapter, timeout=5)
        assert engine.calls == []


async def test_c49_an_unload_needs_a_name() -> None:
    async with connected({Method.UNLOAD_LORA: answering(UnloadLoraResponse())}) as (engine, channel):
        with pytest.raises(FieldError):
            await REV2.unload_lora(channel, "", timeout=5)
        assert engine.calls == []


@pytest.mark.parametrize(
    ("method", "answer", "shown"),
    [
        (Method.LOAD_LORA, LoadLoraResponse(adapter=ANOTHER), r"my/lora 7, .* ano\\nther 8"),
        (Method.LOAD_LORA, LoadLoraResponse(adapter=WireAdapter(lora_name="my/lora", lora_id=8)), "my/lora 8"),
        (Method.UNLOAD_LORA, UnloadLoraResponse(adapter=ANOTHER), r"my/lora, .* ano\\nther"),
    ],
)
async def test_an_answer_about_another_adapter_is_none(method: Method, answer: Reply, shown: str) -> None:
    async with connected({method: answering(answer)}) as (_, channel):
        with pytest.raises(EngineCallError, match=shown) as failure:
            await call(channel, method)
    assert failure.value.status is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("method", ANSWERS)
async def test_c72_a_message_of_another_schema_is_told_apart(method: Method) -> None:
    async with connected({method: answering(b"\xff")}) as (_, channel):
        with pytest.raises(UndecodableError):
            await call(channel, method)


async def test_c51_a_listing_names_adapters_as_the_engine_does() -> None:
    answer = ListLorasResponse(adapters=[ANOTHER, WireAdapter()])
    async with connected({Method.LIST_LORAS: answering(answer)}) as (_, channel):
        assert await REV2.list_loras(channel, timeout=5) == LoraListing(
            LoraStatus.DONE,
            (
                LoraAdapter(name="ano\nther", id=8, path="/adapters/another"),
                LoraAdapter(name="", id=0, path=""),
            ),
        )

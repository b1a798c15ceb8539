from __future__ import annotations

import grpc
import grpc.aio
import pytest

from openengine_sidecar.launch.engine import EngineOptions, ReferenceEngine
from openengine_sidecar.launch.engine.service import METHODS, SERVICE
from openengine_sidecar.messages.errors import ConfigurationError
from openengine_sidecar.proto.rev2 import kv_pb2, openengine_pb2
from tests.engine.caller import Caller, ask, serving

SCHEMA = openengine_pb2.DESCRIPTOR.services_by_name["OpenEngine"].methods_by_name
UNBUILT = sorted(name for name, method in METHODS.items() if method.unary is None and method.stream is None)


def test_every_method_of_the_schema_is_served_with_its_types() -> None:
    assert {name: method.input_type.name for name, method in SCHEMA.items()} == {
        name: method.request.DESCRIPTOR.name for name, method in METHODS.items()
    }
    assert {name: method.server_streaming for name, method in SCHEMA.items()} == {
        name: method.streams for name, method in METHODS.items()
    }


def test_what_is_not_built() -> None:
    assert UNBUILT == [
        "Classify",
        "Embed",
        "Score",
        "SubscribeRuntimeEvents",
    ]


async def status_of(caller: Caller, name: str) -> grpc.StatusCode:
    request = METHODS[name].request()
    try:
        if METHODS[name].streams:
            async for _ in caller.stream(name, request, type(request)):
                pass
        else:
            await caller.unary(name, request, type(request))
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("name", UNBUILT)
async def test_unbuilt_methods_say_so(caller: Caller, name: str) -> None:
    assert await status_of(caller, name) is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("name", ["Drain", "GetLoad", "GetKvConnectorInfo", "GetKvEventSources", "SubscribeKvEvents"])
async def test_a_minimal_engine_lacks_optional_methods(name: str) -> None:
    async with serving(minimal=True) as (_, caller):
        assert await status_of(caller, name) is grpc.StatusCode.UNIMPLEMENTED
        assert await status_of(caller, "Health") is grpc.StatusCode.OK


async def test_there_is_no_connector(caller: Caller) -> None:
    info = await caller.unary("GetKvConnectorInfo", kv_pb2.GetKvConnectorInfoRequest(), kv_pb2.KvConnectorInfo)
    assert info.HasField("enabled")
    assert not info.enabled


async def test_a_request_that_does_not_decode_is_refused(engine: ReferenceEngine, caller: Caller) -> None:
    call = caller.channel.unary_stream(f"/{SERVICE}/Generate", None, None)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call(b"\xff").read()
    assert error.value.code() is grpc.StatusCode.INTERNAL
    assert engine.stats.requests == 0


async def test_requests_above_the_limit_are_refused() -> None:
    async with serving(max_message_bytes=10_000) as (_, caller):
        small = await caller.generate(ask("x" * 4_000, stopping={"max_tokens": 1}))
        large = await caller.generate(ask("x" * 12_000, stopping={"max_tokens": 1}))
    assert (small.status, large.status) == (grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED)


async def test_a_taken_port_is_named(engine: ReferenceEngine) -> None:
    with pytest.raises(ConfigurationError, match=str(engine.port)):
        await ReferenceEngine(EngineOptions(port=engine.port)).start()


async def test_stop_is_idempotent_and_ends_streams() -> None:
    async with serving(faults=("silent",)) as (engine, caller):
        call = caller.start(ask())
        await engine.stats.until(lambda stats: stats.active == 1)
        await engine.stop()
        await engine.stop()
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
    assert engine.stats.records["r"].ended == "stopped"
    assert engine.stats.cancels == 0

"""An in-process revision 2 server on a loopback socket, made of the handlers that a test passes in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from openengine_sidecar.proto.channels import open_channel
from openengine_sidecar.proto.rev2 import openengine_pb2
from openengine_sidecar.proto.rev2.engine_pb2 import EngineInfo
from openengine_sidecar.proto.rev2.model_pb2 import ModelInfo
from openengine_sidecar.proto.rev2_dialect import Method

KIBIBYTE = 1024
RELEASE = "cea19cb06acf03c911b84d5c147e519b60dd92a6"

Reply = Message | bytes
Handler = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Reply] | AsyncIterator[Reply]]

_METHODS = {method.name: method for method in openengine_pb2.DESCRIPTOR.services_by_name["OpenEngine"].methods}


@dataclass(frozen=True)
class Config:
    endpoint: str
    connect_attempt_timeout: float = 5.0
    max_receive_bytes: int = 64 * KIBIBYTE
    max_send_bytes: int = 64 * KIBIBYTE


@dataclass
class Call:
    method: str
    request: Any
    raw: bytes
    headers: dict[str, str | bytes]
    peer: str


@dataclass
class Engine:
    endpoint: str
    calls: list[Call] = field(default_factory=list)

    @property
    def methods(self) -> list[str]:
        return [call.method for call in self.calls]


def wire(value: Any) -> Any:
    """Enum numbers as they come off the wire, known or not; the stubs' types only take known ones."""
    return value


def engine_info(**fields: Any) -> EngineInfo:
    defaults: dict[str, Any] = {
        "engine_name": "toy",
        "supported_models": ["m"],
        "schema_revision": 2,
        "minimum_client_revision": 1,
        "schema_release": RELEASE,
    }
    return EngineInfo(**{**defaults, **fields})


def answering(reply: Reply) -> Handler:
    async def handler(_request: Any, _context: Any) -> Reply:
        return reply

    return handler


def refusing(code: grpc.StatusCode, details: str = "") -> Handler:
    async def handler(_request: Any, context: Any) -> Reply:
        await context.abort(code, details)
        raise AssertionError

    return handler


def streaming(*replies: Reply, code: grpc.StatusCode = grpc.StatusCode.OK, details: str = "") -> Handler:
    async def handler(_request: Any, context: Any) -> AsyncIterator[Reply]:
        for reply in replies:
            yield reply
        if code is not grpc.StatusCode.OK:
            await context.abort(code, details)

    return handler


def discoverable(info: EngineInfo | None = None, model: ModelInfo | None = None) -> dict[Method, Handler]:
    return {
        Method.GET_ENGINE_INFO: answering(info or engine_info()),
        Method.GET_MODEL_INFO: answering(model or ModelInfo(model_id="m")),
    }


@asynccontextmanager
async def serving(
    handlers: Mapping[Method, Handler], *, port: int = 0, options: list[tuple[str, int]] | None = None
) -> AsyncIterator[Engine]:
    engine = Engine("")
    wired = {method.rsplit("/", 1)[1]: _wire(engine, method, handler) for method, handler in handlers.items()}
    generic = grpc.method_handlers_generic_handler("openengine.v1.OpenEngine", wired)
    server = grpc.aio.server(handlers=(generic,), options=[("grpc.so_reuseport", 0), *(options or [])])
    engine.endpoint = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    await server.start()
    try:
        yield engine
    finally:
        await server.stop(None)


@asynccontextmanager
async def connected(
    handlers: Mapping[Method, Handler], *, options: list[tuple[str, int]] | None = None, **config: Any
) -> AsyncIterator[tuple[Engine, grpc.aio.Channel]]:
    async with serving(handlers, options=options) as engine:
        channel = open_channel(Config(engine.endpoint, **config))
        try:
            yield engine, channel
        finally:
            await channel.close(None)


def _wire(engine: Engine, method: Method, handler: Handler) -> Any:
    descriptor = _METHODS[method.rsplit("/", 1)[1]]
    request_type = GetMessageClass(descriptor.input_type)

    def note(raw: bytes, context: Any) -> Message:
        request = request_type.FromString(raw)
        headers = dict(context.invocation_metadata() or ())
        engine.calls.append(Call(method, request, raw, headers, context.peer()))
        return request

    async def unary(raw: bytes, context: Any) -> bytes:
        return _bytes(await handler(note(raw, context), context))  # type: ignore[misc]  # a unary handler is awaitable

    async def stream(raw: bytes, context: Any) -> AsyncIterator[bytes]:
        async for reply in handler(note(raw, context), context):  # type: ignore[union-attr]  # a streaming one iterates
            yield _bytes(reply)

    if descriptor.server_streaming:
        return grpc.unary_stream_rpc_method_handler(stream)
    return grpc.unary_unary_rpc_method_handler(unary)


def _bytes(reply: Reply) -> bytes:
    return reply if isinstance(reply, bytes) else reply.SerializeToString()

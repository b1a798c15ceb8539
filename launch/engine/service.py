"""The seventeen methods under their wire paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from openengine_sidecar.launch.engine import adapters, info, lifecycle, observe
from openengine_sidecar.launch.engine.core import Core
from openengine_sidecar.launch.engine.generate import generate
from openengine_sidecar.launch.engine.kv import calls as kv
from openengine_sidecar.launch.engine.status import StatusError, unimplemented
from openengine_sidecar.launch.engine.wire import parse, serialize
from openengine_sidecar.proto.rev2 import (
    classification_pb2,
    embedding_pb2,
    engine_pb2,
    generation_pb2,
    kv_pb2,
    lifecycle_pb2,
    lora_pb2,
    model_pb2,
    observability_pb2,
    scoring_pb2,
)

SERVICE = "openengine.v1.OpenEngine"

# The stubs of these functions are generic over types that a table of methods cannot name.
_grpc: Any = grpc
_aio: Any = grpc.aio

Context = grpc.aio.ServicerContext[Any, Any]
Unary = Callable[[Core, Any], Awaitable[Message]]
Stream = Callable[[Core, Any, Context], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Method:
    """One unary or server-streaming method.

    Without either function it answers UNIMPLEMENTED; an `optional` one does so on a minimal engine.
    """

    request: type[Message]
    unary: Unary | None = None
    stream: Stream | None = None
    streams: bool = False
    optional: bool = False


METHODS: dict[str, Method] = {
    "Abort": Method(lifecycle_pb2.AbortRequest, lifecycle.abort),
    "Classify": Method(classification_pb2.ClassifyRequest),
    "Drain": Method(lifecycle_pb2.DrainRequest, stream=lifecycle.drain, streams=True, optional=True),
    "Embed": Method(embedding_pb2.EmbedRequest),
    "Generate": Method(generation_pb2.GenerateRequest, stream=generate, streams=True),
    "GetEngineInfo": Method(engine_pb2.GetEngineInfoRequest, info.get_engine_info),
    "GetKvConnectorInfo": Method(kv_pb2.GetKvConnectorInfoRequest, info.get_kv_connector_info, optional=True),
    "GetKvEventSources": Method(kv_pb2.GetKvEventSourcesRequest, kv.get_kv_event_sources, optional=True),
    "GetLoad": Method(observability_pb2.GetLoadRequest, observe.get_load, optional=True),
    "GetModelInfo": Method(model_pb2.GetModelInfoRequest, info.get_model_info),
    "Health": Method(lifecycle_pb2.HealthRequest, observe.health),
    "ListLoras": Method(lora_pb2.ListLorasRequest, adapters.list_loras, optional=True),
    "LoadLora": Method(lora_pb2.LoadLoraRequest, adapters.load_lora, optional=True),
    "Score": Method(scoring_pb2.ScoreRequest),
    "SubscribeKvEvents": Method(kv_pb2.SubscribeKvEventsRequest, stream=kv.subscribe, streams=True, optional=True),
    "SubscribeRuntimeEvents": Method(observability_pb2.SubscribeRuntimeEventsRequest, streams=True),
    "UnloadLora": Method(lora_pb2.UnloadLoraRequest, adapters.unload_lora, optional=True),
}


def build_server(core: Core, options: Sequence[tuple[str, int]]) -> grpc.aio.Server:
    """Build a server with all methods of one engine, not listening yet."""
    handlers = {name: _rpc(core, name, method) for name, method in METHODS.items()}
    server: grpc.aio.Server = _aio.server(options=options)
    untyped: Any = server
    untyped.add_generic_rpc_handlers((_grpc.method_handlers_generic_handler(SERVICE, handlers),))
    return server


def _rpc(core: Core, name: str, method: Method) -> object:
    missing = core.options.minimal and method.optional

    async def call(data: bytes, context: Context) -> Message | None:
        core.stats.calls[name] += 1
        try:
            request = parse(method.request, data)
            if method.unary is not None and not missing:
                answer = await core.faults.around(name, partial(method.unary, core, request))
                core.answers.amend(name, answer)
                return answer
            if method.stream is not None and not missing:
                await method.stream(core, request, context)
                return None
            raise unimplemented(name)
        except StatusError as error:
            await context.abort(error.status, error.reason)

    make = _grpc.unary_stream_rpc_method_handler if method.streams else _grpc.unary_unary_rpc_method_handler
    return make(call, response_serializer=serialize)

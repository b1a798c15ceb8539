"""The adapter calls of revision 2. A refusal that the contract names is an answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

import grpc
import grpc.aio

from openengine_sidecar.messages.engine.lora import LoraAdapter, LoraListing, LoraOutcome, LoraStatus
from openengine_sidecar.proto.dialect import EngineCallError
from openengine_sidecar.proto.fields import FieldError, writing
from openengine_sidecar.proto.rev2 import lora_pb2
from openengine_sidecar.proto.rev2_dialect.methods import Method
from openengine_sidecar.proto.text import peer_text
from openengine_sidecar.proto.transport import ask

_NAME, _ID, _PATH = "adapter.name", "adapter.id", "adapter.path"

_OFF = {
    grpc.StatusCode.FAILED_PRECONDITION: LoraStatus.DISABLED,
    grpc.StatusCode.UNIMPLEMENTED: LoraStatus.UNSUPPORTED,
}
_LOAD_ANSWERS = {**_OFF, grpc.StatusCode.ALREADY_EXISTS: LoraStatus.CONFLICT}
_UNLOAD_ANSWERS = {**_OFF, grpc.StatusCode.NOT_FOUND: LoraStatus.NOT_FOUND}


async def load(channel: grpc.aio.Channel, adapter: LoraAdapter, timeout: float) -> LoraOutcome:
    """Load an adapter; see Dialect."""
    request = lora_pb2.LoadLoraRequest(adapter=_encode(adapter))
    try:
        answer = await ask(channel, Method.LOAD_LORA, request, lora_pb2.LoadLoraResponse, timeout=timeout)
    except EngineCallError as error:
        return _outcome(error, _LOAD_ANSWERS)
    if answer.HasField("adapter"):
        _check_echo(Method.LOAD_LORA, (adapter.name, adapter.id), (answer.adapter.lora_name, answer.adapter.lora_id))
    return LoraOutcome(LoraStatus.ALREADY_LOADED if answer.already_loaded else LoraStatus.DONE)


async def unload(channel: grpc.aio.Channel, name: str, timeout: float) -> LoraOutcome:
    """Unload an adapter; see Dialect."""
    request = lora_pb2.UnloadLoraRequest(lora_name=_name(name))
    try:
        answer = await ask(channel, Method.UNLOAD_LORA, request, lora_pb2.UnloadLoraResponse, timeout=timeout)
    except EngineCallError as error:
        return _outcome(error, _UNLOAD_ANSWERS)
    if answer.HasField("adapter"):
        _check_echo(Method.UNLOAD_LORA, (name,), (answer.adapter.lora_name,))
    return LoraOutcome(LoraStatus.DONE)


async def listing(channel: grpc.aio.Channel, timeout: float) -> LoraListing:
    """List the loaded adapters; see Dialect."""
    request = lora_pb2.ListLorasRequest()
    try:
        answer = await ask(channel, Method.LIST_LORAS, request, lora_pb2.ListLorasResponse, timeout=timeout)
    except EngineCallError as error:
        refusal = _outcome(error, _OFF)
        return LoraListing(refusal.status, detail=refusal.detail)
    adapters = (LoraAdapter(name=it.lora_name, id=it.lora_id, path=it.source_path) for it in answer.adapters)
    return LoraListing(LoraStatus.DONE, tuple(adapters))


def _encode(adapter: LoraAdapter) -> lora_pb2.LoraAdapter:
    if adapter.id <= 0:
        raise FieldError(_ID, f"{adapter.id} is not above 0")
    if not PurePosixPath(adapter.path).is_absolute():
        raise FieldError(_PATH, f"{adapter.path!r} is not absolute")
    message = lora_pb2.LoraAdapter(lora_name=_name(adapter.name))
    with writing(_ID):
        message.lora_id = adapter.id
    with writing(_PATH):
        message.source_path = adapter.path
    return message


def _name(name: str) -> str:
    if not name:
        raise FieldError(_NAME, "is empty")
    with writing(_NAME):
        return lora_pb2.UnloadLoraRequest(lora_name=name).lora_name


def _outcome(error: EngineCallError, answers: Mapping[grpc.StatusCode, LoraStatus]) -> LoraOutcome:
    status = answers.get(error.status)
    if status is None:
        raise error
    return LoraOutcome(status, error.detail)


def _check_echo(method: str, asked: tuple[object, ...], answered: tuple[object, ...]) -> None:
    """An engine that did something to another adapter did not do what it was asked to."""
    if answered != asked:
        detail = f"asked for adapter {_shown(asked)}, the engine answered for {_shown(answered)}"
        raise EngineCallError(method, grpc.StatusCode.INTERNAL, detail)


def _shown(identity: tuple[object, ...]) -> str:
    return peer_text(" ".join(map(str, identity)))

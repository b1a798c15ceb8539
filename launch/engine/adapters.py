"""LoRA adapters: those that the engine holds, and the three calls that change or list them."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import grpc

from openengine_sidecar.launch.engine.status import StatusError, invalid
from openengine_sidecar.proto.rev2 import lora_pb2

if TYPE_CHECKING:
    from openengine_sidecar.launch.engine.core import Core


class Adapters:
    """What the engine holds, by name; a new engine holds none.

    Args:
        most: how many it holds at once.
        enabled: False for an engine that was started without adapters.
    """

    def __init__(self, most: int, *, enabled: bool) -> None:
        self._most = most
        self._enabled = enabled
        self._held: dict[str, lora_pb2.LoraAdapter] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def load(self, adapter: lora_pb2.LoraAdapter) -> bool:
        """Take an adapter in; returns whether the very same one was there before.

        Raises:
            StatusError: FAILED_PRECONDITION without adapters, INVALID_ARGUMENT for an unusable one, ALREADY_EXISTS
                where another one has its name or its id, RESOURCE_EXHAUSTED without room.
        """
        self._require()
        if problem := _problem(adapter):
            raise invalid(problem)
        if self._held.get(adapter.lora_name) == adapter:
            return True
        if any(adapter.lora_name == held.lora_name or adapter.lora_id == held.lora_id for held in self._held.values()):
            reason = f"another adapter is called {adapter.lora_name!r}, or has the id {adapter.lora_id}"
            raise StatusError(grpc.StatusCode.ALREADY_EXISTS, reason)
        if len(self._held) >= self._most:
            raise StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"there is room for {self._most} adapters")
        self._held[adapter.lora_name] = adapter
        return False

    def unload(self, name: str) -> lora_pb2.LoraAdapter:
        """Let an adapter go, and return it.

        Raises:
            StatusError: FAILED_PRECONDITION without adapters, INVALID_ARGUMENT without a name, NOT_FOUND for one
                that is not held.
        """
        self._require()
        if not name:
            problem = "lora_name is empty"
            raise invalid(problem)
        if name not in self._held:
            raise StatusError(grpc.StatusCode.NOT_FOUND, f"no adapter {name!r} is loaded")
        return self._held.pop(name)

    def listed(self) -> list[lora_pb2.LoraAdapter]:
        """Return all of them.

        Raises:
            StatusError: FAILED_PRECONDITION without adapters.
        """
        self._require()
        return list(self._held.values())

    def _require(self) -> None:
        if not self._enabled:
            raise StatusError(grpc.StatusCode.FAILED_PRECONDITION, "the engine was started without adapters")


async def load_lora(core: Core, request: lora_pb2.LoadLoraRequest) -> lora_pb2.LoadLoraResponse:
    """Answer LoadLora."""
    already_loaded = core.adapters.load(request.adapter)
    return lora_pb2.LoadLoraResponse(adapter=request.adapter, already_loaded=already_loaded)


async def unload_lora(core: Core, request: lora_pb2.UnloadLoraRequest) -> lora_pb2.UnloadLoraResponse:
    """Answer UnloadLora; requests that use the adapter go on."""
    return lora_pb2.UnloadLoraResponse(adapter=core.adapters.unload(request.lora_name))


async def list_loras(core: Core, _request: lora_pb2.ListLorasRequest) -> lora_pb2.ListLorasResponse:
    """Answer ListLoras."""
    return lora_pb2.ListLorasResponse(adapters=core.adapters.listed())


def _problem(adapter: lora_pb2.LoraAdapter) -> str:
    if not adapter.lora_name:
        return "lora_name is empty"
    if adapter.lora_id <= 0:
        return f"lora_id {adapter.lora_id} is not above 0"
    if not PurePosixPath(adapter.source_path).is_absolute():
        return f"source_path {adapter.source_path!r} is not absolute"
    return ""

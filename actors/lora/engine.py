"""The engine's adapter calls, in the table's words."""

from __future__ import annotations

from collections.abc import Sequence

from loguru import logger

from openengine_sidecar.actors.engine.client import EngineClient
from openengine_sidecar.actors.lora import outcomes
from openengine_sidecar.actors.lora.steps import EngineEvent, EngineFailed, EngineRefused
from openengine_sidecar.messages.engine.lora import LoraAdapter, LoraStatus
from openengine_sidecar.messages.errors import EngineLostError
from openengine_sidecar.proto.dialect import EngineCallError
from openengine_sidecar.proto.fields import FieldError

LIST_ATTEMPTS = 3
LIST_TIMEOUT = 10.0


class AdapterEngine:
    """Loads, unloads and lists adapters; no call takes longer than `timeout` seconds."""

    def __init__(self, client: EngineClient, timeout: float) -> None:
        self._client = client
        self._timeout = timeout

    async def load(self, adapter: LoraAdapter) -> EngineEvent:
        """Load an adapter."""
        try:
            return outcomes.loaded(await self._client.load_lora(adapter, timeout=self._timeout))
        except FieldError as error:
            return EngineRefused(str(error))
        except EngineCallError as error:
            return outcomes.failed(error)
        except EngineLostError as error:
            return EngineFailed(error.problem)

    async def unload(self, name: str) -> EngineEvent:
        """Unload an adapter."""
        try:
            return outcomes.unloaded(await self._client.unload_lora(name, timeout=self._timeout))
        except EngineCallError as error:
            return outcomes.failed(error)
        except EngineLostError as error:
            return EngineFailed(error.problem)

    async def listed(self) -> Sequence[LoraAdapter] | None:
        """List what the engine holds; None where it has no adapters, or would not say in several attempts."""
        for _ in range(LIST_ATTEMPTS):
            try:
                listing = await self._client.list_loras(timeout=min(LIST_TIMEOUT, self._timeout))
            except (EngineCallError, EngineLostError) as error:
                logger.warning("the engine does not list its adapters: {}", error)
                continue
            if listing.status is LoraStatus.DONE:
                return listing.adapters
            logger.info("the engine lists no adapters: {}", listing.detail or listing.status.value)
            return None
        return None

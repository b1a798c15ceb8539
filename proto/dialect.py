"""The small interface every OpenEngine schema is spoken through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import grpc.aio

from openengine_sidecar.messages.engine.control import AbortOutcome, Health, Load
from openengine_sidecar.messages.engine.discovery import Discovery
from openengine_sidecar.messages.engine.generation import Event, GenerateCall, KvSession
from openengine_sidecar.messages.engine.kv import KvBatch, KvEventSource
from openengine_sidecar.messages.engine.lora import LoraAdapter, LoraListing, LoraOutcome
from openengine_sidecar.messages.errors import SidecarError

SOME_ENDPOINT = "the configured endpoint"


class Oversized(StrEnum):
    """Which message of a call was above a size limit, of either side."""

    REQUEST = "request"
    RESPONSE = "response"


class EngineCallError(SidecarError):
    """A call ended with a gRPC status other than OK, or with a message that does not decode.

    Attributes:
        method: full method path.
        status: the gRPC status.
        detail: the peer's text, control characters escaped, bounded in length.
        oversized: set where a RESOURCE_EXHAUSTED means a message above a size limit, which is not overload.
    """

    def __init__(
        self, method: str, status: grpc.StatusCode, detail: str, *, oversized: Oversized | None = None
    ) -> None:
        super().__init__(f"{method}: {status.name}: {detail}")
        self.method = method
        self.status = status
        self.detail = detail
        self.oversized = oversized


class UndecodableError(EngineCallError):
    """A message arrived that is not of the dialect's types (reported with status INTERNAL)."""


class GenerationStream(Protocol):
    """One generation under way. Not started before the first `next_batch`."""

    async def next_batch(self) -> Sequence[Event]:
        """Wait for the events that one wake-up brought, oldest first.

        Returns:
            At least one event, or the empty sequence once the engine closed the stream with OK.

        Raises:
            EngineCallError: the stream ended with another status; CANCELLED after `cancel`, UNAVAILABLE where the
                channel was closed underneath.
            UndecodableError: a message of another schema; the call is cancelled.
            asyncio.CancelledError: the waiting task was cancelled, and the call with it.
        """
        ...

    def cancel(self) -> None:
        """Cancel the call; idempotent, never blocks, harmless after the end."""
        ...


class KvEventStream(Protocol):
    """The KV events of one data-parallel rank. Not started before the first `next_batches`.

    Messages that are neither a batch nor an error carry no number, and are passed over.
    """

    async def next_batches(self) -> Sequence[KvBatch]:
        """Wait for the batches that one wake-up brought, oldest first.

        Returns:
            At least one batch, or the empty sequence once the engine closed the stream with OK.

        Raises:
            EngineCallError: the stream ended with another status, or with an error of the engine's own (INTERNAL);
                CANCELLED after `cancel`, UNAVAILABLE where the channel was closed underneath.
            UndecodableError: a message of another schema; the call is cancelled.
            asyncio.CancelledError: the waiting task was cancelled, and the call with it.
        """
        ...

    def cancel(self) -> None:
        """Cancel the call; idempotent, never blocks, harmless after the end."""
        ...


class Dialect(Protocol):
    """One schema. Stateless: channels are passed in, their owner is somebody else.

    Attributes:
        name: short, for logs and labels.
        own_revision: the schema revision this build speaks.
        floor_revision: the oldest revision of an engine that it can serve.
    """

    name: str
    own_revision: int
    floor_revision: int

    async def speaks(self, channel: grpc.aio.Channel, *, timeout: float) -> bool:
        """Ask the dialect's discovery method; False only on UNIMPLEMENTED.

        Raises:
            EngineCallError: any other failure (retry it, never switch dialect because of it).
        """
        ...

    async def discover(
        self, channel: grpc.aio.Channel, *, model: str | None, timeout: float, endpoint: str = SOME_ENDPOINT
    ) -> Discovery:
        """Read engine, model and connector; `model` None takes the only supported one.

        Args:
            channel: where to ask.
            model: any name of the model to serve.
            timeout: seconds, for each call.
            endpoint: the engine's name in errors.

        Raises:
            EngineCallError: a call failed.
            DiscoveryError: the revisions do not fit, none or several models without a configured one, or the model
                that came back is not the one asked for.
        """
        ...

    def generate(self, channel: grpc.aio.Channel, call: GenerateCall) -> GenerationStream:
        """Prepare a generation.

        Raises:
            InvalidRequestError: the schema has no field for something in the call.
        """
        ...

    async def abort(
        self, channel: grpc.aio.Channel, request_id: str, *, timeout: float, trace: Mapping[str, str] | None = None
    ) -> AbortOutcome:
        """Abort one request by id; NOT_FOUND and ALREADY_FINISHED are GONE, UNIMPLEMENTED is UNSUPPORTED.

        Args:
            channel: where to ask.
            request_id: the id that `generate` was given.
            timeout: seconds.
            trace: W3C headers of the request, as in GenerateCall.

        Raises:
            EngineCallError: any other status.
        """
        ...

    async def abort_session(
        self, channel: grpc.aio.Channel, session: KvSession, *, timeout: float, trace: Mapping[str, str] | None = None
    ) -> AbortOutcome:
        """Abort whatever a KV session holds, and whoever uses it; answered and failing like `abort`.

        Args:
            channel: where to ask.
            session: as it came; its bytes are sent untouched.
            timeout: seconds.
            trace: W3C headers of the request, as in GenerateCall.

        Raises:
            EngineCallError: any other status.
        """
        ...

    async def health(self, channel: grpc.aio.Channel, *, probe: bool, timeout: float) -> Health:
        """Ask for health, with a small real run when `probe`.

        Raises:
            EngineCallError: the call failed.
        """
        ...

    async def load(self, channel: grpc.aio.Channel, *, per_rank: bool, timeout: float) -> Load:
        """Ask for load.

        Raises:
            EngineCallError: the call failed.
        """
        ...

    async def drain(self, channel: grpc.aio.Channel, *, deadline_ms: int, timeout: float) -> None:
        """Drain the engine until COMPLETE; it takes no new request from anyone afterwards.

        Raises:
            EngineCallError: the call failed, ended without COMPLETE, or the schema has no drain (UNIMPLEMENTED).
        """
        ...

    async def load_lora(self, channel: grpc.aio.Channel, adapter: LoraAdapter, *, timeout: float) -> LoraOutcome:
        """Load an adapter, whose directory the engine can see.

        Returns:
            DONE, ALREADY_LOADED, CONFLICT (nothing was changed), DISABLED or UNSUPPORTED.

        Raises:
            FieldError: nothing was sent: the name is empty, the id not positive, the path not absolute.
            EngineCallError: any other status, or an answer about another adapter; the engine may hold it or not.
        """
        ...

    async def unload_lora(self, channel: grpc.aio.Channel, name: str, *, timeout: float) -> LoraOutcome:
        """Unload an adapter, whoever loaded it.

        Returns:
            DONE, NOT_FOUND, DISABLED or UNSUPPORTED.

        Raises:
            FieldError: nothing was sent: the name is empty.
            EngineCallError: as `load_lora`.
        """
        ...

    async def list_loras(self, channel: grpc.aio.Channel, *, timeout: float) -> LoraListing:
        """List the adapters that the engine holds, as it names them.

        Returns:
            DONE, DISABLED or UNSUPPORTED.

        Raises:
            EngineCallError: any other status.
        """
        ...

    async def kv_sources(self, channel: grpc.aio.Channel, *, timeout: float) -> Sequence[KvEventSource]:
        """Ask where the KV events of each rank can be heard; none where the engine keeps no events.

        Raises:
            EngineCallError: the call failed; UNIMPLEMENTED where the engine has no such method.
        """
        ...

    def subscribe_kv(
        self, channel: grpc.aio.Channel, rank: int, *, snapshot: bool = False, start: int | None = None
    ) -> KvEventStream:
        """Prepare a subscription to one rank's KV events.

        Args:
            channel: where to ask.
            rank: the data-parallel rank.
            snapshot: ask for what the rank holds already, before what changes.
            start: number of the first batch wanted, at least 1; None begins with the next one.
        """
        ...

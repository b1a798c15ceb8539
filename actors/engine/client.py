"""The handle through which request streams reach the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc.aio

from openengine_sidecar.messages.engine.control import AbortOutcome, Load
from openengine_sidecar.messages.engine.generation import GenerateCall, KvSession
from openengine_sidecar.messages.engine.kv import KvEventSource
from openengine_sidecar.messages.engine.lora import LoraAdapter, LoraListing, LoraOutcome
from openengine_sidecar.messages.errors import EngineLostError
from openengine_sidecar.proto.dialect import Dialect, GenerationStream, KvEventStream


@dataclass(frozen=True, slots=True)
class Attachment:
    """What a connected engine offers: a schema, channels for streams, one for control calls alone, one for KV events.

    KV events share the control channel where they have none of their own.
    """

    dialect: Dialect
    streams: Sequence[grpc.aio.Channel]
    control: grpc.aio.Channel
    events: grpc.aio.Channel | None = None


class EngineClient:
    """Calls to one engine, spread round robin over channels that EngineConnection owns.

    Control calls have a channel of their own: streams under back-pressure cannot starve an abort. So have KV events:
    a subscriber that reads slowly holds up nobody else.

    Attributes:
        endpoint: `host:port`.
        begun: generations that were ever prepared.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.begun = 0
        self._attachment: Attachment | None = None
        self._turn = 0
        self._abort_supported = True
        self._session_abort_supported = True

    @property
    def attached(self) -> bool:
        """Whether an engine has been discovered and its channels are open."""
        return self._attachment is not None

    def attach(self, attachment: Attachment) -> None:
        """Take the channels; only their owner calls this."""
        self._attachment = attachment
        self._abort_supported = self._session_abort_supported = True

    def detach(self) -> None:
        """Forget the channels; only their owner calls this, before it closes them."""
        self._attachment = None

    def generate(self, call: GenerateCall) -> GenerationStream:
        """Prepare a generation on the next channel.

        Raises:
            EngineLostError: no engine is attached.
            InvalidRequestError: the schema has no field for something in the call.
        """
        attachment = self._attached(call.request_id)
        self.begun += 1
        self._turn = (self._turn + 1) % len(attachment.streams)
        return attachment.dialect.generate(attachment.streams[self._turn], call)

    @property
    def aborts_sessions(self) -> bool:
        """Whether aborts by KV session are worth asking for: no engine has answered one with UNIMPLEMENTED yet."""
        return self._session_abort_supported

    async def abort_session(self, session: KvSession, *, timeout: float, trace: Mapping[str, str]) -> AbortOutcome:
        """Abort whatever a KV session holds; UNSUPPORTED is remembered and not asked again.

        Raises:
            EngineLostError: no engine is attached.
            EngineCallError: the call failed.
        """
        attachment = self._attached("of KV session " + session.session_id)
        if not self._session_abort_supported:
            return AbortOutcome.UNSUPPORTED
        outcome = await attachment.dialect.abort_session(attachment.control, session, timeout=timeout, trace=trace)
        self._session_abort_supported = outcome is not AbortOutcome.UNSUPPORTED
        return outcome

    async def abort(self, request_id: str, *, timeout: float, trace: Mapping[str, str]) -> AbortOutcome:
        """Abort one request by its engine-side id; UNSUPPORTED is remembered and not asked again.

        Raises:
            EngineLostError: no engine is attached.
            EngineCallError: the call failed.
        """
        attachment = self._attached(request_id)
        if not self._abort_supported:
            return AbortOutcome.UNSUPPORTED
        outcome = await attachment.dialect.abort(attachment.control, request_id, timeout=timeout, trace=trace)
        self._abort_supported = outcome is not AbortOutcome.UNSUPPORTED
        return outcome

    async def kv_sources(self, *, timeout: float) -> Sequence[KvEventSource]:
        """Ask where KV events can be heard.

        Raises:
            EngineLostError: no engine is attached.
            EngineCallError: the call failed.
        """
        attachment = self._attached()
        return await attachment.dialect.kv_sources(attachment.control, timeout=timeout)

    def subscribe_kv(self, rank: int, *, snapshot: bool = False, start: int | None = None) -> KvEventStream:
        """Prepare a subscription to one rank's KV events; see Dialect.

        Raises:
            EngineLostError: no engine is attached.
        """
        attachment = self._attached()
        channel = attachment.control if attachment.events is None else attachment.events
        return attachment.dialect.subscribe_kv(channel, rank, snapshot=snapshot, start=start)

    async def load_lora(self, adapter: LoraAdapter, *, timeout: float) -> LoraOutcome:
        """Load an adapter; see Dialect.

        Raises:
            EngineLostError: no engine is attached.
            FieldError: the adapter is unusable; nothing was sent.
            EngineCallError: the call failed.
        """
        attachment = self._attached()
        return await attachment.dialect.load_lora(attachment.control, adapter, timeout=timeout)

    async def unload_lora(self, name: str, *, timeout: float) -> LoraOutcome:
        """Unload an adapter; raises as `load_lora`."""
        attachment = self._attached()
        return await attachment.dialect.unload_lora(attachment.control, name, timeout=timeout)

    async def list_loras(self, *, timeout: float) -> LoraListing:
        """List the adapters that the engine holds.

        Raises:
            EngineLostError: no engine is attached.
            EngineCallError: the call failed.
        """
        attachment = self._attached()
        return await attachment.dialect.list_loras(attachment.control, timeout=timeout)

    async def load(self, *, timeout: float) -> Load:
        """Ask for the load of every rank.

        Raises:
            EngineLostError: no engine is attached.
            EngineCallError: the call failed.
        """
        attachment = self._attached()
        return await attachment.dialect.load(attachment.control, per_rank=True, timeout=timeout)

    def _attached(self, request_id: str = "") -> Attachment:
        if self._attachment is None:
            raise EngineLostError(request_id, f"no engine is connected at {self.endpoint}")
        return self._attachment

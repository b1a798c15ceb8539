"""The Dialect of revision 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import grpc
import grpc.aio
from google.protobuf.message import Message

from openengine_sidecar.messages.engine.control import AbortOutcome, Health, Load
from openengine_sidecar.messages.engine.discovery import Discovery
from openengine_sidecar.messages.engine.generation import GenerateCall, KvSession
from openengine_sidecar.messages.engine.kv import KvEventSource
from openengine_sidecar.messages.engine.lora import LoraAdapter, LoraListing, LoraOutcome
from openengine_sidecar.messages.errors import DiscoveryError, InvalidRequestError
from openengine_sidecar.proto.dialect import SOME_ENDPOINT, EngineCallError, GenerationStream, KvEventStream
from openengine_sidecar.proto.fields import FieldError
from openengine_sidecar.proto.handoff.session_pb2 import AbortView
from openengine_sidecar.proto.headers import trace_headers
from openengine_sidecar.proto.rev2.engine_pb2 import EngineInfo, GetEngineInfoRequest
from openengine_sidecar.proto.rev2.kv_pb2 import GetKvConnectorInfoRequest, KvConnectorInfo
from openengine_sidecar.proto.rev2.lifecycle_pb2 import (
    DRAIN_STATE_COMPLETE,
    AbortRequest,
    AbortResponse,
    DrainRequest,
    DrainResponse,
    HealthRequest,
    HealthResponse,
)
from openengine_sidecar.proto.rev2.model_pb2 import GetModelInfoRequest, ModelInfo
from openengine_sidecar.proto.rev2.observability_pb2 import GetLoadRequest, LoadInfo
from openengine_sidecar.proto.rev2_dialect import control, discovery, events, kv, lora, requests
from openengine_sidecar.proto.rev2_dialect.enums import ABORT_OUTCOMES
from openengine_sidecar.proto.rev2_dialect.methods import Method
from openengine_sidecar.proto.transport import GrpcGenerationStream, MessageStream, ask, decode
from openengine_sidecar.proto.validation import check_revision

MAX_UINT32 = 2**32 - 1


class Revision2:
    """OpenEngine revision 2; see Dialect for what each method promises."""

    name = "rev2"
    own_revision = 2
    floor_revision = 2  # engines of the same service that say 1 are older drafts

    async def speaks(self, channel: grpc.aio.Channel, *, timeout: float) -> bool:
        """Ask for EngineInfo, which needs no argument and which every engine of this schema has."""
        try:
            await self._engine_info(channel, timeout)
        except EngineCallError as error:
            if error.status is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            return False
        return True

    async def discover(
        self, channel: grpc.aio.Channel, *, model: str | None, timeout: float, endpoint: str = SOME_ENDPOINT
    ) -> Discovery:
        """Read engine, model and connector; the revisions first, since they say whether the rest can be read."""
        info = await self._engine_info(channel, timeout)
        check_revision(
            self, endpoint=endpoint, revision=info.schema_revision, minimum_client=info.minimum_client_revision
        )
        asked = discovery.choose_model(info, model, endpoint)
        found = await self._model_info(channel, asked, timeout, endpoint)
        discovery.check_model(found, asked, endpoint)
        connector = info.kv_connector if info.HasField("kv_connector") else await self._connector(channel, timeout)
        return discovery.describe(self.name, info, found, connector)

    def generate(self, channel: grpc.aio.Channel, call: GenerateCall) -> GenerationStream:
        """Prepare a generation; events carry token details only where the call asks for output logprobs."""
        try:
            request, metadata = requests.encode(call), trace_headers(call.trace)
        except FieldError as error:
            raise InvalidRequestError(call.request_id, f"cannot be put to the engine: {error}") from error
        decoder = events.decode_plain if call.output_logprobs is None else events.decode_detailed
        return GrpcGenerationStream(MessageStream(channel, Method.GENERATE, request, metadata=metadata), decoder)

    async def abort(
        self, channel: grpc.aio.Channel, request_id: str, *, timeout: float, trace: Mapping[str, str] | None = None
    ) -> AbortOutcome:
        """Abort one request by id."""
        return await self._abort(channel, AbortRequest(request_id=request_id), timeout, trace)

    async def abort_session(
        self, channel: grpc.aio.Channel, session: KvSession, *, timeout: float, trace: Mapping[str, str] | None = None
    ) -> AbortOutcome:
        """Abort by KV session."""
        return await self._abort(channel, AbortView(kv_session=session.wire), timeout, trace)

    async def _abort(
        self, channel: grpc.aio.Channel, request: Message, timeout: float, trace: Mapping[str, str] | None
    ) -> AbortOutcome:
        metadata = trace_headers(trace)
        try:
            answer = await ask(channel, Method.ABORT, request, AbortResponse, timeout=timeout, metadata=metadata)
        except EngineCallError as error:
            outcome = _ABORT_STATUSES.get(error.status)
            if outcome is None:
                raise
            return outcome
        return ABORT_OUTCOMES.get(answer.status, AbortOutcome.UNSPECIFIED)

    async def health(self, channel: grpc.aio.Channel, *, probe: bool, timeout: float) -> Health:
        """Ask for health of the default model."""
        request = HealthRequest(include_inference_probe=probe)
        return control.health(await ask(channel, Method.HEALTH, request, HealthResponse, timeout=timeout))

    async def load(self, channel: grpc.aio.Channel, *, per_rank: bool, timeout: float) -> Load:
        """Ask for load."""
        request = GetLoadRequest(include_per_rank=per_rank)
        return control.load(await ask(channel, Method.GET_LOAD, request, LoadInfo, timeout=timeout))

    async def drain(self, channel: grpc.aio.Channel, *, deadline_ms: int, timeout: float) -> None:
        """Drain the engine; what still runs at the deadline is left alone, since it may be somebody else's."""
        request = DrainRequest(
            stop_accepting_new_requests=True,
            deadline_ms=min(deadline_ms, MAX_UINT32),
            abort_after_deadline=False,
        )
        reports = MessageStream(channel, Method.DRAIN, request.SerializeToString(), timeout=timeout)
        try:
            await _until_drained(reports)
        finally:
            reports.cancel()

    async def load_lora(self, channel: grpc.aio.Channel, adapter: LoraAdapter, *, timeout: float) -> LoraOutcome:
        """Load an adapter."""
        return await lora.load(channel, adapter, timeout)

    async def unload_lora(self, channel: grpc.aio.Channel, name: str, *, timeout: float) -> LoraOutcome:
        """Unload an adapter."""
        return await lora.unload(channel, name, timeout)

    async def list_loras(self, channel: grpc.aio.Channel, *, timeout: float) -> LoraListing:
        """List the adapters that the engine holds."""
        return await lora.listing(channel, timeout)

    async def kv_sources(self, channel: grpc.aio.Channel, *, timeout: float) -> Sequence[KvEventSource]:
        """Ask where the KV events of each rank can be heard."""
        return await kv.sources(channel, timeout)

    def subscribe_kv(
        self, channel: grpc.aio.Channel, rank: int, *, snapshot: bool = False, start: int | None = None
    ) -> KvEventStream:
        """Prepare a subscription to one rank's KV events."""
        return kv.subscription(channel, rank, snapshot=snapshot, start=start)

    async def _engine_info(self, channel: grpc.aio.Channel, timeout: float) -> EngineInfo:
        return await ask(channel, Method.GET_ENGINE_INFO, GetEngineInfoRequest(), EngineInfo, timeout=timeout)

    async def _model_info(self, channel: grpc.aio.Channel, model: str, timeout: float, endpoint: str) -> ModelInfo:
        request = GetModelInfoRequest(model=model)
        try:
            return await ask(channel, Method.GET_MODEL_INFO, request, ModelInfo, timeout=timeout)
        except EngineCallError as error:
            if error.status is not grpc.StatusCode.NOT_FOUND:
                raise
            raise DiscoveryError(endpoint, f"it does not serve model {model!r}: {error.detail}") from error

    async def _connector(self, channel: grpc.aio.Channel, timeout: float) -> KvConnectorInfo | None:
        request = GetKvConnectorInfoRequest()
        try:
            return await ask(channel, Method.GET_KV_CONNECTOR_INFO, request, KvConnectorInfo, timeout=timeout)
        except EngineCallError as error:
            if error.status not in _NO_CONNECTOR:
                raise
            return None


async def _until_drained(reports: MessageStream) -> None:
    while (raw := await reports.read()) is not None:
        report = decode(reports.method, DrainResponse.FromString, raw)
        if report.HasField("error"):
            fault = events.fault(report.error)
            detail = f"the engine failed to drain: {fault.code.value}: {fault.message}"
            raise EngineCallError(reports.method, grpc.StatusCode.INTERNAL, detail)
        if report.state == DRAIN_STATE_COMPLETE:
            return
    raise EngineCallError(reports.method, grpc.StatusCode.INTERNAL, "the engine closed without COMPLETE")


_ABORT_STATUSES = {
    grpc.StatusCode.NOT_FOUND: AbortOutcome.GONE,
    grpc.StatusCode.UNIMPLEMENTED: AbortOutcome.UNSUPPORTED,
}
_NO_CONNECTOR = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)

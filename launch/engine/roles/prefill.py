"""The engine that computes a prompt's KV and hands it over."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import aclosing

import grpc

from openengine_sidecar.launch.engine.admission import Admitted
from openengine_sidecar.launch.engine.generation import Generator, usage_of
from openengine_sidecar.launch.engine.handoff.reference import BACKEND, PROTOCOL, SCHEMA_VERSION, reference_to
from openengine_sidecar.launch.engine.handoff.server import TransferServer
from openengine_sidecar.launch.engine.handoff.sessions import HeldSession, SessionStore
from openengine_sidecar.launch.engine.options import EngineOptions
from openengine_sidecar.launch.engine.plan import Plan
from openengine_sidecar.launch.engine.requests import ActiveRequest
from openengine_sidecar.launch.engine.roles.aggregated import SESSION_TARGET
from openengine_sidecar.launch.engine.roles.base import Events
from openengine_sidecar.launch.engine.stats import Stats
from openengine_sidecar.launch.engine.status import StatusError, unimplemented
from openengine_sidecar.proto.rev2 import generation_pb2, kv_pb2, lifecycle_pb2

HANDED_OUT = "handoff"


class Prefill:
    """Ends every request with a session, which it holds until it is taken, released or too old."""

    def __init__(self, options: EngineOptions, generator: Generator, stats: Stats) -> None:
        self._options = options
        self._generator = generator
        self._stats = stats
        self.sessions = SessionStore(options.kv_session_ttl, stats.sessions, stats.changed)
        self._server = TransferServer(self.sessions, options.host, options.kv_port)

    async def start(self) -> None:
        """Listen for decode engines."""
        await self._server.start()

    async def stop(self) -> None:
        """Hand nothing over any more."""
        await self._server.stop()
        self.sessions.close()

    async def events(self, admitted: Admitted, active: ActiveRequest, plans: Sequence[Plan]) -> Events:
        """Take the time of one token, then hand over."""
        await active.pace(self._options.token_delay)
        if active.aborted:
            async with aclosing(self._generator.events(admitted, active, plans)) as cut:
                async for event in cut:
                    yield event
            return
        if admitted.request.response.return_prompt_logprobs:
            yield await self._generator.prompt_event(admitted)
        yield self._ready(admitted, active)

    def _ready(self, admitted: Admitted, active: ActiveRequest) -> generation_pb2.GenerateResponse:
        record = active.record
        held = HeldSession(uuid.uuid4().hex, admitted.prompt.digest, record.prompt_tokens, record.rank)
        record.session = held.session_id
        self.sessions.hold(held)
        ref = reference_to(held, self._options.host, self._server.port)
        return generation_pb2.GenerateResponse(
            request_id=record.request_id,
            prefill_ready=generation_pb2.PrefillReady(kv_session=ref),
            usage=usage_of(admitted, active, ()),
        )

    def ended(self, active: ActiveRequest) -> None:
        """A session that was never handed out is nobody's."""
        record = active.record
        if record.session is not None and record.ended != HANDED_OUT:
            self.sessions.lost(record.session)

    def connector(self) -> kv_pb2.KvConnectorInfo:
        """Describe where sessions can be taken."""
        info = kv_pb2.KvConnectorInfo(
            enabled=True,
            transfer_backend=BACKEND,
            supported_protocols=[PROTOCOL],
            supports_remote_prefill=True,
            supports_decode_pull=False,
            supports_abort_cleanup=self._options.kv_abort_cleanup,
            schema_version=SCHEMA_VERSION,
        )
        info.local_endpoints.add(host=self._options.host, port=self._server.port, protocol=PROTOCOL)
        return info

    async def abort(self, session: kv_pb2.KvSessionRef) -> lifecycle_pb2.AbortResponse:
        """Free a session; one that is over already is no error."""
        if not self._options.kv_abort_cleanup:
            raise unimplemented(SESSION_TARGET)
        if self.sessions.released(session.session_id):
            return lifecycle_pb2.AbortResponse(status=lifecycle_pb2.ABORT_STATUS_ABORTED)
        if self.sessions.over(session.session_id):
            return lifecycle_pb2.AbortResponse(status=lifecycle_pb2.ABORT_STATUS_ALREADY_FINISHED)
        raise unknown_session(session)


def unknown_session(session: kv_pb2.KvSessionRef) -> StatusError:
    """Refuse a session that never was here."""
    return StatusError(grpc.StatusCode.NOT_FOUND, f"session {session.session_id!r} was never here")

"""The engine that takes a prompt's KV over and generates from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import grpc

from openengine_sidecar.launch.engine.admission import Admitted
from openengine_sidecar.launch.engine.generation import Generator
from openengine_sidecar.launch.engine.handoff.messages import Outcome
from openengine_sidecar.launch.engine.handoff.peer import TransferError, pull, release
from openengine_sidecar.launch.engine.handoff.reference import BACKEND, PROTOCOL, SCHEMA_VERSION
from openengine_sidecar.launch.engine.options import EngineOptions
from openengine_sidecar.launch.engine.plan import Plan
from openengine_sidecar.launch.engine.requests import ActiveRequest, RequestTable
from openengine_sidecar.launch.engine.roles.aggregated import SESSION_TARGET
from openengine_sidecar.launch.engine.roles.base import Events
from openengine_sidecar.launch.engine.roles.prefill import unknown_session
from openengine_sidecar.launch.engine.stats import Stats
from openengine_sidecar.launch.engine.status import StatusError, unimplemented
from openengine_sidecar.proto.rev2 import error_pb2, generation_pb2, kv_pb2, lifecycle_pb2


class Decode:
    """Pulls the session of every request from the engine that holds it, before the first token.

    A request that is aborted during the pull leaves its session where it is: only an abort by session frees it there.
    """

    sessions = None

    def __init__(self, options: EngineOptions, generator: Generator, table: RequestTable, stats: Stats) -> None:
        self._options = options
        self._generator = generator
        self._table = table
        self._stats = stats

    async def start(self) -> None:
        """Nothing to open: it calls, it is not called."""

    async def stop(self) -> None:
        """Nothing to close."""

    async def events(self, admitted: Admitted, active: ActiveRequest, plans: Sequence[Plan]) -> Events:
        """Pull, then generate."""
        session = admitted.request.kv.session
        active.record.session = session.session_id
        try:
            await self._pull(session, admitted, active)
        except TransferError as failure:
            self._stats.sessions.failed += 1
            error = error_pb2.EngineError(code=failure.code, message=str(failure))
            yield generation_pb2.GenerateResponse(request_id=active.record.request_id, error=error)
            return
        async with aclosing(self._generator.events(admitted, active, plans)) as events:
            async for event in events:
                if event.HasField("usage"):
                    event.usage.ClearField("cached_prompt_tokens")  # nothing was computed here
                yield event

    async def _pull(self, session: kv_pb2.KvSessionRef, admitted: Admitted, active: ActiveRequest) -> None:
        transfer = asyncio.ensure_future(pull(session, admitted.prompt.digest))
        try:
            if await active.outlast(transfer):
                await transfer
                self._stats.sessions.pulled += 1
        finally:
            transfer.cancel()
            await asyncio.gather(transfer, return_exceptions=True)

    def ended(self, active: ActiveRequest) -> None:
        """Nothing is left behind."""

    def connector(self) -> kv_pb2.KvConnectorInfo:
        """Describe what it can pull."""
        return kv_pb2.KvConnectorInfo(
            enabled=True,
            transfer_backend=BACKEND,
            supported_protocols=[PROTOCOL],
            supports_remote_prefill=False,
            supports_decode_pull=True,
            supports_abort_cleanup=self._options.kv_abort_cleanup,
            schema_version=SCHEMA_VERSION,
        )

    async def abort(self, session: kv_pb2.KvSessionRef) -> lifecycle_pb2.AbortResponse:
        """End the request that uses a session, and free it where it is held."""
        if not self._options.kv_abort_cleanup:
            raise unimplemented(SESSION_TARGET)
        stopped = self._stop(session.session_id)
        try:
            outcome = await release(session)
        except TransferError as failure:
            raise StatusError(grpc.StatusCode.INTERNAL, str(failure)) from failure
        if stopped or outcome is Outcome.FREED:
            self._stats.sessions.given_back += outcome is Outcome.FREED
            return lifecycle_pb2.AbortResponse(status=lifecycle_pb2.ABORT_STATUS_ABORTED)
        if outcome is Outcome.GONE:
            return lifecycle_pb2.AbortResponse(status=lifecycle_pb2.ABORT_STATUS_ALREADY_FINISHED)
        raise unknown_session(session)

    def _stop(self, session_id: str) -> bool:
        users = [active for active in self._table.active.values() if active.record.session == session_id]
        stopped = [active.abort() for active in users]
        self._stats.aborted += sum(stopped)
        return bool(users)

"""Abort and drain."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

from openengine_sidecar.launch.engine.core import Core
from openengine_sidecar.launch.engine.status import StatusError, invalid
from openengine_sidecar.proto.rev2 import error_pb2, kv_pb2, lifecycle_pb2

Context = grpc.aio.ServicerContext[lifecycle_pb2.DrainRequest, lifecycle_pb2.DrainResponse]

NO_TARGET = "an abort needs a target"


async def abort(core: Core, request: lifecycle_pb2.AbortRequest) -> lifecycle_pb2.AbortResponse:
    """Answer Abort: by id, session or all; idempotent, and an id stays in use until its stream has ended.

    Raises:
        StatusError: INVALID_ARGUMENT without target, NOT_FOUND for an id or session never seen, UNIMPLEMENTED for a
            session that this engine cannot free.
    """
    target = request.WhichOneof("target")
    if target == "request_id":
        return _abort_one(core, request.request_id)
    if target == "all_requests":
        message = f"{stop_all(core)} requests aborted"
        return lifecycle_pb2.AbortResponse(status=lifecycle_pb2.ABORT_STATUS_ABORTED, message=message)
    if target == "kv_session":
        return await _abort_session(core, request.kv_session)
    raise invalid(NO_TARGET)


def _abort_one(core: Core, request_id: str) -> lifecycle_pb2.AbortResponse:
    stats = core.stats
    stats.abort_calls += 1
    if record := stats.records.get(request_id):
        record.aborts += 1
    if request_id in core.table.active:
        outcome, status = "aborted", lifecycle_pb2.ABORT_STATUS_ABORTED
        _stop(core, request_id)
    elif core.table.ended(request_id):
        outcome, status = "already_finished", lifecycle_pb2.ABORT_STATUS_ALREADY_FINISHED
    else:
        outcome, status = "not_found", None
    stats.abort_outcomes[outcome] += 1
    stats.changed()
    if status is None:
        raise StatusError(grpc.StatusCode.NOT_FOUND, f"request {request_id!r} was never here")
    return lifecycle_pb2.AbortResponse(status=status)


async def _abort_session(core: Core, session: kv_pb2.KvSessionRef) -> lifecycle_pb2.AbortResponse:
    try:
        response = await core.part.abort(session)
    except StatusError as error:
        core.stats.session_aborts[error.status.name.lower()] += 1
        raise
    name = lifecycle_pb2.AbortStatus.Name(response.status).removeprefix("ABORT_STATUS_")
    core.stats.session_aborts[name.lower()] += 1
    core.stats.changed()
    return response


def stop_all(core: Core) -> int:
    """Abort every active request; return how many were not aborted before."""
    stopped = sum([_stop(core, request_id) for request_id in core.table.active])
    core.stats.changed()
    return stopped


def _stop(core: Core, request_id: str) -> bool:
    news = core.table.active[request_id].abort()
    core.stats.aborted += news
    return news


async def drain(core: Core, request: lifecycle_pb2.DrainRequest, context: Context) -> None:
    """Answer Drain: progress on every change, then COMPLETE, or one error when the deadline passes with work left."""
    core.draining = core.draining or request.stop_accepting_new_requests
    due = asyncio.get_running_loop().time() + request.deadline_ms / 1000 if request.HasField("deadline_ms") else None
    await context.write(_progress(core, lifecycle_pb2.DRAIN_STATE_STARTED))
    while core.stats.active > 0:
        if await _change(core, due):
            await context.write(_progress(core, lifecycle_pb2.DRAIN_STATE_IN_PROGRESS))
        elif request.abort_after_deadline:
            stop_all(core)
            due = None
        else:
            await context.write(_overdue(core))
            return
    await context.write(_progress(core, lifecycle_pb2.DRAIN_STATE_COMPLETE))


async def _change(core: Core, due: float | None) -> bool:
    """Wait until the number of active requests changes; False when the time is up first."""
    left = core.stats.active
    try:
        async with asyncio.timeout_at(due):
            await core.stats.until(lambda stats: stats.active != left)
    except TimeoutError:
        return False
    return True


def _progress(core: Core, state: lifecycle_pb2.DrainState) -> lifecycle_pb2.DrainResponse:
    sessions = core.stats.sessions.live if core.part.sessions is not None else None
    return lifecycle_pb2.DrainResponse(state=state, in_flight_requests=core.stats.active, open_kv_sessions=sessions)


def _overdue(core: Core) -> lifecycle_pb2.DrainResponse:
    message = f"deadline passed with {core.stats.active} requests in flight"
    error = error_pb2.EngineError(code=error_pb2.ERROR_CODE_INTERNAL, message=message, retryable=True)
    return lifecycle_pb2.DrainResponse(error=error, in_flight_requests=core.stats.active)

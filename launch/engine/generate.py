"""The Generate call: admission, the stream, and an honest record of how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import grpc
import grpc.aio

from openengine_sidecar.launch.engine.admission import Admitted
from openengine_sidecar.launch.engine.core import Core
from openengine_sidecar.launch.engine.faults import Fault, Scene
from openengine_sidecar.launch.engine.plan import Plan
from openengine_sidecar.launch.engine.requests import ActiveRequest
from openengine_sidecar.launch.engine.roles.prefill import HANDED_OUT
from openengine_sidecar.launch.engine.stats import Received
from openengine_sidecar.launch.engine.status import StatusError, draining, starting
from openengine_sidecar.proto.rev2 import error_pb2, generation_pb2

Request = generation_pb2.GenerateRequest
Response = generation_pb2.GenerateResponse
Context = grpc.aio.ServicerContext[Request, Response]


async def generate(core: Core, request: Request, context: Context) -> None:
    """Serve one Generate call.

    Raises:
        StatusError: the request is refused, or a fault ends the stream with a status.
    """
    headers = {key: str(value) for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    core.stats.received.append(Received(request, headers))
    try:
        admitted, plans, own = _admit(core, request)
    except StatusError as refusal:
        core.stats.refused[refusal.status.name] += 1
        core.stats.changed()
        raise
    active = core.accept(admitted)
    watch = _Watch(core, active, admitted.outputs)
    events = core.part.events(admitted, active, plans)
    scene = Scene(admitted, active, core.die, core.part.sessions)
    try:
        await core.table.run(active, request.priority)
        await _send(core.faults.over(events, scene, own), watch, context)
    except asyncio.CancelledError:
        watch.cancelled()
        raise
    except StatusError as error:
        active.record.ended = f"status:{error.status.name}"
        raise
    finally:
        watch.close()


def _admit(core: Core, request: Request) -> tuple[Admitted, list[Plan], list[Fault]]:
    if core.starting:
        raise starting()
    if core.draining:
        raise draining()
    admitted = core.admission.check(request)
    if request.request_id in core.table.active:
        raise StatusError(grpc.StatusCode.ALREADY_EXISTS, f"request {request.request_id!r} is active")
    own = core.faults.of_request(request, admitted.prompt.said)
    core.faults.refuse(request, own)
    return admitted, core.generator.plans(admitted), own


async def _send(events: AsyncGenerator[Response, None], watch: _Watch, context: Context) -> None:
    async with aclosing(events):
        async for event in events:
            watch.note(event)
            await context.write(event)


class _Watch:
    """Follows one stream and keeps the books on it."""

    def __init__(self, core: Core, active: ActiveRequest, outputs: int) -> None:
        self._core = core
        self._active = active
        self._open = outputs
        self._endings: list[str] = []

    def note(self, event: Response) -> None:
        """Count one event about to be sent."""
        record = self._active.record
        record.events += 1
        kind = event.WhichOneof("event")
        if kind == "token":
            record.tokens += len(event.token.tokens)
            if event.token.output_index == 0:
                self._active.hold.take(token.token_id for token in event.token.tokens)
            self._core.stats.tokens += len(event.token.tokens)
            if self._core.stats.awaited:
                self._core.stats.changed()
        elif kind == "finished":
            self._end(_reason(event.finished.reason), 1)
        elif kind == "prefill_ready":
            self._end(HANDED_OUT, self._open)
        elif kind == "error":
            self._end(f"error:{_code(event.error.code)}", self._open)

    def cancelled(self) -> None:
        """Take note that the call was cancelled, by the client unless the engine itself goes down."""
        if self._core.stopping:
            self._active.record.ended = "stopped"
        elif self._open > 0:
            self._active.record.ended = "cancelled"
            self._active.record.cancelled = True
            self._core.stats.cancels += 1

    def close(self) -> None:
        """Free the request's id and place, and close its record."""
        record, stats = self._active.record, self._core.stats
        if record.ended is None:
            record.ended = ",".join(self._endings) if self._open <= 0 else "broken"
        self._core.part.ended(self._active)
        self._core.table.remove(self._active)
        self._active.hold.release()
        stats.active -= 1
        stats.changed()

    def _end(self, ending: str, outputs: int) -> None:
        self._open -= outputs
        self._endings.append(ending)
        self._core.stats.finished[ending] += 1


def _reason(number: int) -> str:
    if number not in generation_pb2.FinishReason.values():
        return str(number)
    return generation_pb2.FinishReason.Name(number).removeprefix("FINISH_REASON_").lower()


def _code(number: int) -> str:
    if number not in error_pb2.ErrorCode.values():
        return str(number)
    return error_pb2.ErrorCode.Name(number).removeprefix("ERROR_CODE_")

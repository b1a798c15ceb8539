"""Streams that end, fail, stall or die in ways of their own."""

from __future__ import annotations

import asyncio

import grpc

from openengine_sidecar.launch.engine.faults.events import Course, Response
from openengine_sidecar.launch.engine.faults.registry import Argument, Effects, Events, FaultScriptError, Scene, fault
from openengine_sidecar.launch.engine.status import StatusError
from openengine_sidecar.proto.rev2 import error_pb2, generation_pb2

NEVER = 1 << 62
FLUSH = 0.05  # seconds, for what was sent to leave the process


def status_named(argument: Argument, default: str) -> grpc.StatusCode:
    """Read a gRPC status by name.

    Raises:
        FaultScriptError: there is no such status.
    """
    name = argument.text(default).upper()
    if name not in grpc.StatusCode.__members__:
        raise FaultScriptError(argument.fault, name, "a gRPC status")
    return grpc.StatusCode[name]


def error_numbered(argument: Argument, default: str) -> int:
    """Read an EngineError code by name, or any number.

    Raises:
        FaultScriptError: there is no such code.
    """
    name = argument.text(default)
    if name.isdigit():
        return int(name)
    full = f"ERROR_CODE_{name.upper()}"
    if full not in error_pb2.ErrorCode.keys():  # noqa: SIM118 - an enum wrapper, not a mapping
        raise FaultScriptError(argument.fault, name, "an error code")
    return error_pb2.ErrorCode.Value(full)


@fault("die", "[N] the whole engine dies, as in a crash, after N tokens of the request")
def die(argument: Argument) -> Effects:
    """Kill the engine in the middle of a stream."""
    limit = argument.count(0)

    async def transform(events: Events, scene: Scene) -> Events:
        course = Course(scene)
        async for event in events:
            if course.tokens >= limit:
                await scene.active.rest(FLUSH)
                scene.die()
                await asyncio.Event().wait()
            course.ends(event)
            yield event

    return Effects(stream=transform)


@fault("hang", "[N] nothing more comes after N tokens, until aborted or cancelled")
def hang(argument: Argument) -> Effects:
    """Stop sending in the middle."""
    limit = argument.count(1)

    async def transform(events: Events, scene: Scene) -> Events:
        course = Course(scene)
        async for event in events:
            course.ends(event)
            yield event
            if course.tokens >= limit:
                await scene.active.rest(None)

    return Effects(stream=transform)


@fault("silent", "[SECS] accepted, then nothing at all, headers included, for so long or until aborted or cancelled")
def silent(argument: Argument) -> Effects:
    """Accept and say nothing."""
    seconds = argument.seconds()

    async def transform(events: Events, scene: Scene) -> Events:
        await scene.active.rest(seconds)
        async for event in events:
            yield event

    return Effects(stream=transform)


@fault("slow", "[SECS] every event is late by so much, by default a second")
def slow(argument: Argument) -> Effects:
    """Be slow."""
    found = argument.seconds()
    seconds = 1.0 if found is None else found

    async def transform(events: Events, scene: Scene) -> Events:
        async for event in events:
            await scene.active.rest(seconds)
            yield event

    return Effects(stream=transform)


@fault("deaf", "aborts are acknowledged and change nothing")
def deaf(_argument: Argument) -> Effects:
    """Ignore aborts."""

    async def transform(events: Events, scene: Scene) -> Events:
        scene.active.deaf = True
        async for event in events:
            yield event

    return Effects(stream=transform)


@fault("error", "[CODE],after=N,retryable,retry_after_ms=N,usage the stream fails with an EngineError after N tokens")
def error(argument: Argument) -> Effects:
    """Fail after acceptance; CODE is a name in lower case or any number, by default internal."""
    number, limit = error_numbered(argument, "internal"), argument.option("after", 0)
    retry_after = argument.option("retry_after_ms", NEVER)
    details = error_pb2.EngineError(message=argument.options.get("message", "scripted failure"))
    details.code = number  # type: ignore[assignment]  # unknown numbers are allowed here
    details.retryable = "retryable" in argument.options
    if retry_after != NEVER:
        details.retry_after_ms = retry_after

    async def transform(events: Events, scene: Scene) -> Events:
        course = Course(scene)
        async for event in events:
            if course.tokens >= limit or course.ends(event):
                failure = Response(request_id=scene.request_id, error=details)
                if "usage" in argument.options:
                    failure.usage.prompt_tokens = len(scene.admitted.prompt.ids)
                    failure.usage.completion_tokens = course.tokens
                    failure.usage.total_tokens = failure.usage.prompt_tokens + course.tokens
                yield failure
                return
            yield event

    return Effects(stream=transform)


@fault("status", "[CODE],after=N the call ends with a gRPC status after N tokens, by default before any event")
def status(argument: Argument) -> Effects:
    """End with a status after acceptance; CODE is a gRPC status name, by default unavailable."""
    code, limit = status_named(argument, "unavailable"), argument.option("after", 0)
    reason = argument.options.get("message", f"scripted {code.name}")

    async def transform(events: Events, scene: Scene) -> Events:
        course = Course(scene)
        async for event in events:
            if course.tokens >= limit:
                raise StatusError(code, reason)
            course.ends(event)
            yield event

    return Effects(stream=transform)


@fault("trailers", "[CODE] a whole stream, then a gRPC status other than OK")
def trailers(argument: Argument) -> Effects:
    """End badly after the terminal; CODE by default internal."""
    code = status_named(argument, "internal")

    async def transform(events: Events, _scene: Scene) -> Events:
        async for event in events:
            yield event
        raise StatusError(code, f"scripted {code.name} after the terminal")

    return Effects(stream=transform)


@fault("cancelled", "[N] the engine itself cancels the request after N tokens")
def cancelled(argument: Argument) -> Effects:
    """Give a request up by itself."""
    limit = argument.count(0)

    async def transform(events: Events, scene: Scene) -> Events:
        course = Course(scene)
        async for event in events:
            course.ends(event)
            yield event
            if course.tokens >= limit:
                scene.active.abort()

    return Effects(stream=transform)


@fault("abort-ends", "[error|status] how an aborted stream ends: EngineError or gRPC status CANCELLED")
def abort_ends(argument: Argument) -> Effects:
    """End an aborted stream in one of the other ways that the contract leaves open."""
    way = argument.among(("error", "status"))

    async def transform(events: Events, scene: Scene) -> Events:
        async for event in events:
            if event.finished.reason != generation_pb2.FINISH_REASON_CANCELLED:
                yield event
            elif way == "status":
                raise StatusError(grpc.StatusCode.CANCELLED, "aborted")
            else:
                failure = error_pb2.EngineError(code=error_pb2.ERROR_CODE_CANCELLED, message="aborted")
                yield Response(request_id=scene.request_id, error=failure)
                return

    return Effects(stream=transform)

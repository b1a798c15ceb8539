"""Faults outside the event stream: refusals before acceptance, and unary calls that fail, hang or answer oddly."""

from __future__ import annotations

import asyncio

import grpc
from google.protobuf.message import Message

from openengine_sidecar.launch.engine.faults.endings import status_named
from openengine_sidecar.launch.engine.faults.registry import Answer, Argument, Effects, FaultScriptError, fault
from openengine_sidecar.launch.engine.status import StatusError
from openengine_sidecar.proto.rev2 import generation_pb2, lifecycle_pb2

UNARY = (
    "Abort",
    "GetEngineInfo",
    "GetModelInfo",
    "GetLoad",
    "GetKvConnectorInfo",
    "GetKvEventSources",
    "Health",
    "InferenceProbe",
    "ListLoras",
    "LoadLora",
    "UnloadLora",
)


@fault("refuse", "[CODE] requests are refused before acceptance, by default for overload (resource_exhausted)")
def refuse(argument: Argument) -> Effects:
    """Refuse requests."""
    return _refusing(status_named(argument, "resource_exhausted"), "no room for another request")


@fault("draining", "requests are refused as by an engine that drains")
def draining(_argument: Argument) -> Effects:
    """Refuse requests with UNAVAILABLE."""
    return _refusing(grpc.StatusCode.UNAVAILABLE, "the engine is draining")


def _refusing(status: grpc.StatusCode, reason: str) -> Effects:
    def refuse_it(_request: generation_pb2.GenerateRequest) -> None:
        raise StatusError(status, reason)

    return Effects(refuse=refuse_it)


@fault("rpc", "METHOD,status=CODE|hang|delay=MS a unary method fails with a status, never answers, or answers late")
def rpc(argument: Argument) -> Effects:
    """Make one unary method fail; METHOD as in the schema, such as Abort."""
    method = next((name for name in UNARY if name.lower() == argument.text("")), None)
    if method is None:
        raise FaultScriptError(argument.fault, argument.value, f"one of {', '.join(UNARY)}")
    name = argument.options.get("status")
    code = status_named(Argument(argument.fault, name), "") if name else None
    delay = argument.option("delay", 0) / 1000

    async def wrap(answer: Answer) -> Message:
        if "hang" in argument.options:
            await asyncio.Event().wait()
        await asyncio.sleep(delay)
        if code is not None:
            raise StatusError(code, f"scripted {code.name}")
        return await answer()

    return Effects(call=wrap, methods=frozenset([method]))


@fault("abort-status", "[N] aborts are answered with the status number N, by default 9, which the schema does not know")
def abort_status(argument: Argument) -> Effects:
    """Answer aborts with a number of another schema."""
    number = argument.count(9)

    async def wrap(answer: Answer) -> Message:
        response = await answer()
        if isinstance(response, lifecycle_pb2.AbortResponse):
            response.status = number  # type: ignore[assignment]  # unknown numbers are the point
        return response

    return Effects(call=wrap, methods=frozenset(["Abort"]))

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.proto.rev2 import error_pb2, lifecycle_pb2
from tests.engine.caller import Answer, Caller, Request, ask, serving

Abort = lifecycle_pb2.AbortRequest
ABORTED = lifecycle_pb2.ABORT_STATUS_ABORTED
ALREADY = lifecycle_pb2.ABORT_STATUS_ALREADY_FINISHED
ENDLESS: dict[str, Any] = {"ignore_eos": True}


async def abort(caller: Caller, **target: Any) -> lifecycle_pb2.AbortResponse:
    response: lifecycle_pb2.AbortResponse = await caller.unary("Abort", Abort(**target), lifecycle_pb2.AbortResponse)
    return response


async def refusal(caller: Caller, **target: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await abort(caller, **target)
    return error.value.code()


async def running(engine: ReferenceEngine, caller: Caller, request: Request, tokens: int = 1) -> asyncio.Task[Answer]:
    task = asyncio.create_task(caller.generate(request))
    wanted = engine.stats.tokens + tokens
    await asyncio.wait_for(engine.stats.until(lambda stats: stats.tokens >= wanted), 10)
    return task


async def test_an_abort_ends_the_stream_with_cancelled_and_usage() -> None:
    async with serving(token_delay=0.005) as (engine, caller):
        task = await running(engine, caller, ask(stopping=ENDLESS, sampling={"num_sequences": 2}), tokens=6)
        assert (await abort(caller, request_id="r")).status == ABORTED
        answer = await task
    assert answer.status is grpc.StatusCode.OK
    assert [event.finished.reason for event in answer.events[-2:]] == [3, 3]
    assert answer.last.usage.completion_tokens == len(answer.ids(0)) + len(answer.ids(1))
    record = engine.stats.records["r"]
    assert (record.ended, record.cancelled, record.aborts) == ("cancelled,cancelled", False, 1)
    assert (engine.stats.aborted, engine.stats.cancels) == (1, 0)
    assert engine.stats.finished == {"cancelled": 2}


async def test_an_abort_is_noticed_between_two_tokens() -> None:
    async with serving(token_delay=3600.0) as (engine, caller):
        task = asyncio.create_task(caller.generate(ask()))
        await asyncio.wait_for(engine.stats.until(lambda stats: stats.active == 1), 10)
        await abort(caller, request_id="r")
        answer = await asyncio.wait_for(task, 10)
    assert answer.kinds == ["finished"]
    assert answer.last.usage.completion_tokens == 0


async def test_an_abort_releases_what_was_held_back() -> None:
    stopping = {"conditions": [{"stop_text": 'hello". You said: "nothing'}], "ignore_eos": True}
    async with serving(tokens_per_event=20, faults=("cancelled:11",)) as (_, caller):
        answer = await caller.generate(ask(stopping=stopping))
    assert [event.token.text for event in answer.events[:-1]] == ['You said: "', 'hello". Y']
    assert answer.last.finished.reason == 3
    assert answer.last.usage.completion_tokens == 20


async def test_aborts_are_idempotent_and_counted_once() -> None:
    async with serving(token_delay=3600.0, faults=("deaf",)) as (engine, caller):
        call = caller.start(ask())
        await asyncio.wait_for(engine.stats.until(lambda stats: stats.active == 1), 10)
        assert [(await abort(caller, request_id="r")).status for _ in range(3)] == [ABORTED] * 3
        call.cancel()
        await asyncio.wait_for(engine.stats.until(lambda stats: stats.active == 0), 10)
        assert (await abort(caller, request_id="r")).status == ALREADY
    assert (engine.stats.abort_calls, engine.stats.aborted) == (4, 1)
    assert engine.stats.abort_outcomes == {"aborted": 3, "already_finished": 1}
    assert engine.stats.records["r"].aborts == 4


async def test_targets_of_an_abort(caller: Caller) -> None:
    assert await refusal(caller) is grpc.StatusCode.INVALID_ARGUMENT
    assert await refusal(caller, request_id="unseen") is grpc.StatusCode.NOT_FOUND
    assert await refusal(caller, kv_session={"session_id": "s"}) is grpc.StatusCode.UNIMPLEMENTED
    await caller.generate(ask())
    assert (await abort(caller, request_id="r")).status == ALREADY


async def test_all_requests_at_once() -> None:
    async with serving(token_delay=0.005) as (engine, caller):
        tasks = [await running(engine, caller, ask(request_id=str(n), stopping=ENDLESS)) for n in range(3)]
        response = await abort(caller, all_requests={})
        assert (response.status, response.message) == (ABORTED, "3 requests aborted")
        answers = await asyncio.gather(*tasks)
    assert all(answer.last.finished.reason == 3 for answer in answers)


async def test_a_cancel_is_not_an_abort() -> None:
    async with serving(token_delay=0.005) as (engine, caller):
        call = caller.start(ask(stopping=ENDLESS))
        await call.read()
        call.cancel()
        await asyncio.wait_for(engine.stats.until(lambda stats: stats.active == 0), 10)
        assert engine.core.table.running == 0
    record = engine.stats.records["r"]
    assert (record.ended, record.cancelled, record.aborts) == ("cancelled", True, 0)
    assert (engine.stats.cancels, engine.stats.abort_calls, engine.stats.finished) == (1, 0, {})


async def test_a_cancel_after_an_abort_is_counted_as_both() -> None:
    async with serving(faults=("silent", "deaf")) as (engine, caller):
        call = caller.start(ask())
        await asyncio.wait_for(engine.stats.until(lambda stats: stats.active == 1), 10)
        await abort(caller, request_id="r")
        call.cancel()
        await asyncio.wait_for(engine.stats.until(lambda stats: stats.active == 0), 10)
    record = engine.stats.records["r"]
    assert (record.ended, record.cancelled, record.aborts) == ("cancelled", True, 1)


async def test_a_lost_connection_is_a_cancel() -> None:
    async with serving(token_delay=0.005) as (engine, caller):
        await running(engine, caller, ask(stopping=ENDLESS))
        await caller.channel.close(None)
        await asyncio.wait_for(engine.stats.until(lambda stats: stats.active == 0), 10)
    assert engine.stats.cancels == 1


async def test_an_id_is_free_once_its_stream_has_ended() -> None:
    async with serving(token_delay=0.005) as (engine, caller):
        first = await running(engine, caller, ask(stopping=ENDLESS))
        assert (await caller.generate(ask())).status is grpc.StatusCode.ALREADY_EXISTS
        assert engine.stats.requests == 1
        await abort(caller, request_id="r")
        await first
        assert (await caller.generate(ask())).status is grpc.StatusCode.OK


async def drain(caller: Caller, **fields: Any) -> list[lifecycle_pb2.DrainResponse]:
    request = lifecycle_pb2.DrainRequest(**fields)
    return [response async for response in caller.stream("Drain", request, lifecycle_pb2.DrainResponse)]


async def test_a_drain_of_an_idle_engine_is_complete_at_once(caller: Caller) -> None:
    responses = await drain(caller, stop_accepting_new_requests=True)
    assert [response.state for response in responses] == [1, 3]
    assert all(response.HasField("in_flight_requests") for response in responses)
    assert not any(response.HasField("open_kv_sessions") for response in responses)
    refused = await caller.generate(ask())
    assert refused.status is grpc.StatusCode.UNAVAILABLE
    health = await caller.unary("Health", lifecycle_pb2.HealthRequest(), lifecycle_pb2.HealthResponse)
    assert health.state == lifecycle_pb2.HEALTH_STATE_DRAINING


async def test_a_drain_waits_and_shows_progress() -> None:
    async with serving(token_delay=0.01) as (engine, caller):
        tasks = [await running(engine, caller, ask("x" * n, str(n), stopping={"max_tokens": 5 * n})) for n in (1, 4)]
        responses = await drain(caller, stop_accepting_new_requests=True)
        answers = await asyncio.gather(*tasks)
    assert [(response.state, response.in_flight_requests) for response in responses] == [(1, 2), (2, 1), (2, 0), (3, 0)]
    assert all(answer.status is grpc.StatusCode.OK for answer in answers)


async def test_a_drain_may_leave_the_intake_open(caller: Caller) -> None:
    assert [response.state for response in await drain(caller)] == [1, 3]
    assert (await caller.generate(ask())).status is grpc.StatusCode.OK


@pytest.mark.parametrize("deadline", [0, 20])
async def test_a_drain_past_its_deadline_aborts_when_told_to(deadline: int) -> None:
    async with serving(token_delay=0.005) as (engine, caller):
        task = await running(engine, caller, ask(stopping=ENDLESS))
        responses = await drain(caller, deadline_ms=deadline, abort_after_deadline=True)
        answer = await task
    assert responses[-1].state == lifecycle_pb2.DRAIN_STATE_COMPLETE
    assert answer.last.finished.reason == 3


async def test_a_drain_past_its_deadline_fails_with_one_error() -> None:
    async with serving(token_delay=0.005) as (engine, caller):
        task = await running(engine, caller, ask(stopping=ENDLESS))
        responses = await drain(caller, deadline_ms=0)
        assert [response.WhichOneof("event") for response in responses] == ["state", "error"]
        assert responses[-1].error.code == error_pb2.ERROR_CODE_INTERNAL
        assert "1 requests in flight" in responses[-1].error.message
        await abort(caller, all_requests={})
        await task

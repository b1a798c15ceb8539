from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from openengine_sidecar.messages.engine.generation import Event, Finished, FinishReason, GenerateCall, Tokens
from openengine_sidecar.proto.channels import open_channel
from openengine_sidecar.proto.dialect import EngineCallError, GenerationStream, Oversized, UndecodableError
from openengine_sidecar.proto.rev2.engine_pb2 import EngineInfo
from openengine_sidecar.proto.rev2.generation_pb2 import FINISH_REASON_LENGTH, GenerateResponse
from openengine_sidecar.proto.rev2_dialect import Method, Revision2
from tests.proto.engine import (
    KIBIBYTE,
    Config,
    Engine,
    Handler,
    Reply,
    answering,
    connected,
    engine_info,
    serving,
    streaming,
)

REV2 = Revision2()
CALL = GenerateCall(request_id="r", model="m", token_ids=[1])


def _token(text: str, *ids: int) -> GenerateResponse:
    response = GenerateResponse(request_id="r")
    response.token.output_index = 0
    response.token.text = text
    for token_id in ids:
        response.token.tokens.add(token_id=token_id)
    return response


def _finished() -> GenerateResponse:
    response = GenerateResponse(request_id="r")
    response.finished.output_index = 0
    response.finished.reason = FINISH_REASON_LENGTH
    return response


async def _drained(stream: GenerationStream) -> list[Event]:
    events: list[Event] = []
    while batch := await stream.next_batch():
        events.extend(batch)
    return events


class Hanging:
    """A handler that says what it has seen and never answers by itself."""

    def __init__(self, *first: Reply) -> None:
        self.first = first
        self.entered = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, _request: Any, context: Any) -> AsyncIterator[Any]:
        context.add_done_callback(lambda _: self.ended.set())
        self.entered.set()
        for response in self.first:
            yield response
        await asyncio.Event().wait()


async def test_c15_events_come_in_order_and_an_ok_close_is_the_empty_batch() -> None:
    async with connected({Method.GENERATE: streaming(_token("a", 7), _token("b", 8), _finished())}) as (_, channel):
        stream = REV2.generate(channel, CALL)
        assert await _drained(stream) == [
            Event("r", Tokens(index=0, token_ids=[7], text="a")),
            Event("r", Tokens(index=0, token_ids=[8], text="b")),
            Event("r", Finished(index=0, reason=FinishReason.LENGTH)),
        ]
        assert await stream.next_batch() == ()


async def test_stream_does_not_start_before_the_first_wait() -> None:
    async with connected(
        {Method.GENERATE: streaming(_finished()), Method.GET_ENGINE_INFO: answering(engine_info())}
    ) as (
        engine,
        channel,
    ):
        stream = REV2.generate(channel, CALL)
        await REV2.speaks(channel, timeout=5)
        assert engine.methods == [Method.GET_ENGINE_INFO]
        await stream.next_batch()
        assert engine.methods == [Method.GET_ENGINE_INFO, Method.GENERATE]


async def test_c25_what_came_before_a_failing_status_is_delivered_first() -> None:
    tokens = [_token(str(i), i) for i in range(5)]
    handler = streaming(*tokens, code=grpc.StatusCode.DATA_LOSS, details="half a line\nand a forged one")
    async with connected({Method.GENERATE: handler}) as (_, channel):
        stream = REV2.generate(channel, CALL)
        seen = [(await stream.next_batch())[0] for _ in tokens]
        assert [event.body.token_ids for event in seen if isinstance(event.body, Tokens)] == [[i] for i in range(5)]
        for _ in range(2):
            with pytest.raises(EngineCallError) as failure:
                await stream.next_batch()
            assert failure.value.status is grpc.StatusCode.DATA_LOSS
            assert failure.value.detail == r"half a line\nand a forged one"
            assert failure.value.method == Method.GENERATE


async def test_engine_status_cancelled_is_an_error_and_not_a_cancellation_of_the_reader() -> None:
    async with connected({Method.GENERATE: streaming(code=grpc.StatusCode.CANCELLED, details="gave up")}) as (
        _,
        channel,
    ):
        with pytest.raises(EngineCallError, match="gave up") as failure:
            await REV2.generate(channel, CALL).next_batch()
        assert failure.value.status is grpc.StatusCode.CANCELLED


@pytest.mark.parametrize("first", [(), (_token("a", 1),)], ids=["headers-pending", "streaming"])
async def test_c62_cancel_wakes_the_reader_and_reaches_the_engine(first: tuple[GenerateResponse, ...]) -> None:
    handler = Hanging(*first)
    async with connected({Method.GENERATE: handler}) as (_, channel):
        stream = REV2.generate(channel, CALL)
        for _ in first:
            await stream.next_batch()
        reader = asyncio.create_task(_drained(stream))
        await handler.entered.wait()
        stream.cancel()
        stream.cancel()
        with pytest.raises(EngineCallError) as failure:
            await reader
        assert failure.value.status is grpc.StatusCode.CANCELLED
        await handler.ended.wait()


async def test_c63_cancelled_before_the_start_no_call_is_made() -> None:
    async with connected({Method.GENERATE: streaming(), Method.GET_ENGINE_INFO: answering(engine_info())}) as (
        engine,
        channel,
    ):
        stream = REV2.generate(channel, CALL)
        stream.cancel()
        with pytest.raises(EngineCallError, match="cancelled by this side"):
            await stream.next_batch()
        await REV2.speaks(channel, timeout=5)
        assert engine.methods == [Method.GET_ENGINE_INFO]


async def test_cancelling_the_reading_task_cancels_the_call() -> None:
    handler = Hanging()
    async with connected({Method.GENERATE: handler}) as (_, channel):
        reader = asyncio.create_task(_drained(REV2.generate(channel, CALL)))
        await handler.entered.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await handler.ended.wait()


async def test_a_timeout_around_the_reader_stays_a_timeout() -> None:
    handler = Hanging()
    async with connected({Method.GENERATE: handler}) as (_, channel):
        stream = REV2.generate(channel, CALL)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await stream.next_batch()


async def test_c64_cancelling_one_stream_leaves_its_neighbour_alone() -> None:
    gate = asyncio.Event()

    async def handler(_request: Any, _context: Any) -> AsyncIterator[GenerateResponse]:
        yield _token("a", 1)
        await gate.wait()
        yield _finished()

    async with connected({Method.GENERATE: handler}) as (_, channel):
        doomed, neighbour = REV2.generate(channel, CALL), REV2.generate(channel, CALL)
        await doomed.next_batch()
        await neighbour.next_batch()
        doomed.cancel()
        gate.set()
        assert len(await _drained(neighbour)) == 1


async def test_a_channel_closed_underneath_reads_as_unreachable_not_as_cancelled() -> None:
    handler = Hanging()
    async with connected({Method.GENERATE: handler}) as (_, channel):
        reader = asyncio.create_task(_drained(REV2.generate(channel, CALL)))
        await handler.entered.wait()
        await channel.close(None)
        with pytest.raises(EngineCallError) as failure:
            await reader
        assert failure.value.status is grpc.StatusCode.UNAVAILABLE
        for late in (REV2.generate(channel, CALL).next_batch(), REV2.load(channel, per_rank=False, timeout=5)):
            with pytest.raises(EngineCallError) as failure:
                await late
            assert failure.value.status is grpc.StatusCode.UNAVAILABLE


async def test_nobody_listening_is_unavailable() -> None:
    channel = open_channel(Config("127.0.0.1:1"))
    with pytest.raises(EngineCallError) as failure:
        await REV2.generate(channel, CALL).next_batch()
    await channel.close(None)
    assert failure.value.status is grpc.StatusCode.UNAVAILABLE
    assert failure.value.oversized is None


async def test_a_call_cancelled_with_its_task_stays_cancelled() -> None:
    entered = asyncio.Event()

    async def handler(_request: Any, _context: Any) -> EngineInfo:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with connected({Method.GET_ENGINE_INFO: handler}) as (_, channel):
        asking = asyncio.create_task(REV2.speaks(channel, timeout=60))
        await entered.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_a_unary_call_on_a_channel_that_closes_reads_as_unreachable() -> None:
    entered = asyncio.Event()

    async def handler(_request: Any, _context: Any) -> EngineInfo:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with connected({Method.GET_ENGINE_INFO: handler}) as (_, channel):
        asking = asyncio.create_task(REV2.speaks(channel, timeout=60))
        await entered.wait()
        await channel.close(None)
        with pytest.raises(EngineCallError) as failure:
            await asking
        assert failure.value.status is grpc.StatusCode.UNAVAILABLE


def _sized(total: int) -> GenerateResponse:
    response = _token("", 1)
    response.token.text = "x" * (total - response.ByteSize() - 6)
    response.token.text += "x" * (total - response.ByteSize())
    assert response.ByteSize() == total
    return response


async def test_c31_a_message_at_the_limit_passes_and_one_above_fails_its_own_request() -> None:
    limit = 64 * KIBIBYTE
    sizes = {"fits": limit, "bursts": limit + 1}

    async def handler(request: Any, _context: Any) -> AsyncIterator[GenerateResponse]:
        yield _sized(sizes[request.request_id])
        yield _finished()

    async with connected({Method.GENERATE: handler}, max_receive_bytes=limit) as (_, channel):
        fits = REV2.generate(channel, GenerateCall(request_id="fits", model="m", token_ids=[1]))
        await fits.next_batch()
        bursts = REV2.generate(channel, GenerateCall(request_id="bursts", model="m", token_ids=[1]))
        with pytest.raises(EngineCallError) as failure:
            await bursts.next_batch()
        assert failure.value.status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert failure.value.oversized is Oversized.RESPONSE
        assert len(await _drained(fits)) == 1


@pytest.mark.parametrize(
    ("ours", "theirs"), [(4 * KIBIBYTE, 64 * KIBIBYTE), (64 * KIBIBYTE, 4 * KIBIBYTE)], ids=["our-limit", "its-limit"]
)
async def test_c31_a_request_above_a_limit_is_told_apart_from_overload(ours: int, theirs: int) -> None:
    call = GenerateCall(request_id="r", model="x" * 5 * KIBIBYTE, token_ids=[1])
    options = [("grpc.max_receive_message_length", theirs)]
    async with connected({Method.GENERATE: streaming()}, options=options, max_send_bytes=ours) as (_, channel):
        with pytest.raises(EngineCallError) as failure:
            await REV2.generate(channel, call).next_batch()
        assert failure.value.status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert failure.value.oversized is Oversized.REQUEST


async def test_c31_an_engines_own_exhaustion_is_overload() -> None:
    handler = streaming(code=grpc.StatusCode.RESOURCE_EXHAUSTED, details="queue is full")
    async with connected({Method.GENERATE: handler}) as (_, channel):
        with pytest.raises(EngineCallError) as failure:
            await REV2.generate(channel, CALL).next_batch()
        assert failure.value.oversized is None


async def test_c72_undecodable_event_is_its_own_error_and_ends_the_call() -> None:
    handler = Hanging(b"\xff\xff\xff")
    async with connected({Method.GENERATE: handler}) as (_, channel):
        stream = REV2.generate(channel, CALL)
        with pytest.raises(UndecodableError, match="3 bytes is not of this schema") as failure:
            await stream.next_batch()
        assert failure.value.status is grpc.StatusCode.INTERNAL
        await handler.ended.wait()


async def test_c72_undecodable_unary_answer_is_its_own_error() -> None:
    async with connected({Method.GET_ENGINE_INFO: answering(b"\x0a\xff")}) as (_, channel):
        with pytest.raises(UndecodableError):
            await REV2.speaks(channel, timeout=5)


async def test_f20_a_channel_finds_an_engine_that_returns() -> None:
    handlers: dict[Method, Handler] = {Method.GET_ENGINE_INFO: answering(engine_info())}
    first: Engine
    async with serving(handlers) as first:
        channel = open_channel(Config(first.endpoint))
        assert await REV2.speaks(channel, timeout=5)
    with pytest.raises(EngineCallError):
        await REV2.speaks(channel, timeout=5)
    async with serving(handlers, port=int(first.endpoint.rpartition(":")[2])):
        await channel.channel_ready()
        assert await REV2.speaks(channel, timeout=5)
    await channel.close(None)

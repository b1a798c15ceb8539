from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from openengine_sidecar.messages.engine.kv import (
    AllBlocksCleared,
    BlockHash,
    BlockRemoved,
    BlockStored,
    KvBatch,
    KvEventSource,
    Medium,
    UnknownEvent,
)
from openengine_sidecar.proto.dialect import EngineCallError, UndecodableError
from openengine_sidecar.proto.rev2 import error_pb2, kv_pb2
from openengine_sidecar.proto.rev2_dialect import Method, Revision2
from tests.proto.engine import Reply, answering, connected, refusing, streaming, wire

REV2 = Revision2()
SUBSCRIBE = Method.SUBSCRIBE_KV_EVENTS


def told(sequence: int, *events: kv_pb2.KvEvent, rank: int = 0) -> kv_pb2.SubscribeKvEventsResponse:
    batch = kv_pb2.KvEventBatch(sequence_number=sequence, data_parallel_rank=rank, events=events)
    return kv_pb2.SubscribeKvEventsResponse(batch=batch)


def name(value: bytes, encoding: str = "decimal_int64") -> kv_pb2.KvBlockHash:
    return kv_pb2.KvBlockHash(value=value, encoding=encoding)


async def only_batch(reply: Reply) -> KvBatch:
    async with connected({SUBSCRIBE: streaming(reply)}) as (_, channel):
        stream = REV2.subscribe_kv(channel, 0)
        [batch] = await stream.next_batches()
        assert await stream.next_batches() == ()
        return batch


async def test_c53_every_source_is_read_as_it_is_advertised() -> None:
    answer = kv_pb2.GetKvEventSourcesResponse(
        sources=[
            kv_pb2.KvEventSource(transport="grpc", encoding="protobuf", data_parallel_rank=0),
            kv_pb2.KvEventSource(
                transport="zmq",
                encoding="msgpack",
                endpoint_addr=kv_pb2.KvEndpoint(host="fe80::1", port=5557, protocol="tcp"),
                topic="kv",
                replay_endpoint="tcp://h:5558",
                data_parallel_rank=1,
                schema_version=1,
                buffer_steps=0,
                hwm=10,
                max_queue_size=20,
            ),
            kv_pb2.KvEventSource(transport="\n"),
        ]
    )
    async with connected({Method.GET_KV_EVENT_SOURCES: answering(answer)}) as (engine, channel):
        assert tuple(await REV2.kv_sources(channel, timeout=5)) == (
            KvEventSource(transport="grpc", encoding="protobuf", rank=0),
            KvEventSource(
                transport="zmq",
                encoding="msgpack",
                host="fe80::1",
                port=5557,
                protocol="tcp",
                topic="kv",
                replay_endpoint="tcp://h:5558",
                rank=1,
                schema_version=1,
                buffer_steps=0,
                hwm=10,
                max_queue_size=20,
            ),
            KvEventSource(transport=r"\n", encoding=""),
        )
        assert list(engine.calls[0].request.data_parallel_ranks) == []


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
async def test_c53_sources_that_cannot_be_had_are_an_error(code: grpc.StatusCode) -> None:
    async with connected({Method.GET_KV_EVENT_SOURCES: refusing(code, "no")}) as (_, channel):
        with pytest.raises(EngineCallError) as failure:
            await REV2.kv_sources(channel, timeout=5)
    assert failure.value.status is code


@pytest.mark.parametrize(
    ("asked", "ranks", "snapshot", "start"),
    [({}, [3], False, 0), ({"snapshot": True}, [3], True, 0), ({"start": 4}, [3], False, 4)],
)
async def test_c55_a_subscription_asks_for_one_rank_and_for_what_it_wants_of_the_past(
    asked: dict[str, Any], ranks: list[int], *, snapshot: bool, start: int
) -> None:
    async with connected({SUBSCRIBE: streaming()}) as (engine, channel):
        await REV2.subscribe_kv(channel, 3, **asked).next_batches()
        request = engine.calls[0].request
        assert list(request.data_parallel_ranks) == ranks
        assert (request.include_snapshot, request.start_sequence_number) == (snapshot, start)


async def test_c54_batches_come_in_order_with_number_rank_and_time() -> None:
    timed = told(2, rank=1)
    timed.batch.timestamp_unix_nanos = 99
    async with connected({SUBSCRIBE: streaming(told(1), timed)}) as (_, channel):
        stream = REV2.subscribe_kv(channel, 0)
        assert await stream.next_batches() == (KvBatch(sequence=1, rank=0),)
        assert await stream.next_batches() == (KvBatch(sequence=2, rank=1, timestamp_unix_nanos=99),)
        assert await stream.next_batches() == ()


async def test_f33_a_stored_chain_is_read_whole() -> None:
    stored = kv_pb2.BlockStored(
        block_hashes=[name(b"-1"), name(b"\x00\xff", "bytes")],
        parent_block_hash=name(b"7"),
        token_ids=[1, 2, 3, 4],
        block_size=2,
        lora_id=5,
        lora_name="a",
        medium=kv_pb2.STORAGE_MEDIUM_DISK,
        extra_keys=[kv_pb2.OpaqueKeyTuple(values=["trt_mm_v1", "0"]), kv_pb2.OpaqueKeyTuple()],
        group_idx=3,
        kv_cache_spec_kind="sliding_window",
        kv_cache_spec_sliding_window=128,
    )
    batch = await only_batch(told(1, kv_pb2.KvEvent(block_stored=stored)))
    assert batch.events == (
        BlockStored(
            hashes=(BlockHash(b"-1", "decimal_int64"), BlockHash(b"\x00\xff", "bytes")),
            token_ids=[1, 2, 3, 4],
            block_size=2,
            parent=BlockHash(b"7", "decimal_int64"),
            lora_id=5,
            lora_name="a",
            medium=Medium.DISK,
            extra_keys=(("trt_mm_v1", "0"), ()),
            group=3,
            spec_kind="sliding_window",
            sliding_window=128,
        ),
    )


async def test_c58_what_is_not_said_is_the_gpu_the_base_model_and_the_start_of_a_sequence() -> None:
    batch = await only_batch(told(1, kv_pb2.KvEvent(block_stored=kv_pb2.BlockStored())))
    assert batch.events == (BlockStored(hashes=(), token_ids=[], block_size=0),)


async def test_c58_an_empty_parent_is_a_parent() -> None:
    stored = kv_pb2.BlockStored(parent_block_hash=kv_pb2.KvBlockHash())
    batch = await only_batch(told(1, kv_pb2.KvEvent(block_stored=stored)))
    assert isinstance(batch.events[0], BlockStored)
    assert batch.events[0].parent == BlockHash(b"", "")


@pytest.mark.parametrize(
    ("number", "medium"),
    [
        (kv_pb2.STORAGE_MEDIUM_UNSPECIFIED, Medium.GPU),
        (kv_pb2.STORAGE_MEDIUM_GPU, Medium.GPU),
        (kv_pb2.STORAGE_MEDIUM_CPU_PINNED, Medium.CPU_PINNED),
        (kv_pb2.STORAGE_MEDIUM_DISK, Medium.DISK),
        (kv_pb2.STORAGE_MEDIUM_EXTERNAL, Medium.EXTERNAL),
        (77, Medium.UNKNOWN),
    ],
)
async def test_c58_media(number: int, medium: Medium) -> None:
    removed = kv_pb2.BlockRemoved(block_hashes=[name(b"1")], medium=wire(number), group_idx=2)
    batch = await only_batch(told(1, kv_pb2.KvEvent(block_removed=removed)))
    assert batch.events == (BlockRemoved(hashes=(BlockHash(b"1", "decimal_int64"),), medium=medium, group=2),)


async def test_every_medium_of_the_schema_is_known() -> None:
    numbers = kv_pb2.StorageMedium.values()
    removals = [kv_pb2.KvEvent(block_removed=kv_pb2.BlockRemoved(medium=number)) for number in numbers]
    events = (await only_batch(told(1, *removals))).events
    assert len(events) == len(numbers)
    assert Medium.UNKNOWN not in {event.medium for event in events if isinstance(event, BlockRemoved)}


async def test_cleared_and_unknown_events_keep_their_places() -> None:
    cleared = kv_pb2.KvEvent(all_blocks_cleared=kv_pb2.AllBlocksCleared())
    batch = await only_batch(told(1, cleared, kv_pb2.KvEvent(request_id="r"), cleared))
    assert batch.events == (AllBlocksCleared(), UnknownEvent(), AllBlocksCleared())


async def test_a_message_of_an_unknown_kind_is_passed_over() -> None:
    async with connected({SUBSCRIBE: streaming(kv_pb2.SubscribeKvEventsResponse(), told(1))}) as (_, channel):
        [batch] = await REV2.subscribe_kv(channel, 0).next_batches()
    assert batch.sequence == 1


async def test_c56_an_error_of_the_engine_ends_the_stream() -> None:
    error = error_pb2.EngineError(code=error_pb2.ERROR_CODE_OVERLOADED, message="too slow\n")
    replies = (told(1), kv_pb2.SubscribeKvEventsResponse(error=error))
    async with connected({SUBSCRIBE: streaming(*replies)}) as (_, channel):
        stream = REV2.subscribe_kv(channel, 0)
        await stream.next_batches()
        with pytest.raises(EngineCallError, match=r"overloaded: too slow\\n") as failure:
            await stream.next_batches()
    assert (failure.value.method, failure.value.status) == (SUBSCRIBE, grpc.StatusCode.INTERNAL)


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
async def test_c56_a_status_ends_the_stream(code: grpc.StatusCode) -> None:
    async with connected({SUBSCRIBE: streaming(told(1), code=code, details="no")}) as (_, channel):
        stream = REV2.subscribe_kv(channel, 0)
        await stream.next_batches()
        with pytest.raises(EngineCallError) as failure:
            await stream.next_batches()
    assert failure.value.status is code


async def test_c72_a_message_of_another_schema_is_told_apart_and_ends_the_call() -> None:
    async with connected({SUBSCRIBE: streaming(b"\xff", told(1))}) as (_, channel):
        stream = REV2.subscribe_kv(channel, 0)
        with pytest.raises(UndecodableError):
            await stream.next_batches()
        with pytest.raises(EngineCallError) as failure:
            await stream.next_batches()
    assert failure.value.status is grpc.StatusCode.CANCELLED


async def test_a_cancelled_stream_says_so_and_the_engine_hears_it() -> None:
    heard = asyncio.Event()

    async def silent(_request: Any, context: Any) -> AsyncIterator[Reply]:
        context.add_done_callback(lambda _: heard.set())
        yield told(1)
        await asyncio.Event().wait()

    async with connected({SUBSCRIBE: silent}) as (_, channel):
        stream = REV2.subscribe_kv(channel, 0)
        await stream.next_batches()
        stream.cancel()
        with pytest.raises(EngineCallError) as failure:
            await stream.next_batches()
        await asyncio.wait_for(heard.wait(), 5)
    assert failure.value.status is grpc.StatusCode.CANCELLED

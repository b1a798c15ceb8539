from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest
import zmq
import zmq.asyncio

from openengine_sidecar.launch.engine.command import KV_ENCODINGS
from openengine_sidecar.launch.engine.kv.encoding import HASHES
from openengine_sidecar.proto.rev2 import kv_pb2
from tests.engine.caller import Caller, ask, chat, serving
from tests.support.waiting import eventually

GRPC: dict[str, Any] = {"kv_events": frozenset({"grpc"}), "kv_block_size": 8}
ZMQ: dict[str, Any] = {**GRPC, "kv_events": frozenset({"zmq"})}
PROMPT = "x" * 12  # two blocks of eight with the chat template's tokens

Reply = kv_pb2.SubscribeKvEventsResponse
Batch = kv_pb2.KvEventBatch


async def sources(caller: Caller, *ranks: int) -> list[kv_pb2.KvEventSource]:
    request = kv_pb2.GetKvEventSourcesRequest(data_parallel_ranks=ranks)
    return list((await caller.unary("GetKvEventSources", request, kv_pb2.GetKvEventSourcesResponse)).sources)


def subscribe(caller: Caller, *ranks: int, snapshot: bool = False, start: int = 0) -> Any:
    request = kv_pb2.SubscribeKvEventsRequest(
        data_parallel_ranks=ranks, include_snapshot=snapshot, start_sequence_number=start
    )
    return caller.stream("SubscribeKvEvents", request, Reply)


async def batches(call: Any, count: int) -> list[Batch]:
    replies = [await call.read() for _ in range(count)]
    return [reply.batch for reply in replies]


async def say(caller: Caller, request_id: str, text: str = PROMPT, *, max_tokens: int = 1, **fields: Any) -> None:
    answer = await caller.generate(ask(text, request_id, stopping={"max_tokens": max_tokens}, **fields))
    assert answer.status is grpc.StatusCode.OK, answer.reason


async def listening(engine: Any) -> None:
    await eventually(lambda: engine.stats.calls["SubscribeKvEvents"], "somebody listens")


def stored(batch: Batch) -> list[list[int]]:
    """Tokens of the blocks that a batch stores."""
    size = 8
    return [
        list(event.block_stored.token_ids[start : start + size])
        for event in batch.events
        for start in range(0, len(event.block_stored.token_ids), size)
    ]


def test_the_command_line_knows_every_encoding() -> None:
    assert list(KV_ENCODINGS) == list(HASHES)


async def test_without_events_there_is_no_source_and_no_subscription(caller: Caller) -> None:
    assert await sources(caller) == []
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await batches(subscribe(caller), 1)
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_every_rank_has_its_source() -> None:
    async with serving(**GRPC, data_parallel_size=2, data_parallel_start_rank=3) as (_, caller):
        found = await sources(caller)
        assert [source.data_parallel_rank for source in found] == [3, 4]
        assert {(source.transport, source.encoding) for source in found} == {("grpc", "protobuf")}
        assert [source.data_parallel_rank for source in await sources(caller, 4)] == [4]


async def test_a_prompt_and_its_answer_are_stored_block_by_block() -> None:
    async with serving(**GRPC) as (engine, caller):
        call = subscribe(caller, 0)
        await listening(engine)
        await say(caller, "1", max_tokens=9)
        first, second = await batches(call, 2)
        call.cancel()
    ids = chat(PROMPT)
    assert (first.sequence_number, second.sequence_number) == (1, 2)
    assert stored(first) == [ids[0:8], ids[8:16]]
    [event] = second.events
    assert event.block_stored.parent_block_hash == first.events[0].block_stored.block_hashes[-1]
    assert len(event.block_stored.token_ids) == event.block_stored.block_size == 8


async def test_what_is_cached_is_not_told_again_and_what_is_evicted_is() -> None:
    async with serving(**GRPC, total_kv_blocks=2) as (engine, caller):
        call = subscribe(caller, 0)
        await listening(engine)
        for number, text in enumerate((PROMPT, PROMPT, "y" * 12)):
            await say(caller, str(number), text)
        first, second = await batches(call, 2)
        call.cancel()
    assert [event.WhichOneof("event") for event in second.events] == ["block_removed", "block_stored"]
    assert set(map(bytes, _values(second.events[0].block_removed))) <= set(
        map(bytes, _values(first.events[0].block_stored))
    )


def _values(event: Any) -> list[bytes]:
    return [found.value for found in event.block_hashes]


async def test_ranks_number_their_batches_apart() -> None:
    async with serving(**GRPC, data_parallel_size=2) as (engine, caller):
        call = subscribe(caller)
        await listening(engine)
        for rank in (0, 1):
            await say(caller, str(rank), kv={"data_parallel_rank": rank})
        found = await batches(call, 2)
        call.cancel()
    assert [(batch.data_parallel_rank, batch.sequence_number) for batch in found] == [(0, 1), (1, 1)]


async def test_a_snapshot_tells_what_is_held_under_the_newest_number() -> None:
    async with serving(**GRPC) as (_, caller):
        await say(caller, "1", max_tokens=9)
        await say(caller, "2", "y" * 12)
        call = subscribe(caller, 0, snapshot=True)
        [snapshot] = await batches(call, 1)
        await say(caller, "3", "z" * 12)
        [live] = await batches(call, 1)
        call.cancel()
    assert (snapshot.sequence_number, live.sequence_number) == (3, 4)
    assert [len(event.block_stored.block_hashes) for event in snapshot.events] == [3, 2]


async def test_a_replay_begins_where_it_is_asked_to_or_where_memory_does() -> None:
    async with serving(**GRPC, kv_history=2) as (_, caller):
        for number in range(4):
            await say(caller, str(number), chr(97 + number) * 12)
        for start, expected in ((1, [3, 4]), (4, [4])):
            call = subscribe(caller, 0, start=start)
            assert [batch.sequence_number for batch in await batches(call, len(expected))] == expected
            call.cancel()


@pytest.mark.parametrize(
    ("options", "asked", "code"),
    [
        ({"kv_snapshots": False}, {"snapshot": True}, grpc.StatusCode.UNIMPLEMENTED),
        ({"kv_history": 0}, {"start": 1}, grpc.StatusCode.UNIMPLEMENTED),
    ],
)
async def test_a_past_that_is_not_offered_is_unimplemented(
    options: dict[str, Any], asked: dict[str, Any], code: grpc.StatusCode
) -> None:
    async with serving(**GRPC, **options) as (_, caller):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await batches(subscribe(caller, 0, **asked), 1)
    assert error.value.code() is code


async def test_another_rank_is_an_invalid_argument() -> None:
    async with serving(**GRPC) as (_, caller):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await batches(subscribe(caller, 7), 1)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_subscriber_that_is_too_slow_is_cut_off() -> None:
    async with serving(**GRPC, kv_patience=1) as (engine, caller):
        call = subscribe(caller, 0)
        await listening(engine)
        feed, blocks = engine.core.feeds[0], list(engine.core.caches[0])
        for _ in range(5):
            feed.changed(blocks, [])
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await batches(call, 5)
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("decimal_int64", b"-2"),
        ("int64", b"\xfe" + b"\xff" * 7),
        ("bytes", b"\xff" * 7 + b"\xfe"),
        ("sha256", (b"\xff" * 7 + b"\xfe") * 4),
        ("hex", b"fffffffffffffffe"),
        ("utf8", b"block-18446744073709551614"),
    ],
)
def test_c58_hashes_in_every_encoding(encoding: str, value: bytes) -> None:
    assert HASHES[encoding](2**64 - 2) == value


async def test_what_besides_tokens_went_into_hashes_is_told() -> None:
    async with serving(**GRPC) as (engine, caller):
        call = subscribe(caller, 0)
        await listening(engine)
        await say(caller, "1", kv={"cache_salt": "tenant"})
        await say(caller, "2", media=[{"modality": "MODALITY_IMAGE", "url": "http://x/1"}])
        salted, media = await batches(call, 2)
        call.cancel()
    assert [list(key.values) for key in salted.events[0].block_stored.extra_keys] == [["cache_salt", "tenant"]]
    [[tag, position, digest, offset]] = [list(key.values) for key in media.events[0].block_stored.extra_keys]
    assert (tag, position, offset) == ("trt_mm_v1", "0", "0")
    assert 0 <= int(digest) < 2**64


async def heard(fault: str, count: int) -> list[Reply]:
    """What a subscriber hears of three prompts while a fault acts."""
    async with serving(**GRPC) as (engine, caller):
        call = subscribe(caller, 0)
        await listening(engine)
        engine.core.faults.play([fault])
        for number in range(3):
            await say(caller, str(number), chr(97 + number) * 12)
        replies = [await call.read() for _ in range(count)]
        call.cancel()
        return replies


@pytest.mark.parametrize(
    ("fault", "numbers"),
    [
        ("kv-drop@1", [2, 3]),
        ("kv-repeat@1", [1, 1, 2, 3]),
        ("kv-repeat:2@1", [1, 1, 1, 2, 3]),
        ("kv-reorder@2", [2, 1, 3]),
        ("kv-rank@1", [1, 2, 3]),
        ("kv-garbage@1", [1, 2, 3]),
    ],
)
async def test_faults_in_the_order_of_batches(fault: str, numbers: list[int]) -> None:
    replies = await heard(fault, len(numbers))
    assert [reply.batch.sequence_number for reply in replies] == numbers
    assert replies[0].batch.data_parallel_rank == (fault == "kv-rank@1")
    assert len(replies[0].batch.events) == 1 + (fault == "kv-garbage@1")


async def test_a_fault_changes_nothing_that_is_remembered() -> None:
    async with serving(**GRPC, faults=("kv-block-size",)) as (engine, caller):
        call = subscribe(caller, 0)
        await listening(engine)
        await say(caller, "1")
        [live] = await batches(call, 1)
        call.cancel()
        call = subscribe(caller, 0, start=1)
        [replayed] = await batches(call, 1)
        call.cancel()
    sizes = [batch.events[0].block_stored.block_size for batch in (live, replayed)]
    assert sizes == [0, 8]


@pytest.mark.parametrize(
    ("fault", "code"),
    [("kv-close", grpc.StatusCode.OK), ("kv-status:resource_exhausted", grpc.StatusCode.RESOURCE_EXHAUSTED)],
)
async def test_faults_that_end_a_subscription(fault: str, code: grpc.StatusCode) -> None:
    async with serving(**GRPC, faults=(fault,)) as (engine, caller):
        call = subscribe(caller, 0)
        await listening(engine)
        await say(caller, "1")
        assert await call.code() is code


async def test_an_engine_error_is_the_last_message() -> None:
    [error, end] = await heard("kv-error:internal", 2)
    assert error.WhichOneof("event") == "error"
    assert end is grpc.aio.EOF


async def test_numbers_begin_again_and_everything_is_cleared_on_demand() -> None:
    async with serving(**GRPC) as (engine, caller):
        call = subscribe(caller, 0)
        await listening(engine)
        await say(caller, "1")
        feed, cache = engine.core.feeds[0], engine.core.caches[0]
        feed.restart()
        feed.clear(cache)
        first, again = await batches(call, 2)
        call.cancel()
    assert (first.sequence_number, again.sequence_number) == (1, 1)
    assert [event.WhichOneof("event") for event in again.events] == ["all_blocks_cleared"]
    assert len(cache) == 0


async def on_socket(source: kv_pb2.KvEventSource) -> AsyncIterator[tuple[bytes, int, Any]]:
    with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
        socket.connect(f"tcp://{source.endpoint_addr.host}:{source.endpoint_addr.port}")
        socket.subscribe(source.topic)
        while True:
            topic, number, payload = await socket.recv_multipart()
            yield topic, int.from_bytes(number, "big"), msgspec.msgpack.decode(payload)


async def replayed(source: kv_pb2.KvEventSource, start: int) -> list[int]:
    numbers: list[int] = []
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(source.replay_endpoint)
        await socket.send_multipart([b"", start.to_bytes(8, "big")])
        while True:
            _, number, payload = await socket.recv_multipart()
            if not payload:
                assert number == b"\xff" * 8
                return numbers
            numbers.append(int.from_bytes(number, "big"))


async def test_c53_a_zmq_source_publishes_and_replays() -> None:
    async with serving(**ZMQ, kv_history=2) as (_, caller):
        [source] = await sources(caller)
        assert (source.transport, source.encoding, source.schema_version) == ("zmq", "msgpack", 1)
        async with aclosing(on_socket(source)) as messages:
            waiting = asyncio.ensure_future(anext(messages))
            said = 0
            while not waiting.done():  # a new subscription is not known to the publisher at once
                await say(caller, str(said), f"{random.random():.12f}")  # noqa: S311 - any text will do
                said += 1
            topic, number, (_, [event], rank) = await waiting
        assert (topic, rank) == (b"kv-events", 0)
        assert 1 <= number <= said
        kind, hashes, parent, tokens, size, *_ = event
        assert (kind, parent, size) == ("BlockStored", None, 8)
        assert len(tokens) == len(hashes) * size
        assert all(-(2**63) <= found < 2**63 for found in hashes)
        last = said
        assert await replayed(source, 0) == list(range(max(1, last - 1), last + 1))
        assert await replayed(source, last) == [last]
        assert await replayed(source, last + 1) == []

"""KV event sources and the stream of KV events. Absent, zero and unknown stay three different things."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import grpc
import grpc.aio

from openengine_sidecar.messages.engine.kv import (
    AllBlocksCleared,
    BlockHash,
    BlockRemoved,
    BlockStored,
    KvBatch,
    KvEvent,
    KvEventSource,
    Medium,
    UnknownEvent,
)
from openengine_sidecar.proto.dialect import EngineCallError
from openengine_sidecar.proto.fields import given
from openengine_sidecar.proto.rev2 import kv_pb2
from openengine_sidecar.proto.rev2_dialect.enums import MEDIA
from openengine_sidecar.proto.rev2_dialect.events import fault
from openengine_sidecar.proto.rev2_dialect.methods import Method
from openengine_sidecar.proto.text import peer_text
from openengine_sidecar.proto.transport import MessageStream, ask, decode


async def sources(channel: grpc.aio.Channel, timeout: float) -> tuple[KvEventSource, ...]:
    """Ask where the events of every rank can be heard; see Dialect."""
    request = kv_pb2.GetKvEventSourcesRequest()
    answer = await ask(channel, Method.GET_KV_EVENT_SOURCES, request, kv_pb2.GetKvEventSourcesResponse, timeout=timeout)
    return tuple(_source(source) for source in answer.sources)


def subscription(channel: grpc.aio.Channel, rank: int, *, snapshot: bool, start: int | None) -> KvStream:
    """Prepare a subscription; see Dialect."""
    request = kv_pb2.SubscribeKvEventsRequest(
        data_parallel_ranks=[rank], include_snapshot=snapshot, start_sequence_number=start or 0
    )
    return KvStream(MessageStream(channel, Method.SUBSCRIBE_KV_EVENTS, request.SerializeToString()))


class KvStream:
    """A KvEventStream over grpc.aio: each wake-up brings one batch."""

    def __init__(self, messages: MessageStream) -> None:
        self._messages = messages

    async def next_batches(self) -> Sequence[KvBatch]:
        """Wait for the next batch; see KvEventStream."""
        while (raw := await self._messages.read()) is not None:
            try:
                batch = self._batch(raw)
            except EngineCallError:
                self._messages.cancel()
                raise
            if batch is not None:
                return (batch,)
        return ()

    def cancel(self) -> None:
        """Cancel the call; see KvEventStream."""
        self._messages.cancel()

    def _batch(self, raw: bytes) -> KvBatch | None:
        method = self._messages.method
        response = decode(method, kv_pb2.SubscribeKvEventsResponse.FromString, raw)
        match response.WhichOneof("event"):
            case "batch":
                return decode_batch(response.batch)
            case "error":
                problem = fault(response.error)
                detail = f"the engine ended its events: {problem.code.value}: {problem.message}"
                raise EngineCallError(method, grpc.StatusCode.INTERNAL, detail)
            case _:
                return None


def decode_batch(batch: kv_pb2.KvEventBatch) -> KvBatch:
    """Translate one batch."""
    return KvBatch(
        sequence=batch.sequence_number,
        rank=batch.data_parallel_rank,
        events=tuple([_event(event) for event in batch.events]),
        timestamp_unix_nanos=batch.timestamp_unix_nanos,
    )


def _event(event: kv_pb2.KvEvent) -> KvEvent:
    kind = event.WhichOneof("event")
    return _READERS[kind](event) if kind in _READERS else UnknownEvent()


def _stored(event: kv_pb2.KvEvent) -> BlockStored:
    stored = event.block_stored
    return BlockStored(
        hashes=_hashes(stored.block_hashes),
        token_ids=list(stored.token_ids),
        block_size=stored.block_size,
        parent=_hash(stored.parent_block_hash) if stored.HasField("parent_block_hash") else None,
        lora_id=stored.lora_id,
        lora_name=stored.lora_name,
        medium=_medium(stored.medium),
        extra_keys=tuple([tuple(key.values) for key in stored.extra_keys]) if stored.extra_keys else (),
        group=stored.group_idx,
        spec_kind=stored.kv_cache_spec_kind,
        sliding_window=stored.kv_cache_spec_sliding_window,
    )


def _removed(event: kv_pb2.KvEvent) -> BlockRemoved:
    removed = event.block_removed
    return BlockRemoved(hashes=_hashes(removed.block_hashes), medium=_medium(removed.medium), group=removed.group_idx)


def _cleared(_event: kv_pb2.KvEvent) -> AllBlocksCleared:
    return AllBlocksCleared()


def _hashes(hashes: Iterable[kv_pb2.KvBlockHash]) -> tuple[BlockHash, ...]:
    return tuple([BlockHash(found.value, found.encoding) for found in hashes])


def _hash(found: kv_pb2.KvBlockHash) -> BlockHash:
    return BlockHash(found.value, found.encoding)


def _medium(number: int) -> Medium:
    return MEDIA.get(number, Medium.UNKNOWN)


def _source(source: kv_pb2.KvEventSource) -> KvEventSource:
    return KvEventSource(
        transport=peer_text(source.transport),
        encoding=peer_text(source.encoding),
        host=peer_text(source.endpoint_addr.host),
        port=source.endpoint_addr.port,
        protocol=peer_text(source.endpoint_addr.protocol),
        topic=source.topic,
        replay_endpoint=peer_text(source.replay_endpoint),
        rank=given(source, "data_parallel_rank"),
        schema_version=given(source, "schema_version"),
        buffer_steps=given(source, "buffer_steps"),
        hwm=given(source, "hwm"),
        max_queue_size=given(source, "max_queue_size"),
    )


_READERS: Mapping[str | None, Callable[[kv_pb2.KvEvent], KvEvent]] = {
    "block_stored": _stored,
    "block_removed": _removed,
    "all_blocks_cleared": _cleared,
}

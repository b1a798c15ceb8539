"""GetKvEventSources and SubscribeKvEvents."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import grpc
import grpc.aio

from openengine_sidecar.launch.engine.core import Core
from openengine_sidecar.launch.engine.kv.feed import Batch, KvFeed, Listener
from openengine_sidecar.launch.engine.status import StatusError, invalid, unimplemented
from openengine_sidecar.proto.rev2 import kv_pb2

Request = kv_pb2.SubscribeKvEventsRequest
Response = kv_pb2.SubscribeKvEventsResponse
Context = grpc.aio.ServicerContext[Request, Response]

OFF = "KV events are off"


async def get_kv_event_sources(
    core: Core, request: kv_pb2.GetKvEventSourcesRequest
) -> kv_pb2.GetKvEventSourcesResponse:
    """Answer GetKvEventSources: a source for each rank and transport, none where events are off."""
    asked = set(request.data_parallel_ranks)
    found = [*_grpc_sources(core), *core.zmq_sources]
    sources = [source for source in found if not asked or source.data_parallel_rank in asked]
    return kv_pb2.GetKvEventSourcesResponse(sources=sources)


async def subscribe(core: Core, request: Request, context: Context) -> None:
    """Serve SubscribeKvEvents: what was asked of the past, then everything that changes.

    Raises:
        StatusError: FAILED_PRECONDITION where events are off, UNIMPLEMENTED for a past that is not offered,
            INVALID_ARGUMENT for another rank, RESOURCE_EXHAUSTED for a subscriber that is too slow.
    """
    feeds = _feeds(core, request)
    listener = Listener(core.options.kv_patience)
    with ExitStack() as listening:
        past = [batch for feed in feeds for batch in _past(core, feed, request)]
        for feed in feeds:
            listening.enter_context(feed.heard_by(listener))
        for known in past:
            await context.write(Response(batch=known))
        while (batch := await listener.next()) is not None:
            if not await _deliver(core, batch, context):
                return
    raise StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, "the subscriber is too slow")


def _feeds(core: Core, request: Request) -> Sequence[KvFeed]:
    if "grpc" not in core.options.kv_events:
        raise StatusError(grpc.StatusCode.FAILED_PRECONDITION, OFF)
    if request.include_snapshot and not core.options.kv_snapshots:
        snapshot = "a snapshot of KV events"
        raise unimplemented(snapshot)
    if request.start_sequence_number and not core.options.kv_history:
        replay = "replay of KV events"
        raise unimplemented(replay)
    if unknown := set(request.data_parallel_ranks) - core.feeds.keys():
        problem = f"no such rank: {', '.join(map(str, unknown))}"
        raise invalid(problem)
    return [core.feeds[rank] for rank in request.data_parallel_ranks or core.feeds]


def _past(core: Core, feed: KvFeed, request: Request) -> list[Batch]:
    if request.include_snapshot:
        snapshot = feed.snapshot(core.caches[feed.rank])
        return [snapshot] if snapshot is not None else []
    start = request.start_sequence_number
    return [batch for batch in feed.history if start and batch.sequence_number >= start]


async def _deliver(core: Core, batch: Batch, context: Context) -> bool:
    """Sends what faults make of a batch; False once the subscription is over."""
    try:
        for message in core.faults.deliver(batch):
            await context.write(message)
            if message.HasField("error"):
                return False
    except StatusError as error:
        if error.status is grpc.StatusCode.OK:
            return False
        raise
    return True


def _grpc_sources(core: Core) -> list[kv_pb2.KvEventSource]:
    if "grpc" not in core.options.kv_events:
        return []
    ranks = core.feeds
    return [kv_pb2.KvEventSource(transport="grpc", encoding="protobuf", data_parallel_rank=rank) for rank in ranks]

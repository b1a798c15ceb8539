"""Faults in what subscribers of KV events hear. What the engine remembers for replay stays right."""

from __future__ import annotations

from collections.abc import Callable

import grpc

from openengine_sidecar.launch.engine.faults.endings import error_numbered, status_named
from openengine_sidecar.launch.engine.faults.registry import Argument, Deliver, Effects, KvMessage, fault
from openengine_sidecar.launch.engine.status import StatusError
from openengine_sidecar.proto.rev2 import error_pb2, kv_pb2

Batch = kv_pb2.KvEventBatch


def _as_it_is(batch: Batch) -> KvMessage:
    return KvMessage(batch=batch)


@fault("kv-drop", "batches of KV events are lost on the way")
def drop(_argument: Argument) -> Effects:
    """Make a gap."""
    return Effects(deliver=lambda _: ())


@fault("kv-repeat", "[N] batches come N times more, by default once")
def repeat(argument: Argument) -> Effects:
    """Deliver duplicates."""
    times = argument.count(1)
    return Effects(deliver=lambda batch: [_as_it_is(batch)] * (times + 1))


@fault("kv-reorder", "each two batches change places")
def reorder(_argument: Argument) -> Effects:
    """Deliver the second before the first."""
    waiting: list[Batch] = []

    def deliver(batch: Batch) -> list[KvMessage]:
        if not waiting:
            waiting.append(batch)
            return []
        return [_as_it_is(batch), _as_it_is(waiting.pop())]

    return Effects(deliver=deliver)


@fault("kv-close", "subscriptions are closed with OK instead of the next batch")
def close(_argument: Argument) -> Effects:
    """End a subscription without an error."""
    return Effects(deliver=_ending(grpc.StatusCode.OK))


@fault("kv-status", "[CODE] subscriptions end with a status (unavailable) instead of the next batch")
def status(argument: Argument) -> Effects:
    """End a subscription with a status."""
    return Effects(deliver=_ending(status_named(argument, "unavailable")))


@fault("kv-error", "[CODE] subscriptions end with an EngineError (overloaded) instead of the next batch")
def error(argument: Argument) -> Effects:
    """End a subscription with an application error."""
    failure = error_pb2.EngineError(message="scripted")
    failure.code = error_numbered(argument, "overloaded")  # type: ignore[assignment]  # unknown numbers are allowed
    return Effects(deliver=lambda _: [KvMessage(error=failure)])


@fault("kv-rank", "batches name the next rank")
def rank(_argument: Argument) -> Effects:
    """Break "a batch is of the rank that was subscribed to"."""

    def edit(batch: Batch) -> None:
        batch.data_parallel_rank += 1

    return Effects(deliver=_edited(edit))


@fault("kv-block-size", "[N] stored blocks claim a size of N tokens, by default 0")
def block_size(argument: Argument) -> Effects:
    """Break "a block has the size that the model advertises"."""
    size = argument.count(0)

    def edit(batch: Batch) -> None:
        for event in batch.events:
            if event.HasField("block_stored"):
                event.block_stored.block_size = size

    return Effects(deliver=_edited(edit))


@fault("kv-garbage", "batches hold an event of a kind that no schema knows")
def garbage(_argument: Argument) -> Effects:
    """Deliver an event from the future."""

    def edit(batch: Batch) -> None:
        batch.events.add(request_id="unknown kind")

    return Effects(deliver=_edited(edit))


def _ending(code: grpc.StatusCode) -> Deliver:
    def deliver(_batch: Batch) -> list[KvMessage]:
        raise StatusError(code, "scripted end of KV events")

    return deliver


def _edited(edit: Callable[[Batch], None]) -> Deliver:
    def deliver(batch: Batch) -> list[KvMessage]:
        message = _as_it_is(batch)  # a copy
        edit(message.batch)
        return [message]

    return deliver

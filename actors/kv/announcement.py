"""What discovery is told of one rank's events."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from openengine_sidecar.actors.records import PublishRecord
from openengine_sidecar.messages.dynamo.events import recovery_endpoint
from openengine_sidecar.messages.dynamo.naming import (
    KV_EVENTS_TOPIC,
    EndpointId,
    event_channel_key,
    event_source_key,
    instance_key,
)
from openengine_sidecar.messages.dynamo.records import (
    EventChannel,
    EventSource,
    InstanceAddress,
    NatsEvents,
    NatsEventTransport,
    Scope,
    SourceMetadata,
    SourceWorker,
    encode_record,
    instance_record,
    nats_transport,
)


def rank_records(
    endpoint: EndpointId, instance_id: int, rank: int, publisher_id: int, *, recovery: bool
) -> Iterator[PublishRecord]:
    """The records of one rank's publisher, in the order in which they must appear.

    Args:
        endpoint: what the events are about.
        instance_id: the worker.
        rank: the data-parallel rank.
        publisher_id: of the rank's events.
        recovery: whether routers can ask for what they missed; otherwise they take the source as live only.
    """
    target: InstanceAddress | None = None
    if recovery:
        asked = recovery_endpoint(endpoint, publisher_id)
        transport = nats_transport(asked, instance_id)
        record = instance_record(asked, instance_id, transport)
        yield PublishRecord(key=instance_key(asked, instance_id), value=encode_record(record))
        target = InstanceAddress(
            component=asked.component,
            endpoint=asked.name,
            namespace=asked.namespace,
            instance_id=instance_id,
            transport=transport,
        )
    yield channel_record(endpoint, KV_EVENTS_TOPIC, publisher_id)
    source = EventSource(
        scope=Scope(endpoint=endpoint),
        publisher_id=publisher_id,
        metadata=SourceMetadata(
            kv_state_endpoint=endpoint,
            worker=SourceWorker(worker_id=instance_id, dp_rank=rank),
            publisher_id=publisher_id,
            recovery_target=UNSET if target is None else target,
        ),
    )
    yield PublishRecord(key=event_source_key(endpoint, publisher_id), value=encode_record(source))


def channel_record(endpoint: EndpointId, topic: str, publisher_id: int) -> PublishRecord:
    """The record of one publisher's channel."""
    channel = EventChannel(
        scope=Scope(endpoint=endpoint),
        topic=topic,
        instance_id=publisher_id,
        transport=NatsEventTransport(config=NatsEvents(subject_prefix=endpoint.event_prefix)),
    )
    return PublishRecord(key=event_channel_key(endpoint, topic, publisher_id), value=encode_record(channel))

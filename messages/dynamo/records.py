"""Records that a worker publishes for discovery, beside model cards: instances, event channels, event sources.

Values are JSON and the same for every discovery backend. A field that may be absent is `UNSET` when it is.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from openengine_sidecar.messages.dynamo.control import Codec
from openengine_sidecar.messages.dynamo.naming import (
    KV_EVENTS_TOPIC,
    EndpointId,
    instance_path,
    instance_subject,
)


class Transport(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests for an instance go; one of the two is set, to match the frontend's request plane."""

    nats_tcp: str | UnsetType = UNSET
    tcp: str | UnsetType = UNSET


def nats_transport(endpoint: EndpointId, instance_id: int) -> Transport:
    """The instance's own NATS subject."""
    return Transport(nats_tcp=instance_subject(endpoint, instance_id))


def tcp_transport(endpoint: EndpointId, instance_id: int, host: str, port: int) -> Transport:
    """A listener, shared by all endpoints of a process, and the endpoint's path on it."""
    shown = f"[{host}]" if ":" in host else host
    return Transport(tcp=f"{shown}:{port}/{instance_path(endpoint, instance_id)}")


class InstanceAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's instance: where a frontend sends its requests, and in which codec.

    Attributes:
        device_type: `cuda` or `cpu`, read by device-aware routing only.
    """

    component: str
    endpoint: str
    namespace: str
    instance_id: int
    transport: Transport
    device_type: Literal["cuda", "cpu"] | UnsetType = UNSET
    request_plane_codec: Codec = Codec.MSGPACK


class Instance(InstanceAddress, frozen=True, kw_only=True, tag_field="type", tag="Endpoint"):
    """Record of an instance, under `instance_key`. Without a model card beside it no model shows."""


def instance_record(endpoint: EndpointId, instance_id: int, transport: Transport) -> Instance:
    """The record of one endpoint of one process."""
    return Instance(
        component=endpoint.component,
        endpoint=endpoint.name,
        namespace=endpoint.namespace,
        instance_id=instance_id,
        transport=transport,
    )


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What events are about; always an endpoint."""

    endpoint: EndpointId
    kind: Literal["endpoint"] = "endpoint"


class NatsEvents(msgspec.Struct, frozen=True):
    """Events go to `<subject_prefix>.<topic>`."""

    subject_prefix: str


class ZmqEvents(msgspec.Struct, frozen=True):
    """Events are published by a socket bound at `endpoint` (`tcp://host:port`)."""

    endpoint: str


class NatsEventTransport(msgspec.Struct, frozen=True, tag_field="kind", tag="Nats"):
    """The NATS event plane."""

    config: NatsEvents


class ZmqEventTransport(msgspec.Struct, frozen=True, tag_field="kind", tag="Zmq"):
    """The ZeroMQ event plane."""

    config: ZmqEvents


class EventChannel(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="EventChannel"):
    """Record of one publisher of one topic, under `event_channel_key`. `instance_id` is the publisher's id."""

    scope: Scope
    topic: str
    instance_id: int
    transport: NatsEventTransport | ZmqEventTransport


class SourceWorker(msgspec.Struct, frozen=True, kw_only=True):
    """The worker, and its data-parallel rank, whose cache a source tells of."""

    worker_id: int
    dp_rank: int


class SourceMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What a KV router needs to know of a source; without `recovery_target` the source is live only."""

    kv_state_endpoint: EndpointId
    worker: SourceWorker
    publisher_id: int
    recovery_target: InstanceAddress | UnsetType = UNSET


class EventSource(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="EventSource"):
    """Record that makes KV routers listen to one rank's events, under `event_source_key`."""

    scope: Scope
    publisher_id: int
    metadata: SourceMetadata
    topic: str = KV_EVENTS_TOPIC


def encode_record(record: msgspec.Struct) -> bytes:
    """Value of a record, as every discovery backend stores it."""
    return msgspec.json.encode(record)

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from openengine_sidecar.messages.dynamo.cards import CardRecord, card_record
from openengine_sidecar.messages.dynamo.naming import EndpointId, card_key, file_name, split_key
from openengine_sidecar.messages.dynamo.records import (
    EventChannel,
    EventSource,
    Instance,
    InstanceAddress,
    NatsEvents,
    NatsEventTransport,
    Scope,
    SourceMetadata,
    SourceWorker,
    ZmqEvents,
    ZmqEventTransport,
    encode_record,
    instance_record,
    nats_transport,
    tcp_transport,
)

VECTORS = Path(__file__).parent / "vectors"
ENDPOINT = EndpointId("dynamo", "backend", "generate")


def stock(name: str) -> Any:
    return msgspec.json.decode((VECTORS / f"{name}.json").read_bytes())


def plain(record: msgspec.Struct) -> Any:
    return msgspec.json.decode(encode_record(record))


def within(part: Any, whole: Any) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and within(value, whole[key]) for key, value in part.items())
    return bool(part == whole)


def test_an_instance_record_is_the_stock_one_without_a_device() -> None:
    expected = stock("instance")
    instance_id = expected["instance_id"]
    record = instance_record(ENDPOINT, instance_id, nats_transport(ENDPOINT, instance_id))
    del expected["device_type"]
    assert plain(record) == expected


@pytest.mark.parametrize(
    ("host", "shown"),
    [("192.0.2.2", "192.0.2.2"), ("worker-0.pods", "worker-0.pods"), ("2001:db8::1", "[2001:db8::1]")],
)
def test_an_instance_on_tcp_names_listener_and_path(host: str, shown: str) -> None:
    record = instance_record(ENDPOINT, 255, tcp_transport(ENDPOINT, 255, host, 9000))
    assert plain(record)["transport"] == {"tcp": f"{shown}:9000/ff/dynamo/backend/generate"}


def test_an_event_channel_is_the_stock_one() -> None:
    expected = stock("event_channel")
    record = EventChannel(
        scope=Scope(endpoint=ENDPOINT),
        topic="kv-events",
        instance_id=expected["instance_id"],
        transport=NatsEventTransport(NatsEvents(ENDPOINT.event_prefix)),
    )
    assert plain(record) == expected


def test_an_event_channel_on_zmq_names_its_socket() -> None:
    transport = ZmqEventTransport(ZmqEvents("tcp://192.0.2.2:38783"))
    record = EventChannel(scope=Scope(endpoint=ENDPOINT), topic="kv-events", instance_id=5, transport=transport)
    assert plain(record)["transport"] == {"kind": "Zmq", "config": {"endpoint": "tcp://192.0.2.2:38783"}}


def test_an_event_source_is_the_stock_one() -> None:
    expected = stock("event_source")
    worker_id, publisher_id = expected["metadata"]["worker"]["worker_id"], expected["publisher_id"]
    recovery = ENDPOINT.sibling(f"worker_kv_query_source_{publisher_id:x}")
    record = EventSource(
        scope=Scope(endpoint=ENDPOINT),
        publisher_id=publisher_id,
        metadata=SourceMetadata(
            kv_state_endpoint=ENDPOINT,
            worker=SourceWorker(worker_id=worker_id, dp_rank=0),
            publisher_id=publisher_id,
            recovery_target=InstanceAddress(
                component=recovery.component,
                endpoint=recovery.name,
                namespace=recovery.namespace,
                instance_id=worker_id,
                transport=nats_transport(recovery, worker_id),
                device_type="cuda",
            ),
        ),
    )
    assert plain(record) == expected


def test_a_live_only_source_has_no_recovery_target() -> None:
    metadata = SourceMetadata(kv_state_endpoint=ENDPOINT, worker=SourceWorker(worker_id=1, dp_rank=2), publisher_id=3)
    record = EventSource(scope=Scope(endpoint=ENDPOINT), publisher_id=3, metadata=metadata)
    assert "recovery_target" not in plain(record)["metadata"]


@pytest.mark.parametrize("name", ["card_mocker", "card_decode", "card_adapter"])
def test_a_stock_card_is_read_whole_and_written_back(name: str) -> None:
    card = msgspec.json.decode((VECTORS / f"{name}.json").read_bytes(), type=CardRecord)
    assert within(stock(name), plain(card))


def test_an_adapters_card_carries_its_slug_in_record_and_key() -> None:
    stored = msgspec.json.decode((VECTORS / "card_adapter.json").read_bytes(), type=CardRecord)
    record = card_record(ENDPOINT, stored.instance_id, stored.card_json)
    assert record.model_suffix == stored.model_suffix == "my_lora-a"
    assert record.name == "_My/lora-A"
    bucket, rest = split_key(card_key(ENDPOINT, 0x5D7C17483C3DD133, "my_lora-a"))
    assert bucket == "v1/mdc"
    assert file_name(rest) == "dynamo%2Fbackend%2Fgenerate%2F5d7c17483c3dd133%2Fmy%5Flora%2Da"


def test_a_base_models_card_has_no_suffix() -> None:
    stored = msgspec.json.decode((VECTORS / "card_decode.json").read_bytes(), type=CardRecord)
    assert "model_suffix" not in plain(card_record(ENDPOINT, 1, stored.card_json))


def test_an_instance_reads_back_strictly() -> None:
    record = instance_record(ENDPOINT, 2**64 - 1, nats_transport(ENDPOINT, 2**64 - 1))
    assert msgspec.json.decode(encode_record(record), type=Instance) == record

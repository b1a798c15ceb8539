from __future__ import annotations

from typing import Any

import pytest

from openengine_sidecar.actors.kv.sources import RankSource, SourcePlan, SourcesUnusable, ZmqAddress, plan_sources
from openengine_sidecar.messages.engine.kv import KvEventSource


def grpc(rank: int | None, **fields: Any) -> KvEventSource:
    return KvEventSource(transport="grpc", encoding="protobuf", rank=rank, **fields)


def zmq(rank: int | None, **changes: Any) -> KvEventSource:
    fields = {"transport": "zmq", "encoding": "msgpack", "host": "engine-0", "port": 5557, "rank": rank, **changes}
    return KvEventSource(**fields)


def plan(*sources: KvEventSource, ranks: tuple[int, ...] = (0,)) -> SourcePlan:
    planned = plan_sources(sources, ranks)
    assert isinstance(planned, SourcePlan)
    return planned


def endpoint(source: KvEventSource) -> str:
    address = plan(source).ranks[0].zmq
    assert address is not None
    return address.endpoint


def test_c53_no_source_means_no_events() -> None:
    assert plan(ranks=(0, 1)) == SourcePlan()


def test_c53_each_rank_has_its_source() -> None:
    planned = plan(grpc(3), grpc(2), ranks=(2, 3))
    assert planned == SourcePlan(ranks={2: RankSource(grpc=True), 3: RankSource(grpc=True)})


def test_c53_a_socket_keeps_its_topic_and_where_to_ask_for_what_was_lost() -> None:
    source = zmq(0, topic="kv", replay_endpoint="tcp://engine-0:5558", schema_version=1)
    address = ZmqAddress(endpoint="tcp://engine-0:5557", topic="kv", replay_endpoint="tcp://engine-0:5558")
    assert plan(source).ranks == {0: RankSource(zmq=address)}


def test_c56_a_rank_with_both_can_fall_back() -> None:
    address = ZmqAddress(endpoint="tcp://engine-0:5557")
    assert plan(zmq(0), grpc(0)).ranks == {0: RankSource(grpc=True, zmq=address)}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("engine-0.pods", "tcp://engine-0.pods:5557"),
        ("192.0.2.7", "tcp://192.0.2.7:5557"),
        ("2001:db8::7", "tcp://[2001:db8::7]:5557"),
        ("[2001:db8::7]", "tcp://[2001:db8::7]:5557"),
    ],
)
def test_c53_hosts_are_spelled_as_addresses(host: str, expected: str) -> None:
    assert endpoint(zmq(0, host=host)) == expected


@pytest.mark.parametrize("port", [1, 65535])
def test_c53_the_first_and_the_last_port(port: int) -> None:
    assert endpoint(zmq(0, port=port, protocol="tcp")) == f"tcp://engine-0:{port}"


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        pytest.param([zmq(0, host="*"), zmq(1)], "host", id="wildcard"),
        pytest.param([zmq(0, host="0.0.0.0"), zmq(1)], "host", id="any_ipv4"),
        pytest.param([zmq(0, host="::"), zmq(1)], "host", id="any_ipv6"),
        pytest.param([zmq(0, host="[::]"), zmq(1)], "host", id="any_ipv6_in_brackets"),
        pytest.param([zmq(0, host=""), zmq(1)], "host", id="no_host"),
        pytest.param([zmq(0, port=0), zmq(1)], "port", id="port_0"),
        pytest.param([zmq(0, port=65536), zmq(1)], "port", id="port_65536"),
        pytest.param([zmq(0, protocol="ipc"), zmq(1)], "ipc", id="not_tcp"),
        pytest.param([zmq(0, schema_version=2), zmq(1)], "version 2", id="another_schema"),
        pytest.param([grpc(None), grpc(1)], "no rank", id="missing_rank"),
        pytest.param([grpc(0), grpc(1), grpc(1)], "two grpc", id="duplicate_rank"),
        pytest.param([zmq(0), zmq(1), zmq(0)], "two zmq", id="duplicate_socket"),
        pytest.param([grpc(0), grpc(1), grpc(2)], "rank 2", id="foreign_rank"),
        pytest.param([grpc(1)], "rank 0", id="missing_rank_of_the_set"),
    ],
)
def test_c53_an_advertisement_that_cannot_be_right_is_refused_whole(sources: list[KvEventSource], problem: str) -> None:
    planned = plan_sources(sources, (0, 1))
    assert isinstance(planned, SourcesUnusable)
    assert problem in planned.problem


def test_transports_of_tomorrow_are_skipped_and_named() -> None:
    planned = plan(grpc(0), KvEventSource(transport="quic", encoding="flat", rank=None), zmq(0, encoding="json"))
    assert planned == SourcePlan(ranks={0: RankSource(grpc=True)}, skipped=("quic/flat", "zmq/json"))


def test_a_rank_that_only_tomorrows_transport_tells_of_is_missing() -> None:
    planned = plan_sources([grpc(0), KvEventSource(transport="quic", encoding="flat", rank=1)], (0, 1))
    assert isinstance(planned, SourcesUnusable)

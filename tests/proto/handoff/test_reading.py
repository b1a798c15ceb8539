from __future__ import annotations

import json
import math
from typing import Any

import pytest

from openengine_sidecar.messages.engine.generation import KvEndpoint, KvSession
from openengine_sidecar.proto.fields import FieldError
from openengine_sidecar.proto.handoff.reading import peek_session, read_session
from openengine_sidecar.proto.rev2.kv_pb2 import KvSessionRef
from openengine_sidecar.proto.text import MESSAGE_LIMIT


def wire_of(attributes: dict[str, Any] | None = None, **fields: Any) -> bytes:
    ref = KvSessionRef(**fields)
    ref.attributes_struct.update(attributes or {})
    return ref.SerializeToString()


def test_f35_a_session_is_read_as_far_as_a_carrier_may_judge_it() -> None:
    endpoints = [{"host": "h", "port": 1, "protocol": "tcp"}, {"host": "fe80::1", "port": 65_535}]
    attributes = {"room": "18446744073709551615", "zero": 0.0, "no": False, "nothing": None, "list": [1, [2]]}
    wire = wire_of(attributes, session_id="s", transfer_backend="nixl", dp_rank=3, endpoints=endpoints)
    content = read_session(wire)
    assert content.session == KvSession(session_id="s", transfer_backend="nixl", dp_rank=3, wire=wire)
    assert content.session == peek_session(wire)
    assert content.endpoints == (KvEndpoint("h", 1, "tcp"), KvEndpoint("fe80::1", 65_535, ""))
    assert json.loads(content.attributes) == attributes


def test_the_least_session_is_one() -> None:
    assert read_session(b"").session == KvSession(session_id="", transfer_backend="", dp_rank=0, wire=b"")


@pytest.mark.parametrize("read", [read_session, peek_session])
def test_bytes_of_something_else_are_none(read: Any) -> None:
    with pytest.raises(FieldError, match="2 bytes are no KV session"):
        read(b"\xff\xff")


@pytest.mark.parametrize("number", [2.0**53 + 2, -(2.0**53) - 2, 1e300, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(
    ("attributes", "path"),
    [
        (lambda number: {"n": number}, "n"),
        (lambda number: {"a": {"n": number}}, "a.n"),
        (lambda number: {"a": [0, {"n": [number]}]}, "a[1].n[0]"),
    ],
)
def test_c38_numbers_that_may_have_been_rounded_are_refused(number: float, attributes: Any, path: str) -> None:
    wire = wire_of(attributes(number))
    with pytest.raises(FieldError) as refusal:
        read_session(wire)
    assert refusal.value.field == f"session.attributes_struct.{path}"
    assert peek_session(wire).wire == wire


@pytest.mark.parametrize("endpoint", [{}, {"host": "h"}, {"port": 5}, {"host": "h", "port": 65_536}])
def test_c38_endpoints_that_nobody_can_connect_to_are_refused(endpoint: dict[str, Any]) -> None:
    with pytest.raises(FieldError, match=r"session.endpoints\[0\]"):
        read_session(wire_of(endpoints=[endpoint]))


def test_what_people_read_is_bounded_and_prints() -> None:
    content = read_session(wire_of({"blob": "x" * 10_000}, endpoints=[{"host": "a\nb", "port": 1, "protocol": "\x1b"}]))
    assert len(content.attributes) == MESSAGE_LIMIT
    assert content.endpoints == (KvEndpoint("a\\nb", 1, "\\x1b"),)

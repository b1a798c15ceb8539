from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openengine_sidecar.messages.dynamo.control import (
    Codec,
    ControlHeader,
    FrontendSignal,
    decode_control,
    decode_signal,
)
from openengine_sidecar.messages.dynamo.request import InboundRequest, PreprocessedRequest, decode_request
from openengine_sidecar.messages.dynamo.two_part import PREFIX, Frame, FrameDecoder, decode_frame, encode_frame
from openengine_sidecar.messages.errors import WireError

pytestmark = pytest.mark.timeout(900)

LONG = os.environ.get("OPENENGINE_TESTS") == "long"
EXAMPLES = 10_000 if LONG else 150
LIMIT = 4096
VECTORS = [path.read_bytes() for path in sorted((Path(__file__).parent / "vectors").glob("*.request.bin"))]
FIELDS = [field.encode_name for field in msgspec.structs.fields(PreprocessedRequest)]

fuzz = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

KEYS = st.sampled_from([*FIELDS, "n", "Url", "dp_rank", "guided_decoding"]) | st.text(max_size=4)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    | st.binary(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS.filter(str.isprintable), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(VECTORS)))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(data) - 1))
        action = draw(st.sampled_from(["flip", "cut", "insert"]))
        if action == "flip":
            data[position] = draw(st.integers(0, 255))
        elif action == "insert":
            data[position:position] = draw(st.binary(max_size=4))
        else:
            del data[position : position + draw(st.integers(1, 4))]
    return bytes(data)


def request_of(payload: bytes) -> tuple[ControlHeader, InboundRequest]:
    frame = decode_frame(payload, LIMIT)
    control = decode_control(frame.header)
    return control, decode_request(frame.body, control.codec)


@fuzz
@given(st.binary(max_size=200) | damaged())
def test_any_payload_is_a_request_or_a_wire_error(payload: bytes) -> None:
    with suppress(WireError):
        control, inbound = request_of(payload)
        assert 1 <= control.call_home.port <= 65_535
        assert all(0 <= token < 2**32 for token in inbound.request.token_ids)


@fuzz
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_stream_is_frames_or_a_wire_error(reads: list[bytes]) -> None:
    decoder = FrameDecoder(LIMIT)
    frames: list[Frame] = []
    with suppress(WireError):
        for data in reads:
            frames += decoder.feed(data)
        held = sum(PREFIX.size + len(header) + len(body) for header, body in frames)
        assert held + decoder.pending == sum(map(len, reads))


@fuzz
@given(
    st.binary(max_size=60)
    | st.text().map(str.encode)
    | VALUES.filter(lambda v: not isinstance(v, bytes)).map(repr).map(str.encode)
)
def test_any_header_is_control_or_a_wire_error(header: bytes) -> None:
    with suppress(WireError):
        assert decode_control(header).id
    with suppress(WireError):
        assert decode_signal(Frame(header, b"")) in FrontendSignal


@fuzz
@given(
    st.dictionaries(
        st.sampled_from(["id", "request_type", "response_type", "payload_codec", "connection_info"]),
        st.none()
        | st.text()
        | st.integers()
        | st.dictionaries(
            st.sampled_from(["transport", "info"]),
            st.sampled_from(["tcp_server", "{}", '{"address":"h:1","subject":"s","context":"c"}', "nonsense"]),
        ),
    )
)
def test_any_json_header_is_control_or_a_wire_error(fields: dict[str, Any]) -> None:
    with suppress(WireError):
        control = decode_control(json.dumps(fields).encode("utf-8", "surrogatepass"))
        assert control.call_home.host
        assert control.codec in Codec


@fuzz
@given(st.dictionaries(KEYS.filter(str.isprintable), VALUES, max_size=6), st.booleans())
def test_any_map_is_a_request_or_a_wire_error(fields: dict[str, Any], complete: bool) -> None:  # noqa: FBT001
    body = ({"model": "toy", "token_ids": [1]} if complete else {}) | fields
    with suppress(WireError):
        inbound = decode_request(msgspec.msgpack.encode(body), Codec.MSGPACK)
        strangers = {key for key, value in body.items() if key not in FIELDS and value is not None}
        assert strangers <= inbound.unknown.keys()


@fuzz
@given(st.binary(max_size=200), st.sampled_from(Codec))
def test_any_body_is_a_request_or_a_wire_error(body: bytes, codec: Codec) -> None:
    with suppress(WireError):
        assert decode_request(body, codec).request.token_ids is not None


@fuzz
@given(st.binary(max_size=100), st.binary(max_size=100))
def test_a_frame_round_trips(header: bytes, body: bytes) -> None:
    assert decode_frame(encode_frame(header, body), LIMIT) == (header, body)
    assert FrameDecoder(LIMIT).feed(encode_frame(header, body)) == [(header, body)]

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openengine_sidecar.messages.dynamo.control import (
    PROLOGUE,
    SENTINEL,
    CallHome,
    Codec,
    FrontendSignal,
    decode_control,
    decode_signal,
    encode_handshake,
    split_address,
)
from openengine_sidecar.messages.dynamo.two_part import Frame, FrameDecoder, decode_frame
from openengine_sidecar.messages.errors import WireError

VECTORS = Path(__file__).parent / "vectors"


def header(info: object = None, **changes: Any) -> bytes:
    address = {"address": "192.0.2.2:39265", "subject": "s", "context": "c", "stream_type": "response"}
    fields = {
        "id": "r1",
        "request_type": "single_in",
        "response_type": "many_out",
        "payload_codec": "msgpack",
        "connection_info": {
            "transport": "tcp_server",
            "info": json.dumps(address if info is None else info),
        },
    }
    every: dict[str, Any] = fields | changes
    return json.dumps({name: value for name, value in every.items() if value is not ...}).encode()


def test_a_stock_header_names_the_request_and_where_to_answer() -> None:
    control = decode_control(decode_frame((VECTORS / "chat.request.bin").read_bytes()).header)
    assert control.id == control.call_home.context == "2d57e6be-d5ed-44ac-99c1-1fa6edb061f0"
    assert (control.request_type, control.response_type) == ("single_in", "many_out")
    assert control.codec is Codec.MSGPACK
    assert (control.call_home.host, control.call_home.port) == ("192.0.2.2", 36239)
    assert control.call_home.subject == "5d57126b-f9e4-4d09-b234-3d1c1687eb91"


@pytest.mark.parametrize("codec", [..., None, "json"])
def test_a_header_without_codec_means_json(codec: object) -> None:
    assert decode_control(header(payload_codec=codec)).codec is Codec.JSON


def test_an_unknown_codec_is_an_error_that_can_still_be_answered() -> None:
    control = decode_control(header(payload_codec="cbor"))
    assert control.call_home.port == 39265
    with pytest.raises(WireError, match="'cbor'") as caught:
        _ = control.codec
    assert caught.value.part == "header"


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x81\xa2id", id="not-json"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(header(id=...), id="no-id"),
        pytest.param(header(id=""), id="empty-id"),
        pytest.param(header(id=7), id="id-not-text"),
        pytest.param(header(request_type=...), id="no-request-type"),
        pytest.param(header(connection_info=...), id="no-connection"),
        pytest.param(header(connection_info={"transport": "tcp_server", "info": {}}), id="info-not-text"),
    ],
)
def test_a_bad_header_is_named(wire: bytes) -> None:
    with pytest.raises(WireError) as caught:
        decode_control(wire)
    assert caught.value.part == "header"


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(header(connection_info={"transport": "quic", "info": "{}"}), id="other-transport"),
        pytest.param(header(connection_info={"transport": "tcp_server", "info": "nonsense"}), id="info-not-json"),
        pytest.param(header({"subject": "s", "context": "c"}), id="no-address"),
        pytest.param(header({"address": "192.0.2.2:1", "subject": "", "context": "c"}), id="empty-subject"),
        pytest.param(header({"address": "192.0.2.2", "subject": "s", "context": "c"}), id="no-port"),
    ],
)
def test_a_bad_address_is_named(wire: bytes) -> None:
    with pytest.raises(WireError) as caught:
        decode_control(wire)
    assert caught.value.part == "address"


@pytest.mark.parametrize(
    ("address", "parts"),
    [("192.0.2.2:39265", ("192.0.2.2", 39265)), ("[2001:db8::1]:80", ("2001:db8::1", 80)), ("fe:1", ("fe", 1))],
)
def test_an_address_splits_into_host_and_port(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":80",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "host:-1",
        "host:8x",
        "host:٣",
        "2001:db8::1:80",
        "[]:80",
        "[h]:1",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(WireError, match="is not host:port"):
        split_address(address)


def test_the_opening_frames_are_the_stock_ones() -> None:
    call_home = CallHome(host="192.0.2.2", port=1, subject="abc", context="c")
    frames = FrameDecoder().feed(encode_handshake(call_home) + PROLOGUE + SENTINEL)
    assert frames == [
        (b'{"subject":"abc","stream_type":"response"}', b""),
        (b'{"error":null}', b""),
        (b'"sentinel"', b""),
    ]


def test_a_stock_kill_is_read() -> None:
    [frame] = FrameDecoder().feed((VECTORS / "kill.frontend.bin").read_bytes())
    assert decode_signal(frame) is FrontendSignal.KILL


@pytest.mark.parametrize("signal", FrontendSignal)
def test_each_signal_is_a_json_text(signal: FrontendSignal) -> None:
    assert decode_signal(Frame(json.dumps(signal).encode(), b"")) is signal


@pytest.mark.parametrize(
    "frame", [Frame(b'"pause"', b""), Frame(b"kill", b""), Frame(b"", b""), Frame(b'"kill"', b"x"), Frame(b"7", b"")]
)
def test_any_other_control_frame_is_refused(frame: Frame) -> None:
    with pytest.raises(WireError) as caught:
        decode_signal(frame)
    assert caught.value.part == "frame"

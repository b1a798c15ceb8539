"""The control header of a request, and what is said on its call-home connection besides data.

A request names the address at which its answer is awaited. The worker acknowledges, dials that address and opens with
the handshake and the prologue. That is clean but for a request that the client has to change: an error of any other
kind there makes the frontend take the whole instance out of service.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from openengine_sidecar.messages.dynamo.parsing import Part, parsing
from openengine_sidecar.messages.dynamo.two_part import Frame, encode_frame
from openengine_sidecar.messages.errors import WireError

PROLOGUE = encode_frame(b'{"error":null}')
"""Second frame of the call-home connection of every request that is served."""

SENTINEL = encode_frame(b'"sentinel"')
"""Last frame of every call-home connection that ends in order."""

_CALL_HOME_TRANSPORT = "tcp_server"
_MAX_PORT = 65_535

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class Codec(StrEnum):
    """How request bodies and response items are written."""

    MSGPACK = "msgpack"
    JSON = "json"


class FrontendSignal(StrEnum):
    """What the frontend may say on the call-home connection. `SENTINEL` it must never send."""

    KILL = "kill"
    STOP = "stop"
    SENTINEL = "sentinel"


class CallHome(msgspec.Struct, frozen=True, kw_only=True):
    """Where an answer is awaited: `subject` names the stream in the handshake, `context` the request."""

    host: str
    port: int
    subject: str
    context: str
    stream_type: str = "response"


class ControlHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first part of a request frame.

    Attributes:
        id: the request; a migrated request keeps it, and so does the other half of a disaggregated pair.
        payload_codec: codec as named by the frontend, which may be none of ours; see `codec`.
    """

    id: str
    request_type: str
    response_type: str
    payload_codec: str
    call_home: CallHome

    @property
    def codec(self) -> Codec:
        """Codec of the body and of the answer.

        Raises:
            WireError: part `header`: the frontend named a codec that does not exist. It can still be answered, in the
                codec we advertise.
        """
        try:
            return Codec(self.payload_codec)
        except ValueError:
            problem = f"payload codec {self.payload_codec!r} is none of {', '.join(Codec)}"
            raise WireError(Part.HEADER, problem) from None


def decode_control(header: bytes) -> ControlHeader:
    """Reads the header part of a request frame.

    Raises:
        WireError: part `header` or `address`: in both cases nobody is left to answer to.
    """
    with parsing(Part.HEADER):
        wire = _HEADER.decode(header)
    if wire.connection_info.transport != _CALL_HOME_TRANSPORT:
        problem = f"call-home transport {wire.connection_info.transport!r} is not {_CALL_HOME_TRANSPORT!r}"
        raise WireError(Part.ADDRESS, problem)
    with parsing(Part.ADDRESS):
        info = _INFO.decode(wire.connection_info.info)
    host, port = split_address(info.address)
    return ControlHeader(
        id=wire.id,
        request_type=wire.request_type,
        response_type=wire.response_type,
        payload_codec=wire.payload_codec or Codec.JSON,
        call_home=CallHome(
            host=host, port=port, subject=info.subject, context=info.context, stream_type=info.stream_type
        ),
    )


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`; the host comes without brackets.

    Raises:
        WireError: part `address`: no host, or no port between 1 and 65535.
    """
    host, _, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    number = int(port) if port.isascii() and port.isdecimal() and len(port) <= len(str(_MAX_PORT)) else 0
    if not host or not 1 <= number <= _MAX_PORT or (":" in host) != bracketed:
        problem = f"{address!r} is not host:port"
        raise WireError(Part.ADDRESS, problem)
    return host, number


def encode_handshake(call_home: CallHome) -> bytes:
    """First frame of a call-home connection."""
    header = {"subject": call_home.subject, "stream_type": call_home.stream_type}
    return encode_frame(msgspec.json.encode(header))


def decode_signal(frame: Frame) -> FrontendSignal:
    """Reads a frame that the frontend sent on the call-home connection.

    Raises:
        WireError: part `frame`: it has a body, or says none of the known words.
    """
    if frame.body:
        problem = f"a control frame carries {len(frame.body)} bytes of body"
        raise WireError(Part.FRAME, problem)
    with parsing(Part.FRAME):
        return _SIGNAL.decode(frame.header)


def decode_body(body: bytes, codec: Codec) -> Any:
    """Reads the body part of a request for an endpoint other than generation.

    Raises:
        WireError: part `body`: not the codec's bytes.
    """
    with parsing(Part.BODY):
        return msgspec.msgpack.decode(body) if codec is Codec.MSGPACK else msgspec.json.decode(body)


class _Info(msgspec.Struct, frozen=True):
    address: str
    subject: _Text
    context: str
    stream_type: str = "response"


class _ConnectionInfo(msgspec.Struct, frozen=True):
    transport: str
    info: str


class _Header(msgspec.Struct, frozen=True):
    id: _Text
    request_type: str
    response_type: str
    connection_info: _ConnectionInfo
    payload_codec: str | None = None


_HEADER = msgspec.json.Decoder(_Header)
_INFO = msgspec.json.Decoder(_Info)
_SIGNAL = msgspec.json.Decoder(FrontendSignal)

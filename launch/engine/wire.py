"""How requests are read, and how responses become bytes, the ones that no schema can read included."""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf.message import DecodeError, Message

from openengine_sidecar.launch.engine.status import StatusError
from openengine_sidecar.proto.rev2 import generation_pb2

UNDECODABLE: Final = generation_pb2.GenerateResponse(request_id="stands for bytes that are no message")
_BROKEN: Final = b"\x0a\xff\xff\xff\xff\x0f\x00"


def parse(kind: type[Message], data: bytes) -> Message:
    """Read a request.

    Raises:
        StatusError: INTERNAL where it does not decode, as gRPC has it.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise StatusError(grpc.StatusCode.INTERNAL, f"the request is no {kind.DESCRIPTOR.name}: {error}") from error


def serialize(message: Message) -> bytes:
    """Serialize a response; `UNDECODABLE` becomes a length that reaches past the end."""
    return _BROKEN if message is UNDECODABLE else message.SerializeToString()

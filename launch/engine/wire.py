"""How responses become bytes, the ones that no schema can read included."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from openengine_sidecar.proto.rev2 import generation_pb2

UNDECODABLE: Final = generation_pb2.GenerateResponse(request_id="stands for bytes that are no message")
_BROKEN: Final = b"\x0a\xff\xff\xff\xff\x0f\x00"


def serialize(message: Message) -> bytes:
    """Serialize a response; `UNDECODABLE` becomes a length that reaches past the end."""
    return _BROKEN if message is UNDECODABLE else message.SerializeToString()

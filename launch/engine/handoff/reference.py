"""KvSessionRef as this engine writes it: where the session lies, and what it holds."""

from __future__ import annotations

import base64

from openengine_sidecar.launch.engine.handoff.sessions import HeldSession
from openengine_sidecar.proto.rev2 import kv_pb2

BACKEND = "reference"
PROTOCOL = "tcp"
SCHEMA_VERSION = 1


def reference_to(session: HeldSession, host: str, port: int) -> kv_pb2.KvSessionRef:
    """Write the reference that a decode engine gets.

    The attributes hold one value of every kind, in the forms that the schema asks for: 64 bits as decimal text, bytes
    as base64.
    """
    ref = kv_pb2.KvSessionRef(session_id=session.session_id, transfer_backend=BACKEND, dp_rank=session.rank)
    ref.endpoints.add(host=host, port=port, protocol=PROTOCOL)
    digest = session.digest.to_bytes(8, "big")
    ref.attributes_struct.update(
        {
            "digest": str(session.digest),
            "state": base64.b64encode(digest).decode(),
            "tokens": session.tokens,
            "layout": {"scale": 0.5, "pinned": False, "parent": None, "shape": [2, 1, 0]},
        }
    )
    return ref

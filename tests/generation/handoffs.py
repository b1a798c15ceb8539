from __future__ import annotations

import base64
from typing import Any

import msgspec

from openengine_sidecar.messages.dynamo.handoff import FORMAT
from openengine_sidecar.messages.engine.discovery import Discovery, KvConnector
from openengine_sidecar.messages.engine.generation import KvSession
from openengine_sidecar.proto.rev2.kv_pb2 import KvSessionRef
from tests.generation.builders import FULL, nested

CONNECTOR = KvConnector(
    enabled=True, transfer_backend="nixl", protocols=("tcp", "rdma"), abort_cleanup=True, schema_version=1
)
PAIRED = msgspec.structs.replace(FULL, kv_connector=CONNECTOR)
ODD_BUT_FINE: dict[str, Any] = {
    "room": "18446744073709551615",
    "blob": "AAECAwQ=",
    "above": str(2**53 + 1),
    "nested": [None, False, 0.0, 1.5, [], {}, {"deep": [[1]]}],
}


def reference(**fields: Any) -> KvSessionRef:
    attributes = fields.pop("attributes", {})
    ref = KvSessionRef(**{"session_id": "s-1", "transfer_backend": "nixl", "dp_rank": 2, **fields})
    if "endpoints" not in fields:
        ref.endpoints.add(host="10.0.0.1", port=7000, protocol="tcp")
    ref.attributes_struct.update(attributes)
    return ref


def wire_of(**fields: Any) -> bytes:
    return reference(**fields).SerializeToString()


def session(wire: bytes | None = None, *, dp_rank: int = 2) -> KvSession:
    return KvSession(
        session_id="s-1",
        transfer_backend="nixl",
        dp_rank=dp_rank,
        wire=wire_of(dp_rank=dp_rank) if wire is None else wire,
    )


def params(wire: bytes, **more: Any) -> dict[str, Any]:
    return {"format": FORMAT, "session": base64.b64encode(wire).decode(), **more}


def handed(wire: bytes | None = None, **more: Any) -> dict[str, Any]:
    """What a request of a decode worker brings."""
    return nested("prefill_result.disaggregated_params", params(wire_of() if wire is None else wire, **more))


def with_connector(discovery: Discovery = PAIRED, **changes: Any) -> Discovery:
    return msgspec.structs.replace(discovery, kv_connector=msgspec.structs.replace(CONNECTOR, **changes))

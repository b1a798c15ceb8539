"""Reading a KV session's bytes: what a carrier may judge of it, before it hands the same bytes on."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from openengine_sidecar.messages.engine.generation import KvEndpoint, KvSession, KvSessionContent
from openengine_sidecar.proto.fields import FieldError
from openengine_sidecar.proto.handoff.session_pb2 import EndpointView, SessionView
from openengine_sidecar.proto.structs import check_exact, struct_text
from openengine_sidecar.proto.text import peer_text

HIGHEST_PORT = 65_535


def peek_session(wire: bytes) -> KvSession:
    """Read no more of a session than its name and place.

    Raises:
        FieldError: the bytes are no session.
    """
    return _session(_view(wire), wire)


def read_session(wire: bytes) -> KvSessionContent:
    """Read a session.

    Raises:
        FieldError: the bytes are no session, an endpoint cannot be connected to, or an attribute is a number that
            JSON carriers round: NaN, infinities, anything above 2^53. Named by its path.
    """
    view = _view(wire)
    check_exact(view.attributes, path="session.attributes_struct")
    return KvSessionContent(
        session=_session(view, wire),
        endpoints=tuple(_endpoint(number, endpoint) for number, endpoint in enumerate(view.endpoints)),
        attributes=struct_text(view.attributes),
    )


def _view(wire: bytes) -> SessionView:
    try:
        return SessionView.FromString(wire)
    except DecodeError as error:
        field = "session"
        raise FieldError(field, f"{len(wire)} bytes are no KV session: {error}") from error


def _session(view: SessionView, wire: bytes) -> KvSession:
    return KvSession(
        session_id=view.session_id, transfer_backend=view.transfer_backend, dp_rank=view.dp_rank, wire=wire
    )


def _endpoint(number: int, endpoint: EndpointView) -> KvEndpoint:
    path = f"session.endpoints[{number}]"
    if not endpoint.host:
        raise FieldError(path, "it has no host")
    if not 1 <= endpoint.port <= HIGHEST_PORT:
        raise FieldError(path, f"port {endpoint.port} is none that can be connected to")
    return KvEndpoint(peer_text(endpoint.host), endpoint.port, peer_text(endpoint.protocol))

"""Handoffs that do not come, do not hold, or are not what they should be. They act on prefill engines."""

from __future__ import annotations

from collections.abc import Callable

from openengine_sidecar.launch.engine.faults.events import Response
from openengine_sidecar.launch.engine.faults.registry import Argument, Effects, Events, Scene, fault
from openengine_sidecar.launch.engine.handoff.sessions import HeldSession
from openengine_sidecar.proto.rev2 import generation_pb2, kv_pb2

FIELD_TAG = 9 << 3 | 2  # field 9, length delimited: the schema has none of that number
ABOVE_EXACT = 2.0**53 + 2
HUGE = 1 << 20

Session = kv_pb2.KvSessionRef


def _on_handoff(act: Callable[[Response, HeldSession, Scene], Response]) -> Effects:
    async def transform(events: Events, scene: Scene) -> Events:
        async for event in events:
            held = None
            if event.HasField("prefill_ready") and scene.sessions is not None:
                held = scene.sessions.find(event.prefill_ready.kv_session.session_id)
            yield event if held is None else act(event, held, scene)

    return Effects(stream=transform)


def _forget(held: HeldSession, scene: Scene) -> None:
    if scene.sessions is not None:
        scene.sessions.lost(held.session_id)


@fault("lose-session", "the session handed out is forgotten at once")
def lose_session(_argument: Argument) -> Effects:
    """Lose a session."""

    def act(event: Response, held: HeldSession, scene: Scene) -> Response:
        _forget(held, scene)
        return event

    return _on_handoff(act)


@fault("refuse-handoff", "the session handed out is refused to the decode engine that comes for it")
def refuse_handoff(_argument: Argument) -> Effects:
    """Refuse a transfer."""

    def act(event: Response, held: HeldSession, _scene: Scene) -> Response:
        held.refusal = "scripted refusal"
        return event

    return _on_handoff(act)


@fault("slow-transfer", "[SECS] the transfer of the session takes so long, by default a second")
def slow_transfer(argument: Argument) -> Effects:
    """Be slow at handing over."""
    found = argument.seconds()
    seconds = 1.0 if found is None else found

    def act(event: Response, held: HeldSession, _scene: Scene) -> Response:
        held.delay = seconds
        return event

    return _on_handoff(act)


@fault("prefill-finished", "[cancelled|stop|length] a prefill ends with that finish reason in place of its handoff")
def prefill_finished(argument: Argument) -> Effects:
    """End a prefill without handoff."""
    reason = f"FINISH_REASON_{argument.among(('cancelled', 'stop', 'length')).upper()}"

    def act(event: Response, held: HeldSession, scene: Scene) -> Response:
        _forget(held, scene)
        finished = generation_pb2.GenerationFinished(output_index=0, reason=reason)
        return Response(request_id=event.request_id, finished=finished, usage=event.usage)

    return _on_handoff(act)


@fault("missing-session", "a prefill's handoff has no session in it")
def missing_session(_argument: Argument) -> Effects:
    """Break "a handoff has a session"."""

    def act(event: Response, held: HeldSession, scene: Scene) -> Response:
        _forget(held, scene)
        event.prefill_ready.ClearField("kv_session")
        return event

    return _on_handoff(act)


@fault("prefill-tokens", "[N] N token events come before a prefill's handoff, which servers do")
def prefill_tokens(argument: Argument) -> Effects:
    """Send what the contract does not forbid: tokens of a prefill."""
    number = argument.count(1)

    async def transform(events: Events, _scene: Scene) -> Events:
        async for event in events:
            if event.HasField("prefill_ready"):
                for _ in range(number):
                    infos = [generation_pb2.TokenInfo(token_id=ord("*"))]
                    token = generation_pb2.TokenOutput(output_index=0, tokens=infos, text="*")
                    yield Response(request_id=event.request_id, token=token)
                event.usage.completion_tokens += number
                event.usage.total_tokens += number
            yield event

    return Effects(stream=transform)


@fault("session-field", "[N] the session carries a field of N bytes that the schema does not know")
def session_field(argument: Argument) -> Effects:
    """Come from a newer schema."""
    size = min(argument.count(3), 127)

    def act(event: Response, _held: HeldSession, _scene: Scene) -> Response:
        unknown = bytes([FIELD_TAG, size]) + b"x" * size
        event.prefill_ready.kv_session.MergeFromString(unknown)
        return event

    return _on_handoff(act)


@fault("session-odd", "[number|nan|port|rank|backend|protocol|huge],bytes=N that part of the session cannot be")
def session_odd(argument: Argument) -> Effects:
    """Hand out what a carrier, or the decode engine, must refuse; the session itself is held."""
    twist = _TWISTS[argument.among(tuple(_TWISTS))]
    size = argument.option("bytes", HUGE)

    def act(event: Response, _held: HeldSession, _scene: Scene) -> Response:
        twist(event.prefill_ready.kv_session, size)
        return event

    return _on_handoff(act)


def _number(session: Session, _size: int) -> None:
    session.attributes_struct["scale"] = ABOVE_EXACT


def _nan(session: Session, _size: int) -> None:
    session.attributes_struct["scale"] = float("nan")


def _port(session: Session, _size: int) -> None:
    session.endpoints.add(host="127.0.0.1", protocol="tcp")


def _rank(session: Session, _size: int) -> None:
    session.dp_rank = 4711


def _backend(session: Session, _size: int) -> None:
    session.transfer_backend = "another"


def _protocol(session: Session, _size: int) -> None:
    for endpoint in session.endpoints:
        endpoint.protocol = "carrier-pigeon"


def _huge(session: Session, size: int) -> None:
    session.attributes_struct["state"] = "x" * size


_TWISTS: dict[str, Callable[[Session, int], None]] = {
    "number": _number,
    "nan": _nan,
    "port": _port,
    "rank": _rank,
    "backend": _backend,
    "protocol": _protocol,
    "huge": _huge,
}

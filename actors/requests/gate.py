"""RequestGate: hears every endpoint of this instance, admits, and is the parent of the streams."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable

from openengine_sidecar.actors.config import AdmissionConfig, DrainConfig, NatsConfig, WorkerIdentity
from openengine_sidecar.actors.requests.control_stream import ControlStream
from openengine_sidecar.actors.requests.exchange import Exchange
from openengine_sidecar.actors.requests.nats_plane import NatsPlane
from openengine_sidecar.actors.requests.protocol import Admitted, Arrival, CancelReason, Expose, Settle
from openengine_sidecar.actors.requests.stream import RequestStream, StreamContext
from openengine_sidecar.messages.dynamo.control import ControlHeader, decode_control
from openengine_sidecar.messages.dynamo.naming import EndpointId, instance_subject
from openengine_sidecar.messages.dynamo.two_part import decode_frame
from openengine_sidecar.messages.errors import OverloadedError, StreamBrokenError, WireError
from openengine_sidecar.messages.facts import EngineDown, EngineUp, Outcome, PlaneState, StreamEnded
from openengine_sidecar.messages.signals import Cause, Drain, Terminated
from openengine_sidecar.supervision import Actor, ChildSpec, Mailbox, MailboxFullError, Restart

MALFORMED = b"Server overloaded: malformed request"
ROOM = 1024
"""Arrivals that may wait to be looked at; one more is answered as overloaded."""
MAILBOX = Mailbox(capacity=2 * ROOM)
"""For the gate's ChildSpec: facts and questions find room where arrivals have none."""
CANCEL_RESERVE = 5.0
STREAM_SHUTDOWN = 15.0

GateMail = Arrival | Settle | Expose | EngineUp | EngineDown


class RequestGate(Actor[GateMail]):
    """Acknowledges or refuses at once, then leaves the request to a RequestStream of its own.

    A refusal that can still be told to the client travels as a typed error item through the stream; only what cannot
    (no address to answer to, no room at all) is said in the acknowledgement. Every arrival ends in one StreamEnded.
    """

    def __init__(
        self,
        identity: WorkerIdentity,
        nats: NatsConfig,
        context: StreamContext,
        admission: AdmissionConfig,
        drain: DrainConfig,
    ) -> None:
        super().__init__()
        self._identity = identity
        self._context = context
        self._admission = admission
        self._drain = drain
        self._plane = NatsPlane(
            nats, name=f"openengine-sidecar-{identity.instance_id:x}", state_changed=self._plane_changed
        )
        self._engine: EngineUp | None = None
        self._exposed: dict[str, Expose] = {}
        self._arriving: deque[Arrival] = deque()
        self._exchanges: dict[str, Exchange] = {}
        self._attempts = itertools.count(1)
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[bool]]] = []

    async def on_start(self) -> None:
        """Ready once the request plane delivers to this instance."""
        # What waited through a restart is handled before the facts that subscribing brings.
        self._engine = self.system.facts.last(EngineUp) if self._context.client.attached else None
        self.subscribe(EngineUp, EngineDown)
        self.publish(PlaneState(connected=False, detail="connecting"))
        await self._plane.connect()
        await self._listen(self._identity.endpoint)
        self.background(self._plane.serve(), name="request plane")
        if self._plane.connected:  # else it says so itself, once it is
            self._plane_changed(connected=True, detail="")

    async def on_message(self, message: GateMail) -> object:
        """Admit an arrival, or keep the books."""
        match message:
            case Arrival():
                await self._arrived(message)
                if self._arriving and self._arriving[0] is message:  # not one that waited through a restart
                    self._arriving.popleft()
                self._changed()
            case Settle():
                return self._when(lambda: all(exchange.dialled.done() for exchange in self._exchanges.values()))
            case Expose():
                await self._expose(message)
            case EngineUp():
                self._engine = message
            case EngineDown():
                self._engine_down(message)
        return None

    async def on_terminated(self, terminated: Terminated) -> None:
        """A stream ended."""
        self._ended(terminated.address.name, str(terminated.cause))

    async def on_drain(self, drain: Drain) -> None:
        """Serve what still arrives in the grace period (none when idle), then let the streams end."""
        if self._exchanges:
            left = drain.deadline - self.clock.monotonic()
            await self.clock.sleep(min(self._drain.grace, left / 2))
        await self._plane.stop_intake()
        await self._until(lambda: not self._arriving, drain.deadline)
        self.log.info("draining: {} requests in flight", len(self._exchanges))
        left = drain.deadline - self.clock.monotonic()
        if not await self._until(lambda: not self._exchanges, drain.deadline - min(CANCEL_RESERVE, left / 2)):
            self._cancel_all(CancelReason.DRAIN_DEADLINE)
            await self._until(lambda: not self._exchanges, drain.deadline)

    async def on_stop(self, cause: Cause) -> None:
        """End what the streams, which are gone by now, have left behind, and close the plane."""
        del cause
        left_behind = {name: exchange for name, exchange in self._exchanges.items() if not exchange.closed}
        await asyncio.gather(*(self._bury(name, exchange) for name, exchange in left_behind.items()))
        await self._plane.close()

    async def _listen(self, name: str) -> None:
        endpoint = EndpointId(self._identity.namespace, self._identity.component, name)
        await self._plane.listen(name, instance_subject(endpoint, self._identity.instance_id), self._take)

    async def _expose(self, exposed: Expose) -> None:
        known = exposed.endpoint in self._exposed
        self._exposed[exposed.endpoint] = exposed
        if not known:
            await self._listen(exposed.endpoint)

    def _take(self, arrival: Arrival) -> bool:
        if len(self._arriving) < ROOM:
            try:
                self.ref.tell(arrival)
            except MailboxFullError as error:
                self.log.error("{}", error)
            else:
                self._arriving.append(arrival)
                return True
        self._count_refusal("", "too many requests wait to be looked at")
        return False

    async def _arrived(self, arrival: Arrival) -> None:
        try:
            header, body = decode_frame(arrival.payload, self._context.config.max_frame_bytes)
            control = decode_control(header)
        except WireError as error:
            self.log.warning("a request that cannot be answered: {}", error)
            await self._plane.acknowledge(arrival, MALFORMED)
            self.publish(StreamEnded(request_id="", outcome=Outcome.FAILED, error=type(error).__name__))
            return
        limit = self._admission.request_limit
        if limit is not None and len(self._exchanges) >= limit:
            self._count_refusal(control.id, f"{limit} requests in flight")
            await self._plane.acknowledge(arrival, f"Server overloaded: {limit} requests in flight".encode())
        else:
            await self._accept(arrival, control, body)

    def _count_refusal(self, request_id: str, why: str) -> None:
        self.log.bind(request_id=request_id).warning("refused: {}", why)
        self.publish(StreamEnded(request_id=request_id, outcome=Outcome.REFUSED, error=OverloadedError.__name__))

    async def _accept(self, arrival: Arrival, control: ControlHeader, body: bytes) -> None:
        context = self._context
        engine_id = f"{control.id}.{self._identity.instance_id & 0xFFFF:04x}-{next(self._attempts)}"
        name = engine_id.replace("/", "_")
        # Entered before it is acknowledged: from then on somebody waits for its end, whatever happens here.
        exchange = self._exchanges[name] = Exchange(control, engine_id, context.client, context.config, self.clock)
        exchange.dialled.add_done_callback(lambda _: self._changed())
        if await self._plane.acknowledge(arrival, b""):
            admitted = Admitted(control=control, body=body, trace=arrival.trace, engine=self._engine)
            await self._open(name, exchange, arrival.endpoint, admitted)
        else:
            self.publish(StreamEnded(request_id=control.id, outcome=Outcome.FAILED, error="AcknowledgementLost"))
            self._forget(name)

    async def _open(self, name: str, exchange: Exchange, endpoint: str, admitted: Admitted) -> None:
        context = self._context
        exposed = self._exposed.get(endpoint)

        def stream() -> RequestStream | ControlStream:
            if exposed is not None:
                return ControlStream(exposed, admitted, exchange)
            return RequestStream(context, admitted, exchange)

        spec = ChildSpec(name=name, factory=stream, restart=Restart.TEMPORARY, shutdown=STREAM_SHUTDOWN)
        try:
            await self.spawn(spec)
        except Exception as error:  # noqa: BLE001 - ends this request, and is counted as its failure
            self._ended(name, f"did not start: {error!r}")

    def _ended(self, name: str, how: str) -> None:
        """A stream has ended both its ends, and told so, or it left that to its gate."""
        exchange = self._exchanges[name]
        if exchange.closed:
            self._forget(name)
            return
        self.log.bind(request_id=exchange.request_id).error("its stream crashed: {}", how)
        self.background(self._bury(name, exchange), name=f"bury {name}")

    async def _bury(self, name: str, exchange: Exchange) -> None:
        error = StreamBrokenError(exchange.request_id, "the worker's stream actor failed")
        try:
            await exchange.conclude(error)
        except Exception as failure:  # noqa: BLE001 - one request's trouble, counted below, must not end all others
            self.log.bind(request_id=exchange.request_id).opt(exception=failure).error("could not be ended in order")
        self.publish(
            StreamEnded(
                request_id=exchange.request_id,
                outcome=Outcome.FAILED,
                error=type(error).__name__,
                aborts=exchange.aborts,
                kv=exchange.engine.custody.end,
                hold=exchange.engine.hold,
            )
        )
        self._forget(name)

    def _forget(self, name: str) -> None:
        del self._exchanges[name]
        self._changed()

    def _engine_down(self, down: EngineDown) -> None:
        if down.lost:
            self._engine = None
            self._cancel_all(CancelReason.ENGINE_LOST)

    def _cancel_all(self, reason: CancelReason) -> None:
        for child in self.children.values():
            child.cancel(reason)

    def _plane_changed(self, *, connected: bool, detail: str) -> None:
        self.log.info("request plane {}", "connected" if connected else f"down: {detail}")
        self.publish(PlaneState(connected=connected, detail=detail))

    async def _until(self, condition: Callable[[], bool], deadline: float) -> bool:
        met = self._when(condition)
        timer = self.clock.call_at(deadline, _resolve, met, False)  # noqa: FBT003 - the future's value
        try:
            return await met
        finally:
            timer.cancel()

    def _when(self, condition: Callable[[], bool]) -> asyncio.Future[bool]:
        met: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append((condition, met))
        self._changed()
        return met

    def _changed(self) -> None:
        for condition, met in self._waiters:
            if condition():
                _resolve(met, True)  # noqa: FBT003 - the future's value
        self._waiters = [waiter for waiter in self._waiters if not waiter[1].done()]


def _resolve(met: asyncio.Future[bool], value: bool) -> None:  # noqa: FBT001 - a future's value
    if not met.done():
        met.set_result(value)

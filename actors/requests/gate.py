"""RequestGate: hears every endpoint of this instance, admits, and is the parent of the streams."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable

from openengine_sidecar.actors.config import AdmissionConfig, DrainConfig, NatsConfig, WorkerIdentity
from openengine_sidecar.actors.requests.exchange import Exchange
from openengine_sidecar.actors.requests.nats_plane import NatsPlane
from openengine_sidecar.actors.requests.protocol import Admitted, Arrival, CancelReason, Dialled, Settle
from openengine_sidecar.actors.requests.stream import RequestStream, StreamContext
from openengine_sidecar.messages.dynamo.control import ControlHeader, decode_control
from openengine_sidecar.messages.dynamo.naming import EndpointId, instance_subject
from openengine_sidecar.messages.dynamo.two_part import decode_frame
from openengine_sidecar.messages.errors import StreamBrokenError, WireError
from openengine_sidecar.messages.facts import EngineDown, EngineUp, Outcome, PlaneState, StreamEnded
from openengine_sidecar.messages.signals import Cause, Drain, Terminated
from openengine_sidecar.supervision import Actor, ChildSpec, Restart

MALFORMED = b"Server overloaded: malformed request"
CANCEL_RESERVE = 5.0
STREAM_SHUTDOWN = 15.0

GateMail = Arrival | Dialled | Settle | EngineUp | EngineDown


class RequestGate(Actor[GateMail]):
    """Acknowledges or refuses at once, then leaves the request to a RequestStream of its own.

    A refusal that can still be told to the client travels as a typed error item through the stream; only what cannot
    (no address to answer to, no room at all) is said in the acknowledgement.
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
        self._exchanges: dict[str, Exchange] = {}
        self._undialled: set[str] = set()
        self._attempts = itertools.count(1)
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[bool]]] = []
        self.counters: Counter[str] = Counter()

    async def on_start(self) -> None:
        """Ready once the request plane delivers to this instance."""
        self.subscribe(EngineUp, EngineDown)
        await self._plane.connect()
        endpoint = EndpointId(self._identity.namespace, self._identity.component, self._identity.endpoint)
        await self._plane.listen({endpoint.name: instance_subject(endpoint, self._identity.instance_id)}, self.ref.tell)
        self._plane_changed(connected=True, detail="")

    async def on_message(self, message: GateMail) -> object:
        """Admit an arrival, or keep the books."""
        match message:
            case Arrival():
                await self._arrived(message)
                self._changed()
            case Dialled():
                self._undialled.discard(message.stream)
                self._changed()
            case Settle():
                return self._when(lambda: not self._undialled)
            case EngineUp():
                self._engine = message
            case EngineDown():
                self._engine_down(message)
        return None

    async def on_terminated(self, terminated: Terminated) -> None:
        """A stream ended; what a crash left behind is ended here."""
        name = terminated.address.name
        exchange = self._exchanges.pop(name)
        self._undialled.discard(name)
        self._changed()
        if not exchange.closed:
            self.log.bind(request_id=exchange.request_id).error("its stream crashed: {}", terminated.cause)
            self.background(self._bury(exchange), name=f"bury {name}")

    async def on_drain(self, drain: Drain) -> None:
        """Serve what still arrives in the grace period (none when idle), then let the streams end."""
        if self._exchanges:
            left = drain.deadline - self.clock.monotonic()
            await self.clock.sleep(min(self._drain.grace, left / 2))
        await self._plane.stop_intake()
        await self._until(lambda: self.mailbox_empty, drain.deadline)
        self.log.info("draining: {} requests in flight", len(self._exchanges))
        left = drain.deadline - self.clock.monotonic()
        if not await self._until(lambda: not self._exchanges, drain.deadline - min(CANCEL_RESERVE, left / 2)):
            self._cancel_all(CancelReason.DRAIN_DEADLINE)
            await self._until(lambda: not self._exchanges, drain.deadline)

    async def on_stop(self, cause: Cause) -> None:
        """Close the plane; the streams are gone by now."""
        del cause
        await self._plane.close()

    async def _arrived(self, arrival: Arrival) -> None:
        try:
            header, body = decode_frame(arrival.payload, self._context.config.max_frame_bytes)
            control = decode_control(header)
        except WireError as error:
            self.counters["malformed"] += 1
            self.log.warning("a request that cannot be answered: {}", error)
            await arrival.acknowledge(MALFORMED)
            return
        limit = self._admission.request_limit
        if limit is not None and len(self._exchanges) >= limit:
            await self._refuse(arrival, control, f"Server overloaded: {limit} requests in flight".encode())
        else:
            await arrival.acknowledge(b"")
            await self._open(control, body, arrival.trace)

    async def _refuse(self, arrival: Arrival, control: ControlHeader, text: bytes) -> None:
        self.log.bind(request_id=control.id).warning("refused: {}", text.decode())
        await arrival.acknowledge(text)
        self.publish(StreamEnded(request_id=control.id, outcome=Outcome.REFUSED, error="OverloadedError"))

    async def _open(self, control: ControlHeader, body: bytes, trace: dict[str, str]) -> None:
        context = self._context
        name = f"{control.id}.{self._identity.instance_id & 0xFFFF:04x}-{next(self._attempts)}"
        exchange = Exchange(control, name, context.client, context.config, self.clock)
        self._exchanges[name] = exchange
        self._undialled.add(name)
        admitted = Admitted(control=control, body=body, trace=trace, engine=self._engine)
        await self.spawn(
            ChildSpec(
                name=name,
                factory=lambda: RequestStream(context, admitted, exchange, lambda: self.ref.tell(Dialled(name))),
                restart=Restart.TEMPORARY,
                shutdown=STREAM_SHUTDOWN,
            )
        )

    async def _bury(self, exchange: Exchange) -> None:
        await exchange.conclude(StreamBrokenError(exchange.request_id, "the worker's stream actor failed"))
        self.publish(
            StreamEnded(request_id=exchange.request_id, outcome=Outcome.FAILED, error="crash", aborts=exchange.aborts)
        )

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

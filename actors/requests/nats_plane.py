"""The NATS request plane: one subject per endpoint of this instance."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Never, Protocol

import nats
import nats.errors
from loguru import logger
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from openengine_sidecar.actors.config import NatsConfig
from openengine_sidecar.actors.requests.protocol import Arrival

QUEUE_GROUP = "q"
PING_INTERVAL = 10
CONNECT_TIMEOUT = 2
CLOSE_TIMEOUT = 2
FLUSH_TIMEOUT = 10
TRACE_HEADERS = ("traceparent", "tracestate")
NO_ROOM = b"Server overloaded: too many requests wait to be looked at"
FAILURES = (nats.errors.Error, OSError)  # TimeoutError is one of the latter
UNLIMITED = -1  # the library drops beyond a limit without an answer; the gate's mailbox is the bound, and answers

Deliver = Callable[[Arrival], bool]


class OrderlyClient(Client):
    """A client whose flush flushes.

    The library's own writes its ping at once, past the commands that wait for another task to write them: what it
    returns from may not have been said yet. By the first pong they have been, so the second one answers for them.
    """

    async def flush(self, timeout: int = FLUSH_TIMEOUT) -> None:
        """Return once the server has taken in everything said so far."""
        await super().flush(timeout)
        await super().flush(timeout)


class StateChanged(Protocol):
    """Hears of every change of the connection."""

    def __call__(self, *, connected: bool, detail: str) -> None:
        """Take it in; must not block."""
        ...


class NatsPlane:
    """Receives requests and acknowledges them; reconnects for ever, keeping its subscriptions.

    `deliver` must not block and says whether it took the request; one that it had no room for is answered as
    overloaded.
    """

    def __init__(self, config: NatsConfig, *, name: str, state_changed: StateChanged) -> None:
        self._config = config
        self._name = name
        self._state_changed = state_changed
        self._client = OrderlyClient()
        self._subscriptions: list[Subscription] = []
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.counters: Counter[str] = Counter()

    async def connect(self) -> None:
        """Wait for a server, however long it takes."""
        config = self._config
        await self._client.connect(
            list(config.servers),
            name=self._name,
            user=config.user,
            password=config.password,
            connect_timeout=CONNECT_TIMEOUT,
            reconnect_time_wait=config.reconnect_wait,  # type: ignore[arg-type]  # floats work, the hint says int
            max_reconnect_attempts=-1,
            ping_interval=PING_INTERVAL,
            error_cb=self._on_error,
            disconnected_cb=partial(self._on_state, connected=False),
            reconnected_cb=partial(self._on_state, connected=True),
            closed_cb=self._on_closed,
        )

    @property
    def connected(self) -> bool:
        """Whether the server would hear us now."""
        return bool(self._client.is_connected)

    async def listen(self, endpoint: str, subject: str, deliver: Deliver) -> None:
        """Subscribe to the subject of an endpoint and return once the server knows it.

        Without a connection it returns at once: the library subscribes again whenever it has one.
        """
        self._subscriptions.append(
            await self._client.subscribe(
                subject,
                queue=QUEUE_GROUP,
                cb=partial(self._on_request, endpoint, deliver),
                pending_msgs_limit=UNLIMITED,
                pending_bytes_limit=UNLIMITED,
            )
        )
        try:
            await self._client.flush()
        except FAILURES as error:
            logger.warning("request plane: {} is not listened to yet: {}", subject, error)

    async def serve(self) -> Never:
        """Wait for the connection to end for good, which no reconnecting mends.

        Raises:
            ConnectionError: it did (a server that refuses our credentials, for one).
        """
        await asyncio.shield(self._lost)
        msg = f"the request plane at {', '.join(self._config.servers)} ended: {self._client.last_error}"
        raise ConnectionError(msg)

    async def stop_intake(self) -> None:
        """Unsubscribe; what was already received is still delivered before this returns."""
        for subscription in self._subscriptions:
            try:
                await subscription.drain()  # type: ignore[no-untyped-call]  # the library has no hint here
            except FAILURES as error:
                logger.warning("request plane: could not unsubscribe: {}", error)
        self._subscriptions.clear()

    async def acknowledge(self, arrival: Arrival, text: bytes) -> bool:
        """Answer a request; returns whether the answer is on its way."""
        try:
            await self._client.publish(arrival.reply, text)
        except FAILURES as error:
            self.counters["acknowledgement_lost"] += 1
            logger.warning("request plane: could not acknowledge a request: {}", error)
            return False
        return True

    async def close(self) -> None:
        """Deliver what was received, flush acknowledgements, close; no further state change is told."""
        self._state_changed = _nobody
        if self.connected:
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self.stop_intake()
                    await self._client.flush(timeout=CLOSE_TIMEOUT)
            except FAILURES as error:
                logger.warning("request plane: could not flush before closing: {}", error)
        try:
            await self._client.close()
        except FAILURES as error:
            logger.warning("request plane: did not close in order: {}", error)

    async def _on_request(self, endpoint: str, deliver: Deliver, message: Msg) -> None:
        arrival = Arrival(endpoint, message.data, _trace(message), message.reply)
        if not deliver(arrival):
            await self.acknowledge(arrival, NO_ROOM)

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            self.counters["slow_consumer"] += 1
        self.counters["errors"] += 1
        logger.warning("request plane at {}: {}", ", ".join(self._config.servers), error or type(error).__name__)

    async def _on_closed(self) -> None:
        await self._on_state(connected=False)
        if not self._lost.done():
            self._lost.set_result(None)

    async def _on_state(self, *, connected: bool) -> None:
        detail = "" if connected else f"no NATS server at {', '.join(self._config.servers)}"
        self._state_changed(connected=connected, detail=detail)


def _trace(message: Msg) -> dict[str, str]:
    headers = message.headers or {}
    return {name: headers[name] for name in TRACE_HEADERS if name in headers}


def _nobody(*, connected: bool, detail: str) -> None:
    del connected, detail

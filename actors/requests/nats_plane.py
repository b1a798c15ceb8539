"""The NATS request plane: one subject per endpoint of this instance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Never

from loguru import logger
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from openengine_sidecar.actors.config import NatsConfig
from openengine_sidecar.actors.nats_link import CLOSE_TIMEOUT, FAILURES, NatsLink, StateChanged
from openengine_sidecar.actors.requests.protocol import Arrival

QUEUE_GROUP = "q"
TRACE_HEADERS = ("traceparent", "tracestate")
NO_ROOM = b"Server overloaded: too many requests wait to be looked at"
UNLIMITED = -1  # the library drops beyond a limit without an answer; the gate's mailbox is the bound, and answers

Deliver = Callable[[Arrival], bool]


class NatsPlane:
    """Receives requests and acknowledges them; reconnects for ever, keeping its subscriptions.

    `deliver` must not block and says whether it took the request; one that it had no room for is answered as
    overloaded.
    """

    def __init__(self, config: NatsConfig, *, name: str, state_changed: StateChanged) -> None:
        self._link = NatsLink(config, name=name, plane="request plane", changed=state_changed)
        self._subscriptions: list[Subscription] = []

    async def connect(self) -> None:
        """Wait for a server, however long it takes."""
        await self._link.connect()

    async def serve(self) -> Never:
        """Wait for the connection to end for good; see NatsLink."""
        await self._link.serve()

    @property
    def connected(self) -> bool:
        """Whether the server would hear us now."""
        return self._link.connected

    async def listen(self, endpoint: str, subject: str, deliver: Deliver) -> None:
        """Subscribe to the subject of an endpoint and return once the server knows it.

        Without a connection it returns at once: the library subscribes again whenever it has one.
        """
        self._subscriptions.append(
            await self._link.client.subscribe(
                subject,
                queue=QUEUE_GROUP,
                cb=partial(self._on_request, endpoint, deliver),
                pending_msgs_limit=UNLIMITED,
                pending_bytes_limit=UNLIMITED,
            )
        )
        try:
            await self._link.client.flush()
        except FAILURES as error:
            logger.warning("request plane: {} is not listened to yet: {}", subject, error)

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
            await self._link.client.publish(arrival.reply, text)
        except FAILURES as error:
            logger.warning("request plane: could not acknowledge a request: {}", error)
            return False
        return True

    async def close(self) -> None:
        """Deliver what was received, flush acknowledgements, close; no further state change is told."""
        try:
            if self.connected:
                await self._finish()
        finally:
            await self._link.close()

    async def _finish(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.stop_intake()
                await self._link.client.flush(timeout=CLOSE_TIMEOUT)
        except FAILURES as error:
            logger.warning("request plane: could not flush before closing: {}", error)

    async def _on_request(self, endpoint: str, deliver: Deliver, message: Msg) -> None:
        arrival = Arrival(endpoint, message.data, _trace(message), message.reply)
        if not deliver(arrival):
            await self.acknowledge(arrival, NO_ROOM)


def _trace(message: Msg) -> dict[str, str]:
    headers = message.headers or {}
    return {name: headers[name] for name in TRACE_HEADERS if name in headers}

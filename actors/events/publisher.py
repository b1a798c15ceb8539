"""EventPublisher: the owner of the event plane's connection."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, Never

import nats.errors
from nats.aio.client import Client

from openengine_sidecar.actors.config import NatsConfig
from openengine_sidecar.actors.events.plane import EventPlane, Outlet
from openengine_sidecar.messages.facts import EventPlaneState
from openengine_sidecar.messages.signals import Cause
from openengine_sidecar.supervision import Actor

PING_INTERVAL = 10
CONNECT_TIMEOUT = 2
FLUSH_TIMEOUT = 5
CLOSE_TIMEOUT = 2
UNCONFIRMED: Final = 256 * 1024
"""Bytes sent before the server must confirm them: the rest waits where it is bounded."""


class EventPublisher(Actor[Never]):
    """Sends what the plane holds over a NATS connection of its own; reconnects for ever. Ready at once.

    A message that the server did not get is lost, as is one that no router listened to: routers see the hole.
    """

    def __init__(self, plane: EventPlane, config: NatsConfig, *, name: str) -> None:
        super().__init__()
        self._plane = plane
        self._config = config
        self._connection = name
        self._client = Client()
        self._connected = asyncio.Event()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unconfirmed = 0

    async def on_start(self) -> None:
        """Begin to connect."""
        self.background(self._serve(), name="event plane")

    async def on_message(self, message: Never) -> None:
        """No mail is understood."""

    async def on_stop(self, cause: Cause) -> None:
        """Send what waits, if that takes no time, and close."""
        del cause
        if self._client.is_connected:
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    while not self._plane.empty:
                        await self._publish(*await self._plane.next())
                    await self._client.flush(timeout=CLOSE_TIMEOUT)
            except (nats.errors.Error, TimeoutError) as error:
                self.log.warning("event plane: could not flush before closing: {}", error)
        await self._client.close()

    async def _serve(self) -> Never:
        """Connect, and send until the connection ends for good."""
        config = self._config
        await self._client.connect(
            list(config.servers),
            name=self._connection,
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
        await self._on_state(connected=True)
        self.background(self._send(), name="send")
        await asyncio.shield(self._lost)
        msg = f"the event plane at {', '.join(config.servers)} ended: {self._client.last_error}"
        raise ConnectionError(msg)

    async def _send(self) -> Never:
        while True:
            await self._connected.wait()
            outlet, items = await self._plane.next()
            await self._publish(outlet, items)
            if self._unconfirmed > UNCONFIRMED:
                await self._confirm()

    async def _publish(self, outlet: Outlet[Any], items: list[Any]) -> None:
        """Send one message; what is too large for the server goes in two, and if it cannot be cut, is dropped."""
        message = outlet.message(items)
        if len(message) > self._client.max_payload and len(items) > 1:
            half = len(items) // 2
            await self._publish(outlet, items[:half])
            await self._publish(outlet, items[half:])
            return
        try:
            await self._client.publish(outlet.subject, message)
        except nats.errors.Error as error:
            outlet.counts["dropped"] += len(items)
            self.log.warning("event plane: {} events lost: {!r}", len(items), error)
        else:
            outlet.counts["published"] += len(items)
            self._unconfirmed += len(message)

    async def _confirm(self) -> None:
        """Wait until the server has read everything, or the connection is lost."""
        while self._connected.is_set():
            try:
                await self._client.flush(timeout=FLUSH_TIMEOUT)
            except (nats.errors.Error, TimeoutError) as error:
                self.log.warning("event plane: slow: {!r}", error)
            else:
                break
        self._unconfirmed = 0

    async def _on_error(self, error: Exception) -> None:
        self.log.warning("event plane at {}: {}", ", ".join(self._config.servers), error or type(error).__name__)

    async def _on_closed(self) -> None:
        await self._on_state(connected=False)
        if not self._lost.done():
            self._lost.set_result(None)

    async def _on_state(self, *, connected: bool) -> None:
        detail = "" if connected else f"no NATS server at {', '.join(self._config.servers)}"
        self.log.info("event plane {}", "connected" if connected else f"down: {detail}")
        if connected:
            self._connected.set()
        else:
            self._connected.clear()
        self.publish(EventPlaneState(connected=connected, detail=detail))

"""EventPublisher: the owner of the event plane's connection."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Never

from openengine_sidecar.actors.config import NatsConfig
from openengine_sidecar.actors.events.plane import EventPlane, Outlet
from openengine_sidecar.actors.nats_link import CLOSE_TIMEOUT, FAILURES, NatsLink
from openengine_sidecar.messages.facts import EventPlaneState
from openengine_sidecar.messages.signals import Cause
from openengine_sidecar.supervision import Actor

LINGER: Final = 0.002
"""Seconds for which what follows a message gathers for the next: a message costs far more than an event."""

UNCONFIRMED: Final = 256 * 1024
"""Bytes sent before the server must confirm them: the rest waits where it is bounded."""


class EventPublisher(Actor[Never]):
    """Sends what the plane holds over a NATS connection of its own; reconnects for ever. Ready at once.

    A message that the server did not get is lost, as is one that no router listened to: routers see the hole.
    """

    def __init__(self, plane: EventPlane, config: NatsConfig, *, name: str) -> None:
        super().__init__()
        self._plane = plane
        self._link = NatsLink(config, name=name, plane="event plane", changed=self._changed)
        self._connected = asyncio.Event()
        self._unconfirmed = 0

    async def on_start(self) -> None:
        """Begin to connect."""
        self.background(self._serve(), name="event plane")

    async def on_message(self, message: Never) -> None:
        """No mail is understood."""

    async def on_stop(self, cause: Cause) -> None:
        """Send what waits, if that takes no time, and close."""
        del cause
        try:
            if self._link.connected:
                await self._send_rest()
        finally:
            await self._link.close()
            self.publish(EventPlaneState(connected=False, detail="closed"))

    async def _send_rest(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                while not self._plane.empty:
                    await self._publish(*await self._plane.next())
                await self._link.client.flush(timeout=CLOSE_TIMEOUT)
        except FAILURES as error:
            self.log.warning("event plane: could not flush before closing: {}", error)

    async def _serve(self) -> Never:
        """Connect, and send until the connection ends for good."""
        await self._link.connect()
        self._changed(connected=True, detail="")
        self.background(self._send(), name="send")
        await self._link.serve()

    async def _send(self) -> Never:
        while True:
            await self._connected.wait()
            outlet, items = await self._plane.next()
            await self._publish(outlet, items)
            if self._unconfirmed > UNCONFIRMED:
                await self._confirm()
            if self._plane.empty:
                await self.clock.sleep(LINGER)

    async def _publish(self, outlet: Outlet[Any], items: list[Any]) -> None:
        """Send one message; what is too large for the server goes in two, and if it cannot be cut, is dropped."""
        message = outlet.message(items)
        if len(message) > self._link.client.max_payload and len(items) > 1:
            half = len(items) // 2
            await self._publish(outlet, items[:half])
            await self._publish(outlet, items[half:])
            return
        try:
            await self._link.client.publish(outlet.subject, message)
        except FAILURES as error:
            outlet.counts["dropped"] += len(items)
            self.log.warning("event plane: {} events lost: {!r}", len(items), error)
        else:
            outlet.counts["published"] += len(items)
            self._unconfirmed += len(message)

    async def _confirm(self) -> None:
        """Wait until the server has read everything, or the connection is lost."""
        while self._connected.is_set():
            try:
                await self._link.client.flush()
            except FAILURES as error:
                self.log.warning("event plane: slow: {!r}", error)
            else:
                break
        self._unconfirmed = 0

    def _changed(self, *, connected: bool, detail: str) -> None:
        self.log.info("event plane {}", "connected" if connected else f"down: {detail}")
        if connected:
            self._connected.set()
        else:
            self._connected.clear()
        self.publish(EventPlaneState(connected=connected, detail=detail))

"""A connection to NATS that is kept for ever; each plane has one of its own."""

from __future__ import annotations

import asyncio
from typing import Final, Never, Protocol

import nats.errors
from loguru import logger
from nats.aio.client import Client

from openengine_sidecar.actors.config import NatsConfig

PING_INTERVAL: Final = 10
CONNECT_TIMEOUT: Final = 2
CLOSE_TIMEOUT: Final = 2
FLUSH_TIMEOUT: Final = 10
FAILURES: Final = (nats.errors.Error, OSError)  # TimeoutError is one of the latter


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


class NatsLink:
    """Connects once there is a server, and again whenever one was lost.

    Args:
        config: where the servers are.
        name: of the connection, for whoever looks at the server.
        plane: what it is for, in logs and errors.
        changed: hears whether it stands, until it is closed.
    """

    def __init__(self, config: NatsConfig, *, name: str, plane: str, changed: StateChanged) -> None:
        self.client = OrderlyClient()
        self._config = config
        self._name = name
        self._plane = f"{plane} at {', '.join(config.servers)}"
        self._changed = changed
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def connected(self) -> bool:
        """Whether the server would hear us now."""
        return bool(self.client.is_connected)

    async def connect(self) -> None:
        """Wait for a server, however long it takes."""
        config = self._config
        await self.client.connect(
            list(config.servers),
            name=self._name,
            user=config.user,
            password=config.password,
            connect_timeout=CONNECT_TIMEOUT,
            reconnect_time_wait=config.reconnect_wait,  # type: ignore[arg-type]  # floats work, the hint says int
            max_reconnect_attempts=-1,
            ping_interval=PING_INTERVAL,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
        )

    async def serve(self) -> Never:
        """Wait for the connection to end for good, which no reconnecting mends.

        Raises:
            ConnectionError: it did (a server that refuses our credentials, for one).
        """
        await asyncio.shield(self._lost)
        msg = f"the {self._plane} ended: {self.client.last_error}"
        raise ConnectionError(msg)

    async def close(self) -> None:
        """Close; no further change is told."""
        self._changed = _nobody
        try:
            await self.client.close()
        except FAILURES as error:
            logger.warning("{}: did not close in order: {}", self._plane, error)

    async def _on_error(self, error: Exception) -> None:
        logger.warning("{}: {}", self._plane, error or type(error).__name__)

    async def _on_disconnected(self) -> None:
        self._changed(connected=False, detail=f"no NATS server at {', '.join(self._config.servers)}")

    async def _on_reconnected(self) -> None:
        self._changed(connected=True, detail="")

    async def _on_closed(self) -> None:
        await self._on_disconnected()
        if not self._lost.done():
            self._lost.set_result(None)


def _nobody(*, connected: bool, detail: str) -> None:
    del connected, detail

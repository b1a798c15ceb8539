"""The reference engine as an object: start it, ask its counters, stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc.aio

from openengine_sidecar.launch.engine.core import Core, build_core
from openengine_sidecar.launch.engine.options import EngineOptions
from openengine_sidecar.launch.engine.service import build_server
from openengine_sidecar.launch.engine.stats import Stats
from openengine_sidecar.messages.errors import ConfigurationError

if TYPE_CHECKING:
    from openengine_sidecar.launch.engine.kv.zmq_source import ZmqSource

OPTION = "--port"


class ReferenceEngine:
    """A deterministic OpenEngine revision 2 server on the running loop. An engine simulator: no model, no GPU.

    Use it as an async context manager, or call `start` and `stop`. A scripted death ends the server as a crash
    would, on every connection at once, without ending the process.

    Attributes:
        core: what its calls share; tests read and steer it.
        died: set once it has died by script.
        tasks: its own work in the background, the start delay for one.
    """

    def __init__(self, options: EngineOptions | None = None, *, die: Callable[[], None] | None = None) -> None:
        self.options = options or EngineOptions()
        self.core: Core = build_core(self.options, die or self._die)
        self.died = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._port = 0
        self._zmq: list[ZmqSource] = []
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Host and port it listens on, as `host:port`."""
        return f"{self.options.host}:{self._port}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    @property
    def stats(self) -> Stats:
        """Its counters."""
        return self.core.stats

    async def start(self) -> None:
        """Listen; on return calls are answered.

        Raises:
            ConfigurationError: the port is taken.
        """
        await self.core.part.start()
        self._server = build_server(self.core, _channel_options(self.options))
        try:
            self._port = self._server.add_insecure_port(f"{self.options.host}:{self.options.port}")
        except RuntimeError as error:
            raise ConfigurationError(OPTION, f"cannot listen on port {self.options.port}: {error}") from error
        await self._server.start()
        if "zmq" in self.options.kv_events:
            self._start_zmq()
        if self.options.start_delay > 0:
            self.core.starting = True
            self._spawn(self._get_ready())

    async def stop(self, grace: float | None = None) -> None:
        """Close the port and end every stream, after `grace` seconds if given; idempotent."""
        await self._close(grace)
        for source in self._zmq:
            await source.stop()
        self._zmq.clear()
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _start_zmq(self) -> None:
        from openengine_sidecar.launch.engine.kv.zmq_source import ZmqSource  # noqa: PLC0415 - needs an extra

        self._zmq = [ZmqSource(self.core, feed) for feed in self.core.feeds.values()]
        self.core.zmq_sources = [source.start() for source in self._zmq]

    async def _get_ready(self) -> None:
        await asyncio.sleep(self.options.start_delay)
        self.core.starting = False

    async def _close(self, grace: float | None) -> None:
        self.core.stopping = True
        if self._server is not None:
            await self._server.stop(grace)
            await self.stats.until(lambda stats: stats.active == 0)
        await self.core.part.stop()

    def _die(self) -> None:
        self.died.set()
        self._spawn(self._close(None))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def _channel_options(options: EngineOptions) -> list[tuple[str, int]]:
    patience = options.ping_strikes_after
    chosen = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", options.max_message_bytes),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
    if patience is None:
        return [*chosen, ("grpc.http2.max_ping_strikes", 0)]
    return [
        *chosen,
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", int(patience * 1000)),
    ]

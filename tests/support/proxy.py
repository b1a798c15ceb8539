"""A TCP proxy that stands between two real programs and misbehaves when told to."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, Self

LOOPBACK: Final = "127.0.0.1"
_CHUNK: Final = 65_536


class Proxy:
    """Forwards bytes both ways, late or not at all.

    Attributes:
        delay: seconds that every piece waits before it is forwarded.
        port: where it listens; 0 before it was started.
    """

    def __init__(self, port: int, host: str = LOOPBACK) -> None:
        self.delay = 0.0
        self.port = 0
        self._target = (host, port)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def connections(self) -> int:
        """Connections that stand now."""
        return len(self._writers) // 2

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        self._flowing.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hold(self) -> None:
        """From now on nothing gets through; connections stand, and new ones are taken and left waiting."""
        self._flowing.clear()

    def release(self) -> None:
        """What was held goes on."""
        self._flowing.set()

    def cut(self) -> None:
        """Resets every connection that stands; new ones are welcome."""
        for writer in self._writers:
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._join(reader, writer)
        finally:
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            return
        pair = {writer, far_writer}
        self._writers |= pair
        try:
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        finally:
            self._writers -= pair
            far_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # reset, or gone before its end could be told
            while piece := await reader.read(_CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self._flowing.wait()
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
            return
        writer.transport.abort()

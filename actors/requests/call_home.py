"""The response plane: one TCP connection per request, worker to frontend, under back-pressure."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Callable
from typing import Self

from openengine_sidecar.messages.dynamo.control import CallHome, decode_signal, encode_handshake
from openengine_sidecar.messages.dynamo.two_part import FrameDecoder
from openengine_sidecar.messages.errors import WireError

MAX_CONTROL_FRAME = 64 * 1024
HIGH_WATER = 256 * 1024


class CallHomeConnection(asyncio.Protocol):
    """The call-home socket of one request.

    `on_gone` is called once, with the reason, when the frontend asks to stop or its end of the socket goes away
    before `finish`. After that, or after `abandon`, nothing more is written.
    """

    def __init__(self, on_gone: Callable[[str], None]) -> None:
        self._on_gone = on_gone
        self._decoder = FrameDecoder(MAX_CONTROL_FRAME)
        self._transport: asyncio.Transport
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.get_running_loop().create_future()
        self._open = True
        self._held_back = True
        self._left_at_once = True
        self._whole = True

    @classmethod
    async def dial(cls, address: CallHome, prologue: bytes, on_gone: Callable[[str], None], *, timeout: float) -> Self:
        """Connect, and say which request this is and whether it is served.

        Raises:
            OSError: nobody answers there, or the host is no host; TimeoutError is one.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, call = await loop.create_connection(lambda: cls(on_gone), address.host, address.port)
        except ValueError as error:  # a name that no resolver takes
            raise OSError(errno.EINVAL, f"{address.host!r} is no host: {error}") from error
        call.write(encode_handshake(address) + prologue)
        return call

    @property
    def open(self) -> bool:
        """Whether the frontend still listens."""
        return self._open

    def write(self, frames: bytes) -> None:
        """Queue frames; dropped once the frontend is gone (its request is over)."""
        if self._open:
            self._transport.write(frames)
            self._left_at_once = self._transport.get_write_buffer_size() == 0
        else:
            self._whole = False

    async def flush(self) -> None:
        """Wait while the frontend reads more slowly than we write."""
        if not self._writable.is_set():
            await self._writable.wait()

    def let_go(self) -> None:
        """Hold nobody back any more: what follows is little, and the last."""
        self._held_back = False
        self._writable.set()

    async def finish(self, *, timeout: float) -> bool:
        """Say no more, let what was written drain, wait for the frontend's FIN, close.

        Args:
            timeout: seconds without any progress after which the wait ends. What the kernel holds by then is still
                delivered; what it could not even take from us is lost.

        Returns:
            Whether everything that was written has left for the frontend, as far as this side can see.
        """
        self._open = False
        unsent = sys.maxsize
        while not await self._closed_within(timeout):
            left = self._transport.get_write_buffer_size()
            if left == 0:
                self._transport.close()
                return self._whole
            if left >= unsent:
                self._transport.abort()
                return False
            unsent = left
        return self._whole

    def abandon(self) -> None:
        """Drop the connection without another word."""
        self._open = False
        self._transport.abort()
        self.let_go()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and bound its buffer."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what create_connection makes
        transport.set_write_buffer_limits(high=HIGH_WATER)
        self._transport = transport

    def pause_writing(self) -> None:
        """Hold the stream back."""
        if self._held_back:
            self._writable.clear()

    def resume_writing(self) -> None:
        """Let the stream go on."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Read control frames: any of them means stop."""
        try:
            for frame in self._decoder.feed(data):
                self._gone(f"frontend said {decode_signal(frame).value}")
        except WireError as error:
            self._gone(f"frontend sent an unreadable control frame ({error})")

    def eof_received(self) -> None:
        """The frontend will say no more, nor listen; noticed here, also while there is still something to write."""
        self._gone("frontend closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone; before the end that means the client is, too."""
        self._whole = self._whole and (exc is None or self._left_at_once)
        self.let_go()
        if not self._closed.done():
            self._closed.set_result(None)
        self._gone(f"frontend closed the connection ({exc})" if exc is not None else "frontend closed the connection")

    async def _closed_within(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._closed)
        except TimeoutError:
            return False
        return True

    def _gone(self, reason: str) -> None:
        if self._open:
            self._open = False
            self._on_gone(reason)

"""The counters over loopback HTTP: `/stats`, `/requests`, and scripts that may be changed while the engine runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

import msgspec

from openengine_sidecar.launch.engine.core import Core
from openengine_sidecar.messages.errors import ConfigurationError

LOOPBACK = "127.0.0.1"
MAX_BODY = 1 << 20


class StatsWindow:
    """A small HTTP/1.1 server on loopback, one answer a connection.

    `GET /stats` (also `/`) answers with the counters and the records of requests, `GET /requests` with the last
    GenerateRequests as they arrived, `POST /health`, `POST /faults` and `POST /answers` take a new script as their
    body (the latter two one entry a line; an empty body takes all away).
    """

    def __init__(self, core: Core, port: int) -> None:
        self._core = core
        self._wanted = port
        self._server: asyncio.Server | None = None
        self._routes: dict[tuple[str, str], Callable[[str], object]] = {
            ("GET", "/"): lambda _: core.stats.as_dict(),
            ("GET", "/stats"): lambda _: core.stats.as_dict(),
            ("GET", "/requests"): lambda _: core.stats.received_as_dicts(),
            ("POST", "/health"): core.health.play,
            ("POST", "/faults"): lambda body: core.faults.play(body.splitlines()),
            ("POST", "/answers"): lambda body: core.answers.play(body.splitlines()),
        }

    async def start(self) -> str:
        """Listen, and return the URL of the counters.

        Raises:
            ConfigurationError: the port is taken.
        """
        try:
            self._server = await asyncio.start_server(self._serve, LOOPBACK, self._wanted)
        except OSError as error:
            option = "--stats"
            raise ConfigurationError(option, f"cannot listen on port {self._wanted}: {error}") from error
        port = self._server.sockets[0].getsockname()[1]
        return f"http://{LOOPBACK}:{port}/stats"

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status, body = await self._answer(reader)
            head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            self._core.stats.calls["window_broken"] += 1
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[HTTPStatus, bytes]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, *_ = [*head.split("\r\n", 1)[0].split(" "), "", ""]
        action = self._routes.get((method, path.partition("?")[0]))
        if action is None:
            return HTTPStatus.NOT_FOUND, b'{"error":"no such path"}'
        body = await reader.readexactly(_content_length(head))
        try:
            return HTTPStatus.OK, msgspec.json.encode(action(body.decode(errors="replace")))
        except ConfigurationError as error:
            return HTTPStatus.BAD_REQUEST, msgspec.json.encode({"error": str(error)})


def _content_length(head: str) -> int:
    for line in head.lower().split("\r\n"):
        name, _, value = line.partition(":")
        if name == "content-length" and value.strip().isdigit():
            return min(int(value), MAX_BODY)
    return 0

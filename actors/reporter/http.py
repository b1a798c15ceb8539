"""The system server: liveness, readiness, metrics and the actor tree over HTTP. Needs the extra `http`."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import msgspec
from aiohttp import web

from openengine_sidecar.actors.config import ReporterConfig
from openengine_sidecar.actors.reporter.extras import OPTION
from openengine_sidecar.messages.errors import ConfigurationError

METRICS_PATH = "/metrics"
ACTORS_PATH = "/actors"
TRACE_PATH = "/actors/trace"
LONGEST_BODY = 64 * 1024
SHUTDOWN_TIMEOUT = 1.0

Handler = Callable[[web.Request], Awaitable[web.Response]]


class TraceOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /actors/trace`: switch the message tracing of one actor."""

    path: str
    on: bool


class Pages(Protocol):
    """What the server shows; read afresh for every request, on the loop that owns it."""

    def health(self) -> tuple[bool, object]:
        """Return readiness, and the body of the answer."""
        ...

    def metrics(self) -> tuple[str, bytes]:
        """Return content type and exposition."""
        ...

    def actors(self) -> list[object]:
        """Return the actor tree, parents before their children."""
        ...

    def trace(self, path: str, *, on: bool) -> bool:
        """Switch the message tracing of one actor; False where nobody lives at that path."""
        ...


class SystemServer:
    """Serves the pages, and `more` of them, from `start` to `stop`."""

    def __init__(self, config: ReporterConfig, pages: Pages, more: Iterable[web.RouteDef] = ()) -> None:
        self._config = config
        self._more = tuple(more)
        self._pages = pages
        self._runner: web.AppRunner | None = None

    async def start(self) -> tuple[str, int]:
        """Listen, and return host and port; port 0 picks a free one.

        Raises:
            ConfigurationError: the address cannot be listened on.
        """
        host, port = self._config.host, self._config.port or 0
        self._runner = web.AppRunner(
            self._application(), access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_TIMEOUT
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self.stop()
            problem = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise ConfigurationError(OPTION, problem) from error
        address: tuple[Any, ...] = self._runner.addresses[0]
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """Stop listening and close what is open."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=LONGEST_BODY)
        application.add_routes(
            [
                web.get(self._config.live_path, self._live),
                web.get(self._config.health_path, self._health),
                web.get(METRICS_PATH, self._metrics),
                web.get(ACTORS_PATH, self._actors),
                web.post(TRACE_PATH, self._trace),
                *self._more,
            ]
        )
        return application

    async def _live(self, request: web.Request) -> web.Response:
        """Answer 200 for as long as the loop can answer at all, with the body of /health."""
        del request
        return json_response(self._pages.health()[1])

    async def _health(self, request: web.Request) -> web.Response:
        del request
        ready, body = self._pages.health()
        return json_response(body, status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        del request
        content_type, body = self._pages.metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _actors(self, request: web.Request) -> web.Response:
        del request
        return json_response(self._pages.actors())

    async def _trace(self, request: web.Request) -> web.Response:
        if not _from_here(request):
            return json_response({"error": "only processes on this host may switch tracing"}, status=403)
        if request.content_type != "application/json":
            return json_response({"error": "expected application/json"}, status=415)
        try:
            order = msgspec.json.decode(await request.read(), type=TraceOrder)
        except msgspec.DecodeError as error:
            return json_response({"error": f"expected {{path, on}}: {error}"}, status=400)
        if not self._pages.trace(order.path, on=order.on):
            return json_response({"error": f"no actor lives at {order.path}"}, status=404)
        return json_response(msgspec.to_builtins(order))


def _from_here(request: web.Request) -> bool:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    if not peer:
        return False
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def json_response(body: object, *, status: int = 200) -> web.Response:
    """Answer with a value as JSON."""
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

import aiohttp
import pytest

from openengine_sidecar.actors.config import ReporterConfig
from openengine_sidecar.actors.reporter import http
from openengine_sidecar.actors.reporter.extras import require_http
from openengine_sidecar.actors.reporter.http import LONGEST_BODY, SystemServer
from openengine_sidecar.messages.errors import ConfigurationError


class Pages:
    def __init__(self) -> None:
        self.ready = False
        self.traced: list[tuple[str, bool]] = []

    def health(self) -> tuple[bool, object]:
        return self.ready, {"status": "ready" if self.ready else "notready"}

    def metrics(self) -> tuple[str, bytes]:
        return "text/plain; version=0.0.4; charset=utf-8", b"up 1\n"

    def actors(self) -> list[object]:
        return [{"path": "/sidecar"}]

    def trace(self, path: str, *, on: bool) -> bool:
        self.traced.append((path, on))
        return path == "/sidecar"


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
async def client(pages: Pages) -> AsyncIterator[aiohttp.ClientSession]:
    server = SystemServer(ReporterConfig(port=0, health_path="/healthz", live_path="/livez"), pages)
    host, port = await server.start()
    async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
        yield session
    await server.stop()


async def test_liveness_is_200_whatever_the_health(client: aiohttp.ClientSession, pages: Pages) -> None:
    for ready in (False, True):
        pages.ready = ready
        async with client.get("/livez") as response:
            assert response.status == 200


async def test_readiness_is_the_status_code(client: aiohttp.ClientSession, pages: Pages) -> None:
    for ready, status, word in ((False, 503, "notready"), (True, 200, "ready")):
        pages.ready = ready
        async with client.get("/healthz") as response:
            assert (response.status, await response.json()) == (status, {"status": word})


async def test_metrics_have_their_content_type(client: aiohttp.ClientSession) -> None:
    async with client.get("/metrics") as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert await response.read() == b"up 1\n"


async def test_actors_are_json(client: aiohttp.ClientSession) -> None:
    async with client.get("/actors") as response:
        assert await response.json() == [{"path": "/sidecar"}]


async def test_tracing_is_switched_for_one_actor(client: aiohttp.ClientSession, pages: Pages) -> None:
    async with client.post("/actors/trace", json={"path": "/sidecar", "on": True}) as response:
        assert (response.status, await response.json()) == (200, {"path": "/sidecar", "on": True})
    assert pages.traced == [("/sidecar", True)]


async def test_tracing_of_nobody_is_404(client: aiohttp.ClientSession) -> None:
    async with client.post("/actors/trace", json={"path": "/nobody", "on": False}) as response:
        assert response.status == 404
        assert "/nobody" in (await response.json())["error"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"path": 1, "on": true}', b'{"path": "/x"}', b'{"path": "/x", "on": 1, "y": 2}']
)
async def test_a_bad_order_is_400_and_changes_nothing(client: aiohttp.ClientSession, pages: Pages, body: bytes) -> None:
    async with client.post("/actors/trace", data=body, headers={"Content-Type": "application/json"}) as response:
        assert response.status == 400
        assert "expected {path, on}" in (await response.json())["error"]
    assert pages.traced == []


async def test_a_form_of_a_web_page_switches_nothing(client: aiohttp.ClientSession, pages: Pages) -> None:
    async with client.post(
        "/actors/trace", data=b'{"path": "/sidecar", "on": true}', headers={"Content-Type": "text/plain"}
    ) as response:
        assert response.status == 415
    assert pages.traced == []


async def test_a_huge_order_is_refused(client: aiohttp.ClientSession, pages: Pages) -> None:
    headers = {"Content-Type": "application/json"}
    async with client.post("/actors/trace", data=b" " * (LONGEST_BODY + 1), headers=headers) as response:
        assert response.status == 413
    assert pages.traced == []


@pytest.mark.parametrize(
    ("peer", "here"),
    [
        (("127.0.0.1", 1), True),
        (("127.9.9.9", 1), True),
        (("::1", 1, 0, 0), True),
        (("::ffff:127.0.0.1", 1, 0, 0), True),
        (("192.0.2.1", 1), False),
        (("::ffff:192.0.2.1", 1, 0, 0), False),
        (("fe80::1%eth0", 1, 0, 0), False),
        (None, False),
    ],
)
async def test_only_this_host_may_switch_tracing(
    peer: tuple[object, ...] | None,
    here: bool,  # noqa: FBT001 - a case
    client: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = SimpleNamespace(transport=SimpleNamespace(get_extra_info=lambda _: peer))
    assert http._from_here(request) is here  # type: ignore[arg-type]  # all of a request that is looked at
    monkeypatch.setattr(http, "_from_here", lambda _: here)
    async with client.post("/actors/trace", json={"path": "/sidecar", "on": True}) as response:
        assert response.status == (200 if here else 403)


async def test_the_usual_methods_and_paths_only(client: aiohttp.ClientSession) -> None:
    for method, path, status in (("POST", "/healthz", 405), ("GET", "/actors/trace", 405), ("GET", "/health", 404)):
        async with client.request(method, path) as response:
            assert response.status == status


async def test_a_taken_port_is_a_configuration_error_that_names_it(pages: Pages) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"--system-port \(DYN_SYSTEM_PORT\): .*127\.0\.0\.1:{port}"):
            await SystemServer(ReporterConfig(port=port), pages).start()


async def test_the_default_is_loopback_and_nothing_listens_after_the_stop(pages: Pages) -> None:
    server = SystemServer(ReporterConfig(port=0), pages)
    host, port = await server.start()
    assert host == "127.0.0.1"
    await server.stop()
    await server.stop()
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize("name", ["aiohttp", "prometheus_client"])
def test_a_missing_extra_is_a_hint_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[[str], object] = require_http.__globals__["find_spec"]
    monkeypatch.setitem(require_http.__globals__, "find_spec", lambda wanted: None if wanted == name else real(wanted))
    with pytest.raises(ConfigurationError, match=rf"{name}: pip install 'openengine-sidecar\[http\]'"):
        require_http()


def test_with_the_extra_there_is_nothing_to_complain_about() -> None:
    require_http()
    assert "aiohttp" in sys.modules

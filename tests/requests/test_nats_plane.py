from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from openengine_sidecar.actors.config import NatsConfig
from openengine_sidecar.actors.requests.nats_plane import NatsPlane
from openengine_sidecar.actors.requests.protocol import Arrival
from tests.support.site import Site
from tests.support.waiting import eventually
from tests.support.wire import LOOPBACK, RawFrontend

SUBJECT = "ns_component.generate-abc"
INFO = {"server_id": "s", "version": "2.11.0", "headers": True, "max_payload": 1_048_576, "proto": 1}


class SlowServer:
    """A NATS server that answers a ping at once, and takes its time for whatever comes behind one."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self.held = asyncio.Event()
        self.go_on = asyncio.Event()
        self.address = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        host, port = server.sockets[0].getsockname()
        self.address = f"nats://{host}:{port}"
        async with server:
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"INFO {json.dumps(INFO)}\r\n".encode())
        pings = 0
        while line := (await reader.readline()).decode():
            if line.startswith("SUB"):
                self.known.append(line.split()[1])
            if line.startswith("PING"):
                pings += 1
                writer.write(b"PONG\r\n")
                if pings == 2 and not self.known:  # the first belongs to CONNECT
                    self.held.set()
                    await self.go_on.wait()
        writer.close()


@pytest.fixture
async def raw(site: Site) -> AsyncIterator[RawFrontend]:
    async with RawFrontend(site.planes.nats_url) as raw:
        yield raw


def plane(address: str, states: list[bool]) -> NatsPlane:
    def changed(*, connected: bool, detail: str) -> None:
        del detail
        states.append(connected)

    return NatsPlane(NatsConfig(servers=(address,), reconnect_wait=0.05), name="test", state_changed=changed)


def nothing(_: Arrival) -> bool:
    return True


async def test_f17_listening_returns_only_once_the_server_knows() -> None:
    server = SlowServer()
    async with server.serve():
        subject = plane(server.address, [])
        await subject.connect()
        listening = asyncio.create_task(subject.listen("generate", SUBJECT, nothing))
        await eventually(lambda: listening.done() or server.held.is_set(), "an answer to the ping")
        for _ in range(10):
            await asyncio.sleep(0)
        assert listening.done() == bool(server.known)
        server.go_on.set()
        await listening
        assert server.known == [SUBJECT]
        await subject.close()


async def test_f17_a_request_sent_as_soon_as_it_listens_is_heard(site: Site, raw: RawFrontend) -> None:
    for number in range(30):
        subject = plane(site.planes.nats_url, [])
        heard: list[Arrival] = []

        def take(arrival: Arrival, heard: list[Arrival] = heard) -> bool:
            heard.append(arrival)
            return False

        await subject.connect()
        await subject.listen("generate", f"{SUBJECT}-{number}", take)
        assert (await raw.send(f"{SUBJECT}-{number}", b"hello")).startswith(b"Server overloaded:")
        assert [arrival.payload for arrival in heard] == [b"hello"]
        await subject.close()


async def test_a_request_that_wants_no_answer_cannot_be_acknowledged(site: Site) -> None:
    subject = plane(site.planes.nats_url, [])
    await subject.connect()
    assert not await subject.acknowledge(Arrival("generate", b"", {}, ""), b"")
    await subject.close()
    assert not await subject.acknowledge(Arrival("generate", b"", {}, "inbox"), b"")


async def test_closing_what_never_was_connected_is_harmless() -> None:
    states: list[bool] = []
    subject = plane("nats://127.0.0.1:1", states)
    connecting = asyncio.create_task(subject.connect())
    await eventually(lambda: subject._link.client.last_error, "nobody answers")
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await subject.close()
    assert states == []


async def test_a_connection_that_ends_for_good_is_told(site: Site) -> None:
    states: list[bool] = []
    subject = plane(site.planes.nats_url, states)
    await subject.connect()
    serving = asyncio.create_task(subject.serve())
    await subject._link.client._process_err("'Authorization Violation'")
    with pytest.raises(ConnectionError, match="request plane"):
        await serving
    assert states
    assert not any(states)
    await subject.close()

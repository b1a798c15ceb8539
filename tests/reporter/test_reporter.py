from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Never

import aiohttp
import pytest
from loguru import logger
from prometheus_client.parser import text_string_to_metric_families

from openengine_sidecar.actors.config import ReporterConfig, WorkerIdentity
from openengine_sidecar.actors.reporter import extras
from openengine_sidecar.actors.reporter.actor import MAILBOX, Reporter
from openengine_sidecar.actors.reporter.families import Labels
from openengine_sidecar.messages.engine.control import HealthState
from openengine_sidecar.messages.errors import ConfigurationError
from openengine_sidecar.messages.facts import EngineHealth, Outcome, StreamEnded
from openengine_sidecar.supervision import Actor, ActorSystem, ChildSpec, Restart, Strategy, Supervisor
from tests.reporter.facts import CONNECTED, DOWN, EVERYTHING, NOT_SERVING, REGISTERED, UP, WITHDRAWN
from tests.support.waiting import eventually

IDENTITY = WorkerIdentity(instance_id=0xABC, endpoint="generate")
ON = ReporterConfig(port=0)


class Stream(Actor[Never]):
    pass


class Pool(Actor[int]):
    async def on_message(self, message: int) -> None:
        for number in range(message):
            await self.spawn(ChildSpec(name=f"stream-{number}", factory=Stream, restart=Restart.TEMPORARY))


class Running:
    def __init__(self, system: ActorSystem, reporters: list[Reporter]) -> None:
        self.system = system
        self.reporters = reporters

    def publish(self, *facts: object) -> None:
        for fact in facts:
            self.system.facts.publish(fact)

    @property
    def url(self) -> str:
        address = self.reporters[-1].address
        assert address is not None
        return f"http://{address[0]}:{address[1]}"

    async def get(self, path: str) -> tuple[int, object]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as response:
            return response.status, await response.json()

    async def metrics(self) -> dict[tuple[str, ...], float]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as response:
            families = text_string_to_metric_families(await response.text())
        samples = [sample for family in families for sample in family.samples]
        return {
            (sample.name, *(value for name, value in sample.labels.items() if name not in Labels.names)): sample.value
            for sample in samples
        }

    async def caught_up(self) -> None:
        def mail() -> bool:
            return not any(status.mailbox for status in self.system.snapshot())

        await eventually(mail, "an empty mailbox")
        await asyncio.sleep(0)


@asynccontextmanager
async def running(config: ReporterConfig) -> AsyncIterator[Running]:
    system = ActorSystem()
    reporters: list[Reporter] = []

    def make() -> Reporter:
        reporters.append(Reporter(config, IDENTITY, streams_under="/sidecar/gate"))
        return reporters[-1]

    children = (
        ChildSpec(name="reporter", factory=make, mailbox=MAILBOX),
        ChildSpec(name="gate", factory=Pool),
    )
    await system.start(
        ChildSpec(name="sidecar", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=children))
    )
    try:
        yield Running(system, reporters)
    finally:
        await system.stop()


@pytest.fixture
async def worker() -> AsyncIterator[Running]:
    async with running(ON) as worker:
        yield worker


async def test_f23_before_there_is_an_engine_it_is_alive_and_not_ready(worker: Running) -> None:
    status, body = await worker.get("/live")
    assert status == 200
    status, body = await worker.get("/health")
    assert status == 503
    assert isinstance(body, dict)
    assert body["status"] == "notready"
    assert body["endpoints"] == {"generate": "notready"}
    assert {name: check["state"] for name, check in body["checks"].items()} == {
        "runtime": "ready",
        "plane": "waiting",
        "discovery": "waiting",
        "engine": "notready",
    }
    assert set(body["uptime"]) == {"secs", "nanos"}


async def test_f23_once_the_engine_came_and_it_registered_it_is_ready(worker: Running) -> None:
    worker.publish(*EVERYTHING)
    await worker.caught_up()
    status, body = await worker.get("/health")
    assert status == 200
    assert isinstance(body, dict)
    assert (body["status"], body["endpoints"]) == ("ready", {"generate": "ready"})


@pytest.mark.parametrize("loss", [DOWN, NOT_SERVING])
async def test_f24_an_engine_that_is_away_costs_readiness_and_never_liveness(worker: Running, loss: object) -> None:
    worker.publish(*EVERYTHING, loss, WITHDRAWN, EngineHealth(state=HealthState.NOT_READY))
    await worker.caught_up()
    assert (await worker.get("/health"))[0] == 503
    assert (await worker.get("/live"))[0] == 200
    worker.publish(UP, REGISTERED)
    await worker.caught_up()
    assert (await worker.get("/health"))[0] == 200


async def test_readiness_can_be_told_to_ignore_the_engine() -> None:
    async with running(ReporterConfig(port=0, ignore_engine=True)) as worker:
        status, body = await worker.get("/health")
        assert status == 200
        assert isinstance(body, dict)
        assert body["endpoints"] == {"generate": "notready"}


async def test_a_drain_ends_readiness_while_the_server_still_answers(worker: Running) -> None:
    worker.publish(*EVERYTHING)
    await worker.caught_up()
    worker.system.ref("/sidecar/reporter").drain(worker.system.clock.monotonic() + 60, "SIGTERM")

    async def not_ready() -> bool:
        return (await worker.get("/health"))[0] == 503

    await eventually(not_ready, "the end of readiness")
    assert (await worker.get("/live"))[0] == 200


async def test_metrics_join_what_was_told_and_what_is_read(worker: Running) -> None:
    worker.system.ref("/sidecar/gate").tell(3)
    worker.publish(StreamEnded(request_id="r", outcome=Outcome.FINISHED, output_tokens=4, ttft=0.1, duration=0.4))
    await worker.caught_up()
    await eventually(lambda: len(worker.system.snapshot()) == 6, "three streams")
    values = await worker.metrics()
    assert values["dynamo_component_inflight_requests",] == 3
    assert values["dynamo_component_requests_total",] == 1
    assert values["openengine_sidecar_output_tokens_total",] == 4
    assert values["openengine_sidecar_supervision_total", "restarts"] == 0
    assert values["openengine_sidecar_supervision_total", "starts"] == 6
    assert values["openengine_sidecar_dead_letters_total", "unknown_message"] == 0
    assert values["openengine_sidecar_mailbox_depth", "/sidecar/gate"] == 0
    assert not [key for key in values if "stream-" in "".join(key)]


async def test_dead_letters_and_crashes_are_counted_by_kind(worker: Running) -> None:
    worker.system.ref("/sidecar/gate").tell("not a number")
    await worker.caught_up()
    values = await worker.metrics()
    assert values["openengine_sidecar_dead_letters_total", "unknown_message"] == 1


async def test_the_tree_is_shown_and_its_tracing_switched(worker: Running) -> None:
    status, body = await worker.get("/actors")
    assert status == 200
    assert isinstance(body, list)
    assert [(row["path"], row["state"], row["traced"]) for row in body] == [
        ("/sidecar", "running", False),
        ("/sidecar/reporter", "running", False),
        ("/sidecar/gate", "running", False),
    ]
    async with aiohttp.ClientSession(worker.url) as session:
        for path, status in (("/sidecar/gate", 200), ("/sidecar/nobody", 404)):
            async with session.post("/actors/trace", json={"path": path, "on": True}) as response:
                assert response.status == status
    assert [row.traced for row in worker.system.snapshot()] == [False, False, True]


async def test_without_a_port_nothing_listens_and_the_state_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    async with running(ReporterConfig()) as worker:
        worker.publish(*EVERYTHING, StreamEnded(request_id="r", outcome=Outcome.FINISHED))
        await worker.caught_up()
        assert worker.reporters[-1].address is None
        assert worker.reporters[-1].ready


async def test_a_port_without_the_extra_fails_the_start_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="pip install"):
        async with running(ON):
            pass


async def test_a_taken_port_fails_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = ReporterConfig(port=taken.getsockname()[1])
        with pytest.raises(ConfigurationError, match="cannot listen on"):
            await ActorSystem().start(ChildSpec(name="reporter", factory=lambda: Reporter(config, IDENTITY)))


async def test_a_restarted_reporter_knows_what_was_said_before(
    worker: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.publish(*EVERYTHING)
    await worker.caught_up()
    monkeypatch.setattr(worker.reporters[0]._book, "apply", lambda _: 1 // 0)
    worker.publish(CONNECTED)
    await eventually(lambda: len(worker.reporters) == 2 and worker.reporters[1].address, "the next life")
    await worker.caught_up()
    assert (await worker.get("/health"))[0] == 200
    assert (await worker.metrics())["openengine_sidecar_supervision_total", "restarts"] == 1


async def test_changes_of_readiness_are_logged_with_their_reasons(worker: Running) -> None:
    stream = io.StringIO()
    sink = logger.add(stream, format="{level} {message}")
    worker.publish(*EVERYTHING, DOWN, DOWN)
    await worker.caught_up()
    logger.remove(sink)
    said = stream.getvalue().splitlines()
    assert said == ["INFO ready", "WARNING not ready: engine: lost: connection refused"]


async def test_a_burst_of_ends_is_counted_whole(worker: Running) -> None:
    worker.publish(*(StreamEnded(request_id=str(number), outcome=Outcome.CANCELLED) for number in range(5000)))
    await worker.caught_up()
    assert (await worker.metrics())["dynamo_component_cancellation_total",] == 5000


async def test_nothing_listens_after_the_stop() -> None:
    async with running(ON) as worker:
        address = worker.reporters[-1].address
    assert address is not None
    with socket.create_server(address):
        pass

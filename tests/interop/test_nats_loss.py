from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from tests.conftest import LONG
from tests.interop.streams import PACE, begun
from tests.support.fixtures import showing_logs
from tests.support.openai import OpenAIClient
from tests.support.site import Lab, Site, Worker
from tests.support.waiting import eventually
from tests.support.wire import RawFrontend, request_body

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

BURST = 5_000 if LONG else 2_000
LIMIT = 16


@pytest.fixture
def private_lab(private_site: Site, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    directory = tmp_path / "lab"
    directory.mkdir()
    lab = Lab(private_site, directory)
    with showing_logs(request, lab.stack):
        yield lab
    lab.stack.kill()


async def test_nats_down_at_start_is_waited_for(private_lab: Lab, private_site: Site) -> None:
    worker = private_lab.worker(private_lab.engine(), "--nats-reconnect-wait-secs", "0.2")
    await eventually(lambda: str(private_site.nats_port) in worker.process.output(), "worker says what it waits for")
    assert await _status(worker, "/live") == 200
    assert await _status(worker, "/health") == 503
    assert private_lab.instances() == []
    private_site.start_nats()
    frontend = private_site.start_frontend()
    private_lab.await_listed(frontend, worker)
    async with private_lab.client(frontend) as client:
        assert (await client.chat("hello", max_tokens=4)).status == 200


async def test_f51_nats_lost_later_leaves_streams_alone_and_is_found_again(
    private_lab: Lab, private_site: Site
) -> None:
    nats = private_site.start_nats()
    frontend = private_site.start_frontend()
    _, worker = private_lab.serve(frontend, "--nats-reconnect-wait-secs", "0.2", engine_options=PACE)
    async with private_lab.client(frontend) as client:
        [(task, answer)] = await begun(client, 1, max_tokens=200, ignore_eos=True)
        nats.kill()
        private_site.stack.processes.remove(nats)
        await eventually(lambda: _is(worker, "/health", 503), "/health shows the loss")
        assert not task.done()
        await task
        assert (answer.finish_reason, answer.completion_tokens) == ("length", 200)
        assert (await worker.probe("/live"))[0] == 200
        private_site.start_nats()
        await eventually(lambda: _is(worker, "/health", 200), "/health is ready again")
        await eventually(lambda: _answers(client), "requests are answered again")
    assert worker.process.exit_code is None


async def test_f53_a_burst_is_answered_to_the_last_request(lab: Lab, frontend: OpenAIEndpoint) -> None:
    options = ("--engine-request-limit", str(LIMIT))
    _, worker = lab.serve(frontend, *options, engine_options=("--fault", "silent:600"))
    subject = lab.site.store.records("instances", lab.namespace)[0]["transport"]["nats_tcp"]
    async with RawFrontend(lab.site.planes.nats_url) as raw:
        asked = (raw.ask(subject, request_body([72, 105])) for _ in range(BURST))
        replies = [acknowledgement for acknowledgement, _ in await asyncio.gather(*asked)]
        accepted = replies.count(b"")
        refused = [reply for reply in replies if reply.startswith(b"Server overloaded:")]
        assert (accepted, len(refused)) == (LIMIT, BURST - LIMIT)
        await eventually(lambda: _counts(worker, len(refused)), "every refusal is counted")
        assert (await worker.probe("/live"))[0] == 200


async def _status(worker: Worker, path: str) -> int:
    return (await worker.probe(path))[0]


async def _counts(worker: Worker, refused: int) -> bool:
    return await worker.metric("dynamo_rejection_request_total") == refused


async def _is(worker: Worker, path: str, expected: int) -> bool:
    return await _status(worker, path) == expected


async def _answers(client: OpenAIClient) -> bool:
    return (await client.chat("hello", max_tokens=4)).status == 200

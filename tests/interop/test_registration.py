from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from tests.conftest import LONG
from tests.support.openai import Answer, OpenAIClient
from tests.support.site import Lab, Worker
from tests.support.waiting import eventually
from tests.support.wire import RawFrontend, request_body

pytestmark = pytest.mark.interop

STARTS = 200 if LONG else 5


async def test_model_is_listed_while_the_worker_runs_and_gone_afterwards(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    _, worker = lab.serve(frontend)
    assert lab.model in await client.models()
    assert len(lab.cards()) == len(lab.instances()) == 1
    worker.terminate()
    assert await worker.ended() == 0
    assert (lab.cards(), lab.instances()) == ([], [])
    assert lab.model not in await client.models()
    assert (await client.chat("hello")).status == 404


@pytest.mark.timeout(120 + 6 * STARTS)
async def test_f17_no_request_fails_once_the_model_shows(lab: Lab, client: OpenAIClient) -> None:
    engine = lab.engine()
    for number in range(STARTS):
        worker = lab.worker(engine, "--grace-period-secs", "0", name=f"worker-{number}")
        assert await _first_answer(client, worker) == 200
        worker.terminate()
        assert await worker.ended() == 0


async def _first_answer(client: OpenAIClient, worker: Worker) -> int:
    """Asks without pause until the model is known, and returns the first status that is not `unknown model`."""
    while True:
        answer: Answer = await client.chat("hello", max_tokens=1)
        worker.process.check()
        if answer.status != 404:
            return answer.status


@pytest.mark.timeout(120 + 6 * STARTS)
async def test_f17_the_instance_answers_when_its_card_shows(lab: Lab) -> None:
    engine = lab.engine()
    async with RawFrontend(lab.site.planes.nats_url) as raw:
        for number in range(STARTS):
            worker = lab.worker(engine, "--grace-period-secs", "0", name=f"worker-{number}")
            await eventually(partial(_shown, lab, worker), "card shows")
            record = lab.site.store.records("instances", lab.namespace)[0]
            acknowledgement, _ = await raw.ask(record["transport"]["nats_tcp"], request_body([72, 105], max_tokens=1))
            assert acknowledgement == b""
            worker.terminate()
            assert await worker.ended() == 0


def _files(lab: Lab, expected: int) -> list[Path]:
    store = lab.site.planes.store
    files = [path for path in store.rglob("*") if lab.namespace in unquote(path.name) and path.name[0] != "."]
    return files if len(files) == expected else []


def _touched_since(file: Path, moment: int) -> bool:
    return file.stat().st_mtime_ns > moment


def _shown(lab: Lab, worker: Worker) -> bool:
    worker.process.check()
    return bool(lab.cards())


async def test_f16_a_killed_worker_ages_out_and_leaves_its_successor_alone(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    engine, worker = lab.serve(frontend)
    before = lab.instances()
    worker.process.kill()
    successor = lab.worker(engine, name="successor")
    await eventually(lambda: len(set(lab.instances()) - set(before)) == 1, "successor registers")
    await eventually(lambda: not set(lab.instances()) & set(before), "killed worker's record ages out")
    lab.await_listed(frontend, successor)
    assert (await client.chat("hello", max_tokens=4)).status == 200
    assert successor.process.exit_code is None


async def test_f16_a_paused_worker_comes_back_by_itself(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    _, worker = lab.serve(frontend)
    before = lab.instances()
    worker.signal(signal.SIGSTOP)
    await eventually(lambda: not lab.instances(), "records of the paused worker age out")
    worker.signal(signal.SIGCONT)
    await eventually(lambda: lab.instances() == before, "records are written again")
    lab.await_listed(frontend, worker)
    assert (await client.chat("hello", max_tokens=4)).status == 200


async def test_records_keep_their_sign_of_life(lab: Lab, frontend: OpenAIEndpoint) -> None:
    lab.serve(frontend, "--file-kv-heartbeat-secs", "0.5", engine_options=("--kv-events", "grpc"))
    # Card and instance; channels of load and KV events, the source of the latter, and who answers for it.
    for file in await eventually(lambda: _files(lab, 6), "six records"):
        first = file.stat().st_mtime_ns
        await eventually(partial(_touched_since, file, first), f"{file.name} is touched")


async def test_two_workers_share_the_work(lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient) -> None:
    engines = [lab.engine(name="engine-1"), lab.engine(name="engine-2")]
    for number, engine in enumerate(engines, 1):
        lab.await_listed(frontend, lab.worker(engine, name=f"worker-{number}"))

    async def both_served() -> bool:
        await asyncio.gather(*(client.chat("hello", max_tokens=1) for _ in range(4)))
        return all([await engine.count("requests") for engine in engines])

    await eventually(both_served, "both engines served")

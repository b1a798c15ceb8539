from __future__ import annotations

import asyncio

import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from openengine_sidecar.launch.stack.ports import free_port
from tests.interop.streams import FOREVER, PACE, begun
from tests.support.openai import OpenAIClient
from tests.support.site import Engine, Lab, Worker
from tests.support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90)]

QUICK_HEALTH = ("--health-interval-secs", "0.3", "--health-timeout-secs", "1", "--health-misses", "2")
QUICK_RETRY = ("--grpc-retry-interval-secs", "0.3")


async def test_an_engine_that_never_comes_ends_the_worker(lab: Lab) -> None:
    address = f"127.0.0.1:{free_port()}"
    worker = lab.worker(address, "--grpc-startup-deadline-secs", "3", "--grpc-retry-interval-secs", "1")
    assert await worker.ended() == 1
    lines = worker.process.output().splitlines()
    assert any(address in line and "3 s" in line for line in lines[-3:]), worker.process.tail()
    waits = [line for line in lines if "WARNING" in line and address in line]
    assert 2 <= len(waits) <= 4, worker.process.tail(40)
    assert lab.instances() == []


async def test_an_engine_that_comes_late_is_served(lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient) -> None:
    port = free_port()
    worker = lab.worker(f"127.0.0.1:{port}", *QUICK_RETRY)
    await eventually(lambda: str(port) in worker.process.output(), "worker says what it waits for")
    lab.engine(port=port)
    lab.await_listed(frontend, worker)
    assert (await client.chat("hello", max_tokens=4)).status == 200


async def test_f23_alive_while_the_engine_is_not_there(lab: Lab, frontend: OpenAIEndpoint) -> None:
    port = free_port()
    worker = lab.worker(f"127.0.0.1:{port}", *QUICK_RETRY)
    await eventually(lambda: _status(worker, "/live", 200), "/live answers")
    for _ in range(20):
        assert (await worker.probe("/live"))[0] == 200
        assert (await worker.probe("/health"))[0] == 503
    lab.engine(port=port)
    lab.await_listed(frontend, worker)
    await eventually(lambda: _status(worker, "/health", 200), "/health is ready")


async def test_f23_health_may_ignore_the_engine(lab: Lab) -> None:
    worker = lab.worker(f"127.0.0.1:{free_port()}", "--health-ignores-engine", *QUICK_RETRY)
    await eventually(lambda: _status(worker, "/health", 200), "/health is ready without an engine")


@pytest.mark.parametrize("script", ["not_ready", "overloaded", "draining"])
async def test_f24_an_engine_that_is_not_ready_takes_readiness_only(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient, script: str
) -> None:
    engine, worker = lab.serve(frontend, *QUICK_HEALTH, engine_options=PACE)
    [(task, answer)] = await begun(client, 1, max_tokens=150, ignore_eos=True)
    await engine.play("health", script)
    await eventually(lambda: _status(worker, "/health", 503), "/health is not ready")
    await eventually(lambda: not lab.instances() and not lab.cards(), "records withdrawn")
    assert (await worker.probe("/live"))[0] == 200
    await task
    assert (answer.finish_reason, answer.completion_tokens) == ("length", 150)
    await engine.play("health", "ready")
    lab.await_listed(frontend, worker)
    assert await _status(worker, "/health", 200)
    assert (await client.chat("hello", max_tokens=4)).status == 200


async def test_f20_an_idle_worker_withdraws_and_comes_back_with_the_engine(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    engine, worker = lab.serve(frontend, *QUICK_HEALTH, *QUICK_RETRY)
    engine.process.kill()
    await eventually(lambda: not lab.instances() and not lab.cards(), "records withdrawn")
    assert (await worker.probe("/live"))[0] == 200
    assert (await worker.probe("/health"))[0] == 503
    lab.engine(name="engine-again", port=engine.port)
    lab.await_listed(frontend, worker)
    assert (await client.chat("hello", max_tokens=4)).status == 200


async def test_f20_streams_of_a_dead_engine_end_with_503_and_the_worker_returns(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    engine, worker = lab.serve(frontend, *QUICK_HEALTH, *QUICK_RETRY, engine_options=PACE)
    unary = asyncio.create_task(client.chat("hello", **FOREVER))
    streams = await begun(client, 5, **FOREVER)
    engine.process.kill()
    answers = await asyncio.gather(*(task for task, _ in streams))
    assert [answer.status for answer in answers] == [503] * 5
    assert all(answer.error and answer.done for answer in answers)
    assert (await unary).status == 503
    await eventually(lambda: not lab.instances(), "records withdrawn")
    await eventually(lambda: _drained(worker), "nothing is in flight")
    lab.engine(*PACE, name="engine-again", port=engine.port)
    lab.await_listed(frontend, worker)
    assert (await client.chat("hello", max_tokens=4)).status == 200
    assert worker.process.exit_code is None


async def test_a_frontend_that_migrates_completes_the_stream_elsewhere(
    lab: Lab, migrating_frontend: OpenAIEndpoint
) -> None:
    engines = [lab.engine(*PACE, name=f"engine-{number}") for number in (1, 2)]
    workers = [
        lab.worker(engine, *QUICK_HEALTH, *QUICK_RETRY, name=f"worker-{number}")
        for number, engine in enumerate(engines, 1)
    ]
    for worker in workers:
        lab.await_listed(migrating_frontend, worker)
    prompt = "a prompt that takes a while to echo"
    async with lab.client(migrating_frontend) as client:
        await eventually(lambda: _both_serve(client, engines), "both workers serve")
        [(task, _)] = await begun(client, 1, prompt=prompt, max_tokens=200)
        busy = [engine for engine in engines if await engine.count("active")]
        assert len(busy) == 1
        busy[0].process.kill()
        answer = await task
    assert (answer.status, answer.finish_reason, answer.text) == (200, "stop", f'You said: "{prompt}".')


async def test_f50_a_silent_stream_survives_and_brings_its_tokens(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    # gRPC servers close connections that ping without data more often than every 5 minutes; here it is 2 s.
    _, worker = lab.serve(frontend, engine_options=("--fault", "silent:5@1", "--ping-strikes-after", "2"))
    answer = await client.stream_chat("hello", max_tokens=4)
    assert (answer.status, answer.finish_reason) == (200, "length")
    assert "GOAWAY" not in worker.process.output()


async def _both_serve(client: OpenAIClient, engines: list[Engine]) -> bool:
    await asyncio.gather(*(client.chat("hello", max_tokens=1) for _ in range(4)))
    return all([await engine.count("requests") for engine in engines])


async def _drained(worker: Worker) -> bool:
    return await worker.metric("dynamo_component_inflight_requests") == 0


async def _status(worker: Worker, path: str, expected: int) -> bool:
    return (await worker.probe(path))[0] == expected


async def test_an_engine_that_quickly_comes_back_under_another_name_is_listed_by_it(
    lab: Lab, frontend: OpenAIEndpoint
) -> None:
    engine, _ = lab.serve(frontend, "--health-misses", "30")
    engine.process.kill()
    renamed = lab.model = f"{lab.model}-renamed"
    lab.engine(name="again", port=engine.port)
    async with lab.client(frontend) as client:
        await eventually(client.lists, "the new name is listed")
        assert (await client.chat("hello", max_tokens=4)).status == 200
        assert await client.models() == [renamed]

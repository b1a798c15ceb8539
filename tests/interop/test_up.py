from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from openengine_sidecar.launch.stack.ports import free_port
from tests.support.openai import OpenAIClient
from tests.support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90)]

ROOT = Path(__file__).resolve().parents[2]
UP = (sys.executable, "-m", "openengine_sidecar", "up")
ANSWER = 'You said: "hello".'


@asynccontextmanager
async def running(*command: str, **environment: str) -> AsyncGenerator[Process]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=PIPE, env={**os.environ, **environment}, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()


async def serving(process: Process, port: int) -> list[psutil.Process]:
    """Waits until the stack lists a model and returns the processes below it."""
    endpoint = OpenAIEndpoint("127.0.0.1", port)

    def listed() -> bool:
        assert process.returncode is None
        return bool(endpoint.models())

    await eventually(listed, "model listed", timeout=60)
    return psutil.Process(process.pid).children(recursive=True)


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize("left_by_an_earlier_run", ["", "listening on 127.0.0.1:1\n"], ids=["fresh", "used"])
async def test_once_prints_the_answer_and_leaves_nothing(tmp_path: Path, left_by_an_earlier_run: str) -> None:
    (tmp_path / "engine.log").write_text(left_by_an_earlier_run)
    options = ("--once", "hello", "--port", str(free_port()), "--run-dir", str(tmp_path))
    async with running(*UP, *options) as process:
        out, err = await process.communicate()
    said = err.decode()
    assert process.returncode == 0, said
    assert out.decode() == f"{ANSWER}\n"
    assert "18 tokens, first after" in said
    assert "tokens/s" in said
    assert {"nats.log", "engine.log", "worker.log", "frontend.log"} <= names(tmp_path)
    stops = [line.split()[-1] for line in said.splitlines() if "stopping" in line]
    assert stops == ["frontend", "worker", "engine", "nats"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "SIGTERM"])
async def test_it_serves_until_told_to_stop(number: signal.Signals) -> None:
    port = free_port()
    async with running(*UP, "--port", str(port), "--workers", "2", "--token-delay-ms", "0") as process:
        children = await serving(process, port)
        assert len(children) == 6
        async with OpenAIClient(f"http://127.0.0.1:{port}", "reference") as client:
            assert (await client.chat("hello")).text == ANSWER
        assert process.stderr is not None
        await process.stderr.readuntil(b"until Ctrl-C")
        process.send_signal(number)
        _, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert alive(children) == []


async def test_nothing_outlives_it_even_when_it_is_killed() -> None:
    port = free_port()
    async with running(*UP, "--port", str(port)) as process:
        children = await serving(process, port)
        process.kill()
        await process.wait()
        await eventually(lambda: not alive(children), "children are gone")


async def test_a_part_that_dies_ends_it_with_the_log_of_that_part() -> None:
    port = free_port()
    async with running(*UP, "--port", str(port)) as process:
        children = await serving(process, port)
        broker = next(child for child in children if "nats-server" in child.name())
        broker.kill()
        _, err = await process.communicate()
    said = err.decode()
    assert process.returncode == 1
    assert "nats ended with exit code -9" in said
    assert "nats.log" in said
    assert alive(children) == []


async def test_the_example_serves_and_cleans_up(tmp_path: Path) -> None:
    port = free_port()
    ports = {"NATS_PORT": str(free_port()), "ENGINE_PORT": str(free_port())}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    bash = shutil.which("bash")
    assert bash is not None
    command = (bash, str(ROOT / "launch" / "examples" / "aggregated.sh"), "--port", str(port))
    async with running(*command, PATH=path, TMPDIR=str(tmp_path), **ports) as process:
        children = await serving(process, port)
        async with OpenAIClient(f"http://127.0.0.1:{port}", "reference") as client:
            assert (await client.chat("hello")).text == ANSWER
        process.terminate()
        await process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert alive(children) == []
    assert not any(name.startswith("tmp.") for name in names(tmp_path))  # mktemp's; the frontend leaves a file behind

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import grpc
import pytest
from click.testing import CliRunner

from openengine_sidecar.launch.engine import EngineOptions, ReferenceEngine
from openengine_sidecar.launch.engine.command import engine as command
from openengine_sidecar.launch.engine.faults import FAULTS
from openengine_sidecar.launch.engine.features import FEATURES
from openengine_sidecar.launch.engine.process import DIED
from openengine_sidecar.messages.errors import ConfigurationError
from tests.engine.caller import Caller, ask

COMMAND = (sys.executable, "-m", "openengine_sidecar.launch.engine")


@contextmanager
def process(*options: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    with subprocess.Popen((*COMMAND, *options), stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        said: list[str] = []
        try:
            for line in engine.stdout:
                said.append(line.rstrip())
                if found := re.fullmatch(r"listening on (\S+:\d+)", said[-1]):
                    yield engine, found[1], said
                    break
        finally:
            engine.kill()


async def test_it_says_what_it_is_serves_and_ends_on_a_signal() -> None:
    with process("--stats", "0") as (engine, address, said):
        assert "SIMULATOR" in said[0]
        async with Caller(address) as caller:
            assert (await caller.generate(ask())).text() == 'You said: "hello".'
        [url] = [line.removeprefix("stats on ") for line in said if line.startswith("stats on ")]
        async with aiohttp.ClientSession() as session, session.get(url) as reply:
            assert (await reply.json())["requests"] == 1
        engine.send_signal(signal.SIGTERM)
        assert engine.wait(10) == 0


async def test_an_interrupt_ends_it_with_streams_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    with process("--stats", str(path), "--fault", "silent") as (engine, address, _):
        async with Caller(address) as caller:
            call = caller.start(ask())
            while json.loads(path.read_text())["active"] == 0:
                assert engine.poll() is None
                await asyncio.sleep(0.01)
            engine.send_signal(signal.SIGINT)
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert engine.wait(10) == 0
    assert json.loads(path.read_text())["records"][0]["ended"] == "stopped"


async def test_a_scripted_death_is_a_death() -> None:
    with process("--fault", "die:3") as (engine, address, _):
        async with Caller(address) as caller:
            answer = await caller.generate(ask())
        assert engine.wait(10) == DIED
    assert (answer.text(), answer.status) == ("You", grpc.StatusCode.UNAVAILABLE)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--fault", "nonsense"), "nonsense"),
        (("--port", "99999"), "99999"),
    ],
)
def test_bad_usage_is_one_line_and_status_two(options: tuple[str, ...], problem: str) -> None:
    ended = subprocess.run((*COMMAND, *options), capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert problem in ended.stderr.strip().splitlines()[-1]
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (EngineOptions(health="nonsense"), "--health: .*nonsense"),
        (EngineOptions(without=frozenset({"nonsense"})), "--without: .*nonsense"),
        (EngineOptions(faults=("nonsense",)), "--fault: .*nonsense"),
        (EngineOptions(model_path=Path("/")), "tokenizer.json"),
    ],
)
def test_unusable_options_are_named(options: EngineOptions, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        ReferenceEngine(options)


def test_every_flag_reaches_the_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[tuple[EngineOptions, str | None]] = []

    def run(options: EngineOptions, stats: str | None) -> int:
        seen.append((options, stats))
        return 0

    monkeypatch.setattr("openengine_sidecar.launch.engine.process.run", run)
    flags = {
        "--host": "::1",
        "--port": "7",
        "--model-path": str(tmp_path),
        "--served-model-name": "m",
        "--alias": "a",
        "--token-delay-ms": "20",
        "--tokens-per-event": "3",
        "--seed": "5",
        "--max-context-length": "100",
        "--max-output-tokens": "50",
        "--max-num-sequences": "6",
        "--max-top-n": "4",
        "--kv-block-size": "8",
        "--total-kv-blocks": "9",
        "--max-running-requests": "2",
        "--data-parallel-size": "2",
        "--data-parallel-start-rank": "1",
        "--without": "priority",
        "--reasoning-parser": "r",
        "--tool-call-parser": "t",
        "--schema-release": "v0.1.0",
        "--schema-revision": "4",
        "--minimum-client-revision": "3",
        "--start-delay": "0.5",
        "--health": "degraded",
        "--fault": "refuse",
        "--answer": "GetLoad={}",
        "--ping-strikes-after": "3",
        "--keep-requests": "1",
        "--stats": "0",
    }
    arguments = [part for pair in flags.items() for part in pair] + ["--minimal", "--prompt-faults"]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    expected = EngineOptions(
        host="::1",
        port=7,
        model_path=tmp_path,
        served_model_name="m",
        aliases=("a",),
        token_delay=0.02,
        tokens_per_event=3,
        seed=5,
        max_context_length=100,
        max_output_tokens=50,
        max_num_sequences=6,
        max_top_n=4,
        kv_block_size=8,
        total_kv_blocks=9,
        max_running_requests=2,
        data_parallel_size=2,
        data_parallel_start_rank=1,
        without=frozenset({"priority"}),
        reasoning_parser="r",
        tool_call_parser="t",
        schema_release="v0.1.0",
        schema_revision=4,
        minimum_client_revision=3,
        start_delay=0.5,
        health="degraded",
        faults=("refuse",),
        answers=("GetLoad={}",),
        ping_strikes_after=3.0,
        keep_requests=1,
        minimal=True,
        prompt_faults=True,
    )
    assert seen == [(expected, "0")]


def test_faults_and_features_are_listed() -> None:
    listed = CliRunner().invoke(command, ["--list"])
    assert listed.exit_code == 0
    for name in (*FAULTS, *(feature.name for feature in FEATURES)):
        assert name in listed.output


def test_flags_have_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[EngineOptions] = []
    monkeypatch.setattr("openengine_sidecar.launch.engine.process.run", lambda options, _stats: seen.append(options))
    environment = {"REFERENCE_ENGINE_PORT": "9", "REFERENCE_ENGINE_FAULT": "refuse", "REFERENCE_ENGINE_MINIMAL": "1"}
    CliRunner(env=environment).invoke(command, [])
    assert (seen[0].port, seen[0].faults, seen[0].minimal) == (9, ("refuse",), True)

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from openengine_sidecar.launch.stack.errors import ProcessFailedError
from openengine_sidecar.launch.stack.process import Program
from openengine_sidecar.launch.stack.stack import Stack

SLEEP = "import time; time.sleep(60)"


def program(name: str, code: str = SLEEP) -> Program:
    return Program(name=name, argv=(sys.executable, "-c", code))


def test_stops_the_last_started_first(tmp_path: Path) -> None:
    said: list[str] = []
    with Stack(tmp_path, report=said.append) as stack:
        started = [stack.start(program(name)) for name in ("broker", "engine", "worker")]
    assert said == ["  stopping worker", "  stopping engine", "  stopping broker"]
    assert all(process.exit_code is not None for process in started)


def test_stops_also_when_the_body_failed(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    process = stack.start(program("only"))
    with pytest.raises(RuntimeError), stack:
        raise RuntimeError
    assert process.exit_code is not None


def test_watch_names_the_process_that_ended(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        stack.start(program("steady"))
        stack.start(program("fragile", "raise SystemExit('out of tokens')"))
        with pytest.raises(ProcessFailedError, match=r"(?s)fragile ended with exit code 1.*out of tokens"):
            stack.watch()


def test_an_interrupted_stop_kills_the_rest(tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        if line.endswith("first"):
            raise KeyboardInterrupt

    stack = Stack(tmp_path, report=interrupt)
    first, second = stack.start(program("first")), stack.start(program("second"))
    with pytest.raises(KeyboardInterrupt):
        stack.stop()
    assert first.exit_code is not None
    assert second.exit_code is not None


def test_starting_reports_begin_and_end(tmp_path: Path) -> None:
    said: list[str] = []
    with Stack(tmp_path, report=said.append).starting("broker"):
        assert said == ["  broker ..."]
    assert said[1].startswith("  broker ready after ")

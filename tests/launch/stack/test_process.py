from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from openengine_sidecar.launch.stack.errors import ProcessFailedError, ProgramMissingError
from openengine_sidecar.launch.stack.process import Process, Program
from tests.support.waiting import eventually

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
POLITE = "import time; print('up', flush=True); time.sleep(60)"
WITH_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
print('child', child.pid, flush=True)
time.sleep(60)
"""
PARENT = """
import sys, time
from pathlib import Path
from openengine_sidecar.launch.stack.process import Process, Program
program = Program(name='orphan', argv=(sys.executable, '-c', 'import time; time.sleep(60)'))
process = Process.start(program, Path(sys.argv[1]))
print(process.pid, flush=True)
time.sleep(60)
"""


def python(code: str, *, name: str = "child", stop_timeout: float = 10.0, **environment: str) -> Program:
    return Program(
        name=name, argv=(sys.executable, "-u", "-c", code), environment=environment, stop_timeout=stop_timeout
    )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path)
    yield starter
    for process in starter.started:
        process.kill()


class Starter:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[Process] = []

    def __call__(self, program: Program) -> Process:
        process = Process.start(program, self.directory)
        self.started.append(process)
        return process


def printed(process: Process, text: str) -> bool:
    return text in process.output()


def test_output_of_both_streams_is_logged(start: Starter) -> None:
    process = start(python("import sys; print('out'); print('err', file=sys.stderr)"))
    assert process.wait(10) == 0
    assert process.log.name == "child.log"
    assert sorted(process.output().split()) == ["err", "out"]


def test_environment_is_laid_over_ours(start: Starter) -> None:
    process = start(python("import os; print(os.environ['STACK_TEST'], 'PATH' in os.environ)", STACK_TEST="yes"))
    process.wait(10)
    assert process.output() == "yes True\n"


def test_until_returns_what_ready_returned(start: Starter) -> None:
    process = start(python(POLITE))
    assert process.until(lambda: "answer" if printed(process, "up") else None, what="line", timeout=10) == "answer"


def test_until_names_log_and_last_lines_when_the_process_ends(start: Starter) -> None:
    process = start(python("print('the last word'); raise SystemExit(3)"))
    with pytest.raises(ProcessFailedError) as failure:
        process.until(lambda: None, what="line", timeout=10)
    assert "exit code 3" in str(failure.value)
    assert "the last word" in str(failure.value)
    assert str(process.log) in str(failure.value)


def test_until_says_what_never_came(start: Starter) -> None:
    process = start(python(POLITE))
    with pytest.raises(ProcessFailedError, match="no miracle within 0 s"):
        process.until(lambda: None, what="miracle", timeout=0)


def test_stop_terminates(start: Starter) -> None:
    process = start(python(POLITE))
    process.until(lambda: printed(process, "up"), what="line", timeout=10)
    assert process.stop() == -signal.SIGTERM


def test_stop_kills_what_ignores_it(start: Starter) -> None:
    process = start(python(STUBBORN, stop_timeout=0.1))
    process.until(lambda: printed(process, "up"), what="line", timeout=10)
    assert process.stop() == -signal.SIGKILL


def test_stop_of_an_ended_process_returns_its_exit_code(start: Starter) -> None:
    process = start(python("raise SystemExit(7)"))
    process.wait(10)
    assert process.stop() == 7


async def test_kill_takes_the_whole_group(start: Starter) -> None:
    process = start(python(WITH_CHILD))
    process.until(lambda: printed(process, "child"), what="line", timeout=10)
    child = int(process.output().split()[1])
    process.kill()
    await eventually(lambda: gone(child), "grandchild is gone")


async def test_children_die_with_the_one_who_started_them(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    assert not gone(child)
    parent.kill()
    await parent.wait()
    await eventually(lambda: gone(child), "child is gone")


def test_missing_executable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProgramMissingError, match="no-such-program"):
        Process.start(Program(name="missing", argv=("no-such-program",)), tmp_path)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True

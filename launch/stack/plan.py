"""What `up` brings up, and in which order."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from openengine_sidecar.launch.stack import programs
from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from openengine_sidecar.launch.stack.ports import free_port, require_free
from openengine_sidecar.launch.stack.process import Process
from openengine_sidecar.launch.stack.stack import Stack

REFERENCE_MODEL: Final = "reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `up` was asked for.

    Attributes:
        endpoint: where the frontend shall listen.
        directory: logs, the discovery store and the frontend's home go here.
        engine: `host:port` of an engine that is there already, None for reference engines, one a worker.
        token_delay_ms: their pace.
    """

    endpoint: OpenAIEndpoint
    directory: Path
    model_path: Path
    workers: int
    engine: str | None
    token_delay_ms: float
    migration_limit: int


def bring_up(stack: Stack, plan: Plan) -> str:
    """Starts everything in order, and returns the name of the model once the frontend lists it.

    Raises:
        StackError: something is not installed, a port is taken, a process failed.
    """
    endpoint = plan.endpoint
    require_free(endpoint.host, endpoint.port, "choose another with --port")
    planes = programs.Planes(_start_nats(stack), _new(plan.directory, "store"))
    workers = [_start_worker(stack, plan, planes, suffix) for suffix in _suffixes(plan.workers)]
    _start_frontend(stack, plan, planes)
    return _await_model(stack, workers[-1], endpoint)


def _start_nats(stack: Stack) -> str:
    port = free_port()
    with stack.starting("nats"):
        return programs.await_nats(stack.start(programs.nats_program(port)), port)


def _suffixes(count: int) -> list[str]:
    return [""] if count == 1 else [f"-{number}" for number in range(1, count + 1)]


def _start_worker(stack: Stack, plan: Plan, planes: programs.Planes, suffix: str) -> Process:
    engine_address = plan.engine
    if engine_address is None:
        name = f"engine{suffix}"
        with stack.starting(name):
            options = ("--served-model-name", REFERENCE_MODEL, "--token-delay-ms", str(plan.token_delay_ms))
            program = programs.engine_program(plan.model_path, name=name, options=options)
            engine_address = programs.await_engine(stack.start(program))
    worker = programs.worker_program(planes, engine=engine_address, model_path=plan.model_path, name=f"worker{suffix}")
    return stack.start(worker)


def _start_frontend(stack: Stack, plan: Plan, planes: programs.Planes) -> None:
    endpoint, home = plan.endpoint, _new(plan.directory, "home")
    options = ("--migration-limit", str(plan.migration_limit))
    with stack.starting("frontend"):
        program = programs.frontend_program(planes, host=endpoint.host, port=endpoint.port, home=home, options=options)
        programs.await_frontend(stack.start(program), endpoint)


def _new(directory: Path, name: str) -> Path:
    """A directory that no earlier run has used."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=directory))


def _await_model(stack: Stack, worker: Process, endpoint: OpenAIEndpoint) -> str:
    def listed() -> str | None:
        stack.check()
        return next(iter(endpoint.models()), None)

    with stack.starting("model"):
        return worker.until(listed, what=f"model at {endpoint.url}/v1/models", timeout=programs.READY_SECONDS)

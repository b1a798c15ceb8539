"""`openengine-sidecar up`: the whole stack on this machine, one prompt sent through it, then left serving."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

import click

from openengine_sidecar.launch.stack import programs
from openengine_sidecar.launch.stack.errors import ChatError, StackError
from openengine_sidecar.launch.stack.openai import OpenAIEndpoint, Summary
from openengine_sidecar.launch.stack.ports import free_port, require_free
from openengine_sidecar.launch.stack.process import Process
from openengine_sidecar.launch.stack.stack import Stack

DEFAULT_PORT: Final = 8000
DEFAULT_PROMPT: Final = "Hello! What are you?"
BUNDLED_MODEL: Final = Path(__file__).resolve().parent.parent / "model"
REFERENCE_MODEL: Final = "reference"

_say = partial(click.echo, err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `up` was asked for."""

    endpoint: OpenAIEndpoint
    directory: Path
    model_path: Path
    workers: int
    engine: str | None
    token_delay_ms: float
    migration_limit: int


@click.command("up", short_help="Run NATS, an engine, a worker and the stock frontend together.")
@click.option("--once", "prompt_once", metavar="PROMPT", help="Send PROMPT, print the answer, stop everything, exit.")
@click.option("--prompt", default=DEFAULT_PROMPT, show_default=True, help="What to ask before serving on.")
@click.option("--host", default=programs.LOOPBACK, show_default=True, help="Address of the OpenAI endpoint.")
@click.option("--port", type=click.IntRange(1, 65535), default=DEFAULT_PORT, show_default=True, help="Its port.")
@click.option("--max-tokens", type=click.IntRange(1), default=64, show_default=True, help="Length limit of the answer.")
@click.option("--workers", type=click.IntRange(1, 16), default=1, show_default=True, help="Workers, each its engine.")
@click.option("--grpc-endpoint", "engine", metavar="HOST:PORT", help="Serve this engine instead of the reference one.")
@click.option(
    "--model-path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=BUNDLED_MODEL,
    help="Model directory (tokenizer, configuration, chat template).  [default: the bundled one]",
)
@click.option("--token-delay-ms", type=click.FloatRange(0), default=20.0, show_default=True, help="Engine's pace.")
@click.option("--migration-limit", type=click.IntRange(0), default=0, show_default=True, help="Of the frontend.")
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where logs go and stay.  [default: a temporary directory, kept only when something fails]",
)
def up(
    *,
    prompt_once: str | None,
    prompt: str,
    host: str,
    port: int,
    max_tokens: int,
    workers: int,
    engine: str | None,
    model_path: Path,
    token_delay_ms: float,
    migration_limit: int,
    run_dir: Path | None,
) -> None:
    """Run NATS, the reference engine, a worker and the stock Dynamo frontend on this machine.

    Sends one prompt to the OpenAI endpoint, prints the streamed answer and what it cost, and keeps serving until
    Ctrl-C. With --once it exits instead.
    """
    with _run_directory(run_dir) as directory, _terminable():
        plan = Plan(
            endpoint=OpenAIEndpoint(host, port),
            directory=directory,
            model_path=model_path.absolute(),
            workers=workers,
            engine=engine,
            token_delay_ms=token_delay_ms,
            migration_limit=migration_limit,
        )
        with Stack(directory, report=_say) as stack:
            model = bring_up(stack, plan)
            try:
                converse(plan.endpoint, model, prompt_once or prompt, max_tokens)
            except ChatError:
                stack.check()  # a part that died explains more than the answer that broke off
                raise
            if prompt_once is None:
                _serve(stack, plan.endpoint, model)


def bring_up(stack: Stack, plan: Plan) -> str:
    """Starts everything in order, and returns the name of the model once the frontend lists it.

    Raises:
        StackError: something is not installed, a port is taken, a process failed.
    """
    endpoint = plan.endpoint
    require_free(endpoint.host, endpoint.port, "choose another with --port")
    _say(f"Starting; logs in {plan.directory}")
    nats_port = free_port()
    with stack.starting("nats"):
        nats = stack.start(programs.nats_program(nats_port))
        nats_url = programs.await_nats(nats, nats_port)
    store, home = plan.directory / "store", plan.directory / "home"
    store.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    planes = programs.Planes(nats_url, store)
    for number in range(1, plan.workers + 1):
        suffix = "" if plan.workers == 1 else f"-{number}"
        _start_worker(stack, plan, planes, suffix)
    with stack.starting("frontend"):
        options = ("--migration-limit", str(plan.migration_limit))
        program = programs.frontend_program(planes, host=endpoint.host, port=endpoint.port, home=home, options=options)
        frontend = stack.start(program)
        programs.await_frontend(frontend, endpoint)
    return _await_model(stack, frontend, endpoint)


def converse(endpoint: OpenAIEndpoint, model: str, prompt: str, max_tokens: int) -> None:
    """Sends `prompt`, prints the answer on standard output as it comes, then a summary line.

    Raises:
        ChatError: the endpoint refused, or broke off.
    """
    _say(f"\n> {prompt}")
    summary = Summary()
    for piece in endpoint.chat(model, prompt, max_tokens=max_tokens, summary=summary):
        click.echo(piece, nl=False)
    click.echo()
    _say(f"\n{summary}")


def _start_worker(stack: Stack, plan: Plan, planes: programs.Planes, suffix: str) -> None:
    engine_address = plan.engine
    if engine_address is None:
        name = f"engine{suffix}"
        with stack.starting(name):
            options = ("--served-model-name", REFERENCE_MODEL, "--token-delay-ms", str(plan.token_delay_ms))
            program = programs.engine_program(plan.model_path, name=name, options=options)
            engine_address = programs.await_engine(stack.start(program))
    worker = programs.worker_program(planes, engine=engine_address, model_path=plan.model_path, name=f"worker{suffix}")
    stack.start(worker)


def _await_model(stack: Stack, frontend: Process, endpoint: OpenAIEndpoint) -> str:
    def listed() -> str | None:
        stack.check()
        return next(iter(endpoint.models()), None)

    with stack.starting("model"):
        return frontend.until(listed, what=f"model at {endpoint.url}/v1/models", timeout=programs.READY_SECONDS)


def _invite(endpoint: OpenAIEndpoint, model: str) -> None:
    body = f'{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Hi"}}]}}'
    _say(f"\nServing {model} at {endpoint.url}/v1 until Ctrl-C. Try:")
    _say(f"  curl -N {endpoint.url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'")


def _serve(stack: Stack, endpoint: OpenAIEndpoint, model: str) -> None:
    try:
        _invite(endpoint, model)
        stack.watch()
    except KeyboardInterrupt:
        _say("\nStopping")


@contextmanager
def _run_directory(chosen: Path | None) -> Generator[Path]:
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        directory = chosen.absolute()
    else:
        directory = Path(tempfile.mkdtemp(prefix="openengine-sidecar-"))
    try:
        yield directory
    except StackError as error:
        _say(f"\nError: {error}")
        sys.exit(1)
    if chosen is None:
        shutil.rmtree(directory)


@contextmanager
def _terminable() -> Generator[None]:
    """SIGTERM and SIGHUP end the run the way Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

"""`openengine-sidecar up`: the whole stack on this machine, one prompt sent through it, then left serving."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

import click

from openengine_sidecar.launch.stack import programs
from openengine_sidecar.launch.stack.errors import ChatError, StackError
from openengine_sidecar.launch.stack.openai import OpenAIEndpoint, Summary
from openengine_sidecar.launch.stack.plan import Plan, bring_up
from openengine_sidecar.launch.stack.stack import Stack

DEFAULT_PORT: Final = 8000
DEFAULT_PROMPT: Final = "Hello! What are you?"
BUNDLED_MODEL: Final = Path(__file__).resolve().parent.parent / "model"

_say = partial(click.echo, err=True)


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
            _say(f"Starting; logs in {directory}")
            model = bring_up(stack, plan)
            try:
                converse(plan.endpoint, model, prompt_once or prompt, max_tokens)
            except ChatError:
                stack.check()  # a part that died explains more than the answer that broke off
                raise
            if prompt_once is None:
                _serve(stack, plan.endpoint, model)


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

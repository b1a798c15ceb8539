"""The command line: `openengine-sidecar serve | engine | up | tree`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from openengine_sidecar import __version__
from openengine_sidecar.launch.grouping import LazyCommand, LazyGroup
from openengine_sidecar.messages.errors import ConfigurationError

PROGRAM = "openengine-sidecar"
USAGE_ERROR = 2
INTERRUPTED = 130
_PACKAGE = "openengine_sidecar.launch"
_COMMANDS = {
    "serve": LazyCommand(f"{_PACKAGE}.serve_command", "serve", "Run a worker for an engine that is, or will be, up."),
    "engine": LazyCommand(f"{_PACKAGE}.engine.command", "engine", "Run the reference engine, a simulator."),
    "up": LazyCommand(f"{_PACKAGE}.stack.command", "up", "Run NATS, engine, worker and frontend together."),
    "tree": LazyCommand(f"{_PACKAGE}.tree_command", "tree", "Show the actors of a running worker."),
}


def _no_command(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(USAGE_ERROR)


def _version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's signature
    del param
    if wanted:
        click.echo(f"{PROGRAM} {__version__}")
        ctx.exit()


cli = LazyGroup(
    PROGRAM,
    lazy=_COMMANDS,
    help="A Dynamo worker without a GPU, for any engine that serves the OpenEngine gRPC contract.",
    invoke_without_command=True,
    callback=click.pass_context(_no_command),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            help="Show the version and exit.",
            callback=_version,
        )
    ],
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, by default the process's own, and return its exit code.

    Bad usage and unusable settings print one line that names flag and variable, and return 2.
    """
    try:
        outcome = cli.main(arguments, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        return _complain(error.format_message(), getattr(error, "ctx", None), error.exit_code)
    except ConfigurationError as error:
        return _complain(str(error), None, USAGE_ERROR)
    except click.Abort:
        return INTERRUPTED
    return outcome if isinstance(outcome, int) else 0


def _complain(problem: str, ctx: click.Context | None, code: int) -> int:
    command = ctx.command_path if ctx else PROGRAM
    line = " ".join(problem.split())
    click.echo(f"{command}: {line} Help: {command} --help", err=True)
    return code


def main() -> NoReturn:
    """Run the process's command line and exit."""
    sys.exit(run())

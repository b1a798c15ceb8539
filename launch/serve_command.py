"""`openengine-sidecar serve`: the worker's command line."""

from __future__ import annotations

import click

from openengine_sidecar.launch import logs
from openengine_sidecar.launch.configuration import log_options, sidecar_config
from openengine_sidecar.launch.grouping import GroupedCommand
from openengine_sidecar.launch.options import SERVE_SETTINGS


@click.pass_context
def _serve(ctx: click.Context, /, **values: object) -> None:
    config = sidecar_config(values)
    logs.configure(log_options(values))
    from openengine_sidecar.launch.serve import run  # noqa: PLC0415 - help and bad usage answer without gRPC and NATS

    ctx.exit(run(config))


serve = GroupedCommand(
    "serve",
    help="Run a worker: register the engine's model with Dynamo and stream its answers.\n\n"
    "Every setting is a flag and an environment variable; a flag wins.",
    short_help="Run a worker.",
    callback=_serve,
    params=list(SERVE_SETTINGS),
)

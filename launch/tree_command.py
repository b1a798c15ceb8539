"""`openengine-sidecar tree`: the actors of a running worker, live."""

from __future__ import annotations

import http.client
import sys
import time
from contextlib import suppress

import click
import msgspec

from openengine_sidecar.launch import tree_view
from openengine_sidecar.launch.grouping import GroupedCommand
from openengine_sidecar.launch.options import kinds
from openengine_sidecar.launch.options.setting import Heading, Setting
from openengine_sidecar.launch.tree_screen import Show, screen
from openengine_sidecar.supervision import ActorStatus

TIMEOUT = 5.0
ACTORS_PATH = "/actors"
INTERVAL = 1.0
HERE = "127.0.0.1"
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised in order to be replaced

_WORKER = Heading("Worker")
_VIEW = Heading("View")

TREE_SETTINGS: tuple[Setting, ...] = (
    _WORKER.dynamo(
        "--system-port", "DYN_SYSTEM_PORT", kinds.PORT, "The worker's --system-port.", required=True, default_text=""
    ),
    _WORKER.dynamo(
        "--system-host", "DYN_SYSTEM_HOST", kinds.TEXT, "Where the worker runs.", default_text=HERE, default=HERE
    ),
    _VIEW.setting(("--once",), (), "Show the tree once and exit.", type=click.BOOL, is_flag=True),
    _VIEW.setting(
        ("--interval-secs",),
        (),
        "Pause between two pictures.",
        type=kinds.SECONDS,
        default_text=f"{INTERVAL:g}",
        default=INTERVAL,
    ),
)


class UnreachableError(click.ClickException):
    """No worker answered with a tree."""


def fetch(host: str, port: int) -> list[ActorStatus]:
    """Ask a worker for its actors.

    Raises:
        UnreachableError: it did not answer, or not with a tree.
    """
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    try:
        connection.request("GET", ACTORS_PATH)
        response = connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            problem = f"{host}:{port}{ACTORS_PATH} answered {response.status}."
            raise UnreachableError(problem)
        return msgspec.json.decode(body, type=list[ActorStatus])
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        problem = f"no worker shows its actors at {host}:{port}: {error}."
        raise UnreachableError(problem) from error
    finally:
        connection.close()


def _watch(show: Show, host: str, port: int, interval: float) -> None:
    rows = fetch(host, port)
    note = ""
    while True:
        show(tree_view.lines(rows), note)
        time.sleep(interval)
        try:
            rows, note = fetch(host, port), ""
        except UnreachableError as error:
            note = f"as it was: {error.message}"


def _tree(*, system_port: int | None, system_host: str, once: bool, interval_secs: float) -> None:
    if not system_port:
        problem = "the worker's system server is off; give the port it listens on."
        raise click.BadParameter(problem, param_hint="'--system-port' (env var: 'DYN_SYSTEM_PORT')")
    host = HERE if system_host in _EVERYWHERE else system_host
    with screen(sys.stdout, live=not once) as show, suppress(KeyboardInterrupt):
        if once:
            show(tree_view.lines(fetch(host, system_port)), "")
        else:
            _watch(show, host, system_port, interval_secs)


tree = GroupedCommand(
    "tree",
    help="Show the actors of a running worker: state, life, mail waiting and most ever, restarts, age, last failure.",
    short_help="Show the actors of a running worker.",
    callback=_tree,
    params=list(TREE_SETTINGS),
)

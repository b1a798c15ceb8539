"""The reference engine as a process: banner, addresses on standard output, signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from openengine_sidecar import __version__
from openengine_sidecar.launch.engine.options import EngineOptions
from openengine_sidecar.launch.engine.reference import ReferenceEngine
from openengine_sidecar.launch.engine.stats_file import StatsFile
from openengine_sidecar.launch.engine.window import StatsWindow

DIED = 70
BANNER = f"openengine-sidecar {__version__} reference engine: an engine SIMULATOR, no model and no GPU"


def run(options: EngineOptions, stats: str | None) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code.

    Args:
        options: the engine's.
        stats: where the counters go: a port (0 picks one), the path of a file, or None for nowhere.

    Raises:
        ConfigurationError: a port is taken, a file or the model directory is unusable.
    """
    return asyncio.run(_serve(options, stats))


async def _serve(options: EngineOptions, stats: str | None) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    engine = ReferenceEngine(options, die=_die)
    view = _view(engine, stats)
    say(BANNER)
    if isinstance(view, StatsWindow):
        say(f"stats on {await view.start()}")
    elif view is not None:
        view.start()
    try:
        await engine.start()
        say(f"listening on {engine.address}")
        await stopped.wait()
    finally:
        await engine.stop()
        if view is not None:
            await view.stop()
    return 0


def _view(engine: ReferenceEngine, stats: str | None) -> StatsWindow | StatsFile | None:
    if stats is None:
        return None
    if stats.isdigit():
        return StatsWindow(engine.core, int(stats))
    return StatsFile(engine.stats, Path(stats))


def _die() -> None:
    sys.stdout.flush()
    os._exit(DIED)


def say(line: str) -> None:
    """Print a line at once, however standard output is buffered."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()

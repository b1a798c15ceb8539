"""A worker to crash actors in: `python -m tests.chaos.worker --control-port N <options of serve>`."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import signal
import sys
from unittest.mock import patch

import click
import psutil
from loguru import logger

from openengine_sidecar.actors.sidecar import SERVING, Sidecar
from openengine_sidecar.launch import logs
from openengine_sidecar.launch.configuration import log_options, sidecar_config
from openengine_sidecar.launch.options import SERVE_SETTINGS
from openengine_sidecar.supervision import ActorGoneError, ActorState, ActorSystem, Backoff, RestartBudget
from openengine_sidecar.supervision.testing import crash_now

RESTARTS = RestartBudget(max_restarts=1_000_000, window=1.0)
GATE = f"{SERVING}/gate"
_PLACES = {
    "engine": f"{SERVING}/engine",
    "gate": GATE,
    "registrar": f"{SERVING}/registrar",
    "reporter": "/sidecar/reporter",
}


class Control:
    """One line of text in, one out: `crash VICTIM NUMBER`, `life PATH`, `streams` or `census`."""

    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._process = psutil.Process()

    async def serve(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._connected, "127.0.0.1", port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = self._answer((await reader.readline()).decode().split())
        writer.write(answer.encode() + b"\n")
        await writer.drain()
        writer.close()

    def _answer(self, asked: list[str]) -> str:
        match asked:
            case ["streams"]:
                return str(len(self._streams()))
            case ["census"]:
                return self._census()
            case ["life", path]:
                return str(self._life(path))
            case ["crash", victim, draw]:
                return self._crash(victim, int(draw))
            case _:
                return "?"

    def _life(self, path: str) -> int:
        """Which life an actor leads; 0 while it leads none."""
        lives = {actor.path: actor for actor in self._system.snapshot()}
        actor = lives.get(path)
        return actor.incarnation if actor is not None and actor.state is ActorState.RUNNING else 0

    def _crash(self, victim: str, draw: int) -> str:
        streams = self._streams()
        path = _PLACES.get(victim) or (streams[draw % len(streams)] if streams else "")
        life = self._life(path)
        try:
            crash_now(self._system, path)
        except ActorGoneError:
            return ""
        return f"{path} {life}"

    def _streams(self) -> list[str]:
        return [actor.path for actor in self._system.snapshot() if actor.path.startswith(f"{GATE}/")]

    def _census(self) -> str:
        process = self._process
        gc.collect()
        with process.oneshot():
            return json.dumps(
                {
                    "actors": len(self._system.snapshot()),
                    "tasks": len(asyncio.all_tasks()),
                    "threads": process.num_threads(),
                    "files": process.num_fds(),
                    "objects": len(gc.get_objects()),
                    "rss": process.memory_info().rss,
                }
            )


async def _run(sidecar_values: dict[str, object], port: int) -> int:
    sidecar = Sidecar(sidecar_config(sidecar_values), restarts=RESTARTS)
    drained: list[asyncio.Task[None]] = []

    def drain() -> None:
        drained.append(asyncio.create_task(sidecar.drain("SIGTERM")))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, drain)
    async with await Control(sidecar.system).serve(port):
        await sidecar.start()
        cause = await sidecar.terminated()
        await asyncio.gather(*drained)
    if not drained:
        logger.critical("the worker gave up: {}", cause)
    return 0 if drained else 1


@click.pass_context
def _serve(ctx: click.Context, /, control_port: int, most_backoff: float, **values: object) -> None:
    logs.configure(log_options(values))
    delay = Backoff.delay

    def capped(backoff: Backoff, attempt: int, rng: random.Random) -> float:
        return min(most_backoff, delay(backoff, attempt, rng))

    with patch.object(Backoff, "delay", capped):
        code = asyncio.run(_run(values, control_port))
    ctx.exit(code)


COMMAND = click.Command(
    "worker",
    callback=_serve,
    params=[
        click.Option(["--control-port"], type=int, required=True),
        click.Option(["--most-backoff"], type=float, required=True),
        *SERVE_SETTINGS,
    ],
)

if __name__ == "__main__":
    sys.exit(COMMAND.main())

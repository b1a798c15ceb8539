"""The real processes of a run, with a proxy wherever sockets are to suffer."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from openengine_sidecar.launch.stack import programs
from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from openengine_sidecar.launch.stack.ports import free_port
from openengine_sidecar.launch.stack.process import Process
from tests.chaos.clock import WallClock
from tests.support.openai import OpenAIClient
from tests.support.proxy import Proxy
from tests.support.site import MODEL, Site
from tests.support.waiting import eventually

ROOT: Final = Path(__file__).resolve().parents[2]
MODEL_NAME: Final = "chaos"
NAMESPACE: Final = "chaos"
START_SECONDS: Final = 60.0
TIME_TO_LIVE: Final = 10.0
STORE_BYTES: Final = 512 * 1024
QUICK_HEALTH: Final = ("--health-interval-secs", "0.3", "--health-timeout-secs", "1", "--health-misses", "2")
WORKER_OPTIONS: Final = (
    *("--grpc-retry-interval-secs", "0.2", "--nats-reconnect-wait-secs", "0.2", "--file-kv-heartbeat-secs", "0.5"),
    *("--grpc-startup-deadline-secs", "600", "--log-filter", "info"),
)


@dataclass(slots=True)
class Station:
    """One engine and the worker before it."""

    number: int
    engine: Process
    engine_port: int
    stats_port: int
    to_engine: Proxy
    to_nats: Proxy
    wall_clock: WallClock
    worker: Process
    control_port: int
    system_port: int

    async def stats(self) -> dict[str, Any]:
        """The engine's counters, of the life it leads now."""
        url = f"http://{programs.LOOPBACK}:{self.stats_port}/stats"
        async with aiohttp.ClientSession() as session, session.get(url) as reply:
            return dict(await reply.json())

    async def control(self, command: str) -> str:
        """Asks the worker's control socket."""
        reader, writer = await asyncio.open_connection(programs.LOOPBACK, self.control_port)
        writer.write(command.encode() + b"\n")
        answer = (await reader.readline()).decode().strip()
        writer.close()
        return answer

    async def streams(self) -> int:
        """How many streams the worker serves now."""
        return int(await self.control("streams"))

    async def census(self) -> dict[str, int]:
        """What the worker holds now, garbage apart."""
        return dict(json.loads(await self.control("census")))

    async def crash(self, victim: str, draw: int) -> tuple[str, int] | None:
        """Crashes an actor; returns its path and which life that was, None when nobody lives there now."""
        path, _, life = (await self.control(f"crash {victim} {draw}")).partition(" ")
        return (path, int(life)) if path else None

    async def life(self, path: str) -> int:
        """Which life an actor leads; 0 while it leads none."""
        return int(await self.control(f"life {path}"))

    async def healthy(self) -> bool:
        """Whether the worker calls itself ready."""
        url = f"http://{programs.LOOPBACK}:{self.system_port}/health"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as reply:
                return reply.status == 200
        except aiohttp.ClientError:
            return False


class Arena:
    """NATS, a store, a frontend that migrates, and stations."""

    def __init__(
        self,
        directory: Path,
        *,
        token_delay_ms: float = 5.0,
        health: tuple[str, ...] = QUICK_HEALTH,
        most_backoff: float = 10.0,
        settable_clocks: bool = False,
    ) -> None:
        self.site = Site(directory)
        self.stations: list[Station] = []
        self.bounded_store = False
        self.settable_clocks = settable_clocks and WallClock(directory / "clock").obeys()
        self.frontend = OpenAIEndpoint(programs.LOOPBACK, 0)
        self.nats: Process | None = None
        self._pace = str(token_delay_ms)
        self._health = health
        self._most_backoff = str(most_backoff)
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.bounded_store = _mount(self.site.planes.store)
        if self.bounded_store:
            self._exits.callback(_unmount, self.site.planes.store)
        self._exits.enter_context(self.site.stack)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exits.aclose()

    async def bring_up(self, stations: int) -> None:
        """Starts everything; returns when the frontend lists the model and every worker is registered."""
        self.nats = self.site.start_nats()
        self.frontend = self.site.start_frontend("--migration-limit", "2")
        for number in range(stations):
            self.stations.append(await self._station(number))
        async with self.client() as client:
            await eventually(client.lists, "listed model", timeout=START_SECONDS)
        await eventually(self.registered, "every worker registered", timeout=START_SECONDS)

    def client(self) -> OpenAIClient:
        """A client of the frontend."""
        return OpenAIClient(self.frontend.url, MODEL_NAME)

    def registered(self) -> bool:
        """Whether the store holds exactly one living instance and one living card of each worker."""
        oldest = time.time() - TIME_TO_LIVE  # noqa: TID251 - the clock that stamps files here
        return all(_living(bucket, oldest) == len(self.stations) for bucket in self._buckets())

    async def start_engine(self, station: Station) -> None:
        """Starts the dead engine again where it was."""
        self.site.stack.processes.remove(station.engine)
        station.engine = self._start_engine(station.number, station.engine_port, station.stats_port)
        await eventually(lambda: "listening on" in station.engine.output(), "engine is back")

    async def start_nats(self) -> None:
        """Starts the dead NATS again where it was."""
        assert self.nats is not None
        self.site.stack.processes.remove(self.nats)
        self.nats = self.site.stack.start(programs.nats_program(self.site.nats_port))
        await eventually(lambda: _listens(self.site.nats_port), "NATS is back")

    def record_files(self) -> list[Path]:
        """Every record of the workers."""
        return [path for bucket in self._buckets() for path in _records(bucket)]

    @asynccontextmanager
    async def full_store(self) -> AsyncGenerator[None]:
        """Leaves no room in the store meanwhile."""
        ballast = self.site.store.root / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        try:
            yield
        finally:
            ballast.unlink()

    def _buckets(self) -> list[Path]:
        return [self.site.store.root / "v1" / bucket for bucket in ("instances", "mdc")]

    async def _station(self, number: int) -> Station:
        engine_port, stats_port, control_port, system_port = (free_port() for _ in range(4))
        engine = self._start_engine(number, engine_port, stats_port)
        await eventually(lambda: "listening on" in engine.output(), "engine is up", timeout=START_SECONDS)
        to_engine = await self._exits.enter_async_context(Proxy(engine_port))
        to_nats = await self._exits.enter_async_context(Proxy(self.site.nats_port))
        clock = WallClock(self.site.stack.directory / f"clock-{number}")
        environment = clock.environment if self.settable_clocks else {}
        ports = (control_port, system_port)
        worker = self._start_worker(number, to_engine.port, to_nats.port, ports, environment)
        return Station(number, engine, engine_port, stats_port, to_engine, to_nats, clock, worker, *ports)

    def _start_engine(self, number: int, port: int, stats_port: int) -> Process:
        options = ("--served-model-name", MODEL_NAME, "--stats", str(stats_port), "--token-delay-ms", self._pace)
        program = programs.engine_program(MODEL, name=f"engine-{number}", port=port, options=options)
        return self.site.stack.start(program)

    def _start_worker(
        self, number: int, engine: int, nats: int, ports: tuple[int, int], environment: dict[str, str]
    ) -> Process:
        control, system = ports
        planes = programs.Planes(f"nats://{programs.LOOPBACK}:{nats}", self.site.planes.store)
        options = ("--namespace", NAMESPACE, "--system-port", str(system), *WORKER_OPTIONS, *self._health)
        program = programs.worker_program(
            planes, engine=f"{programs.LOOPBACK}:{engine}", model_path=MODEL, name=f"worker-{number}", options=options
        )
        serve = program.argv[program.argv.index("serve") + 1 :]
        ours = ("--control-port", str(control), "--most-backoff", self._most_backoff)
        argv = (sys.executable, "-m", "tests.chaos.worker", *ours, *serve)
        environment = {**program.environment, **environment, "PYTHONPATH": str(ROOT)}
        return self.site.stack.start(replace(program, argv=argv, environment=environment))


def expire(path: Path) -> None:
    """Makes a record as old as one whose owner died."""
    with suppress(FileNotFoundError):
        os.utime(path, (0, 0))


@contextmanager
def stopped(pid: int) -> Generator[None]:
    """Keeps a process from running meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _records(bucket: Path) -> Iterator[Path]:
    return (path for path in bucket.glob("*") if not path.name.startswith(".tmp_"))


def _living(bucket: Path, oldest: float) -> int:
    alive = 0
    for path in _records(bucket):
        with suppress(FileNotFoundError):
            alive += path.stat().st_mtime > oldest
    return alive


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(programs.LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    return True


def _mount(store: Path) -> bool:
    command = ("mount", "-t", "tmpfs", "-o", f"size={STORE_BYTES}", "tmpfs", str(store))
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _unmount(store: Path) -> None:
    subprocess.run(("umount", "--lazy", str(store)), capture_output=True, check=True)

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from tests.support.leaks import Census
from tests.support.openai import OpenAIClient
from tests.support.store import Store
from tests.support.waiting import eventually

from openengine_sidecar.launch.stack import programs
from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from openengine_sidecar.launch.stack.ports import free_port
from openengine_sidecar.launch.stack.process import Process, Program
from openengine_sidecar.launch.stack.stack import Stack

MODEL = Path(__file__).resolve().parents[2] / "launch" / "model"
WORKER_SECONDS = 30.0
_numbers = itertools.count(1)


@dataclass(slots=True)
class Engine:
    """A reference engine. It can be killed and come back at the same address."""

    process: Process
    address: str
    stats_url: str

    async def stats(self) -> dict[str, Any]:
        async with aiohttp.ClientSession() as session, session.get(self.stats_url) as reply:
            return dict(await reply.json())


@dataclass(slots=True)
class Worker:
    """This package's worker process, and where to look at it from outside."""

    process: Process
    namespace: str
    model: str
    system_port: int

    def census(self) -> Census:
        return Census.of(self.process.pid)

    def terminate(self) -> None:
        self.process.signal(signal.SIGTERM)

    async def probe(self, path: str) -> tuple[int, str]:
        """GET on the system port; status 0 when nobody listens."""
        url = f"http://{programs.LOOPBACK}:{self.system_port}{path}"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as reply:
                return reply.status, await reply.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def ended(self, timeout: float = WORKER_SECONDS) -> int:
        """Waits for the process to end by itself and returns its exit code."""
        return await asyncio.to_thread(self.process.wait, timeout)


class Site:
    """A NATS server, a discovery store and the frontends that use both."""

    def __init__(self, directory: Path) -> None:
        self.stack = Stack(directory)
        self.nats_port = free_port()
        self.planes = programs.Planes(f"nats://{programs.LOOPBACK}:{self.nats_port}", directory / "store")
        self.store = Store(self.planes.store)
        self.planes.store.mkdir()

    def start_nats(self) -> Process:
        """Starts NATS, or starts it again on the port it had."""
        nats = self.stack.start(programs.nats_program(self.nats_port))
        programs.await_nats(nats, self.nats_port)
        return nats

    def start_frontend(self, *options: str, name: str = "frontend", **environment: str) -> str:
        """Starts the stock frontend and returns its URL."""
        endpoint = OpenAIEndpoint(programs.LOOPBACK, free_port())
        home = self.stack.directory / f"{name}-home"
        home.mkdir()
        program = programs.frontend_program(self.planes, port=endpoint.port, home=home, name=name, options=options)
        frontend = self.stack.start(_with(program, environment))
        programs.await_frontend(frontend, endpoint)
        return endpoint.url


class Lab:
    """What one test adds to a site: engines and workers of a namespace and a model of its own."""

    def __init__(self, site: Site, directory: Path) -> None:
        self.site = site
        self.stack = Stack(directory)
        self.model = f"model-{os.getpid()}-{next(_numbers)}"
        self.namespace = self.model

    def engine(self, *options: str, name: str = "engine", port: int = 0) -> Engine:
        asked = ("--served-model-name", self.model, "--stats", "0", *options)
        process = self.stack.start(programs.engine_program(MODEL, name=name, port=port, options=asked))
        address = programs.await_engine(process)
        return Engine(process, address, programs.await_stats(process))

    def worker(self, engine: Engine | str, *options: str, name: str = "worker", **environment: str) -> Worker:
        address = engine if isinstance(engine, str) else engine.address
        port = free_port()
        asked = ("--namespace", self.namespace, "--system-port", str(port), *options)
        program = programs.worker_program(self.site.planes, engine=address, model_path=MODEL, name=name, options=asked)
        process = self.stack.start(_with(program, environment))
        return Worker(process, self.namespace, self.model, port)

    def client(self, url: str) -> OpenAIClient:
        return OpenAIClient(url, self.model)

    def cards(self) -> list[str]:
        return self.site.store.cards(self.namespace)

    def instances(self) -> list[str]:
        return self.site.store.instances(self.namespace)

    async def listed(self, client: OpenAIClient, worker: Worker) -> None:
        """Waits until the frontend serves the model, watching that the worker lives."""

        async def ready() -> bool:
            worker.process.check()
            return await client.lists()

        await eventually(ready, "model listed", timeout=WORKER_SECONDS)


def _with(program: Program, environment: Mapping[str, str]) -> Program:
    return replace(program, environment={**program.environment, **environment})

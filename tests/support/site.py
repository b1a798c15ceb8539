from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from openengine_sidecar.launch.stack import programs
from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from openengine_sidecar.launch.stack.ports import free_port
from openengine_sidecar.launch.stack.process import Process, Program
from openengine_sidecar.launch.stack.stack import Stack
from tests.support.leaks import Census
from tests.support.openai import OpenAIClient
from tests.support.store import Store
from tests.support.waiting import eventually

MODEL = Path(__file__).resolve().parents[2] / "launch" / "model"
WORKER_SECONDS = 30.0
_STATS = re.compile(r"http://\S+:\d+/\S*")
_numbers = itertools.count(1)


@dataclass(slots=True)
class Engine:
    """A reference engine. It can be killed and come back at the same address."""

    process: Process
    address: str
    stats_url: str

    @property
    def port(self) -> int:
        """The port it listens on; another engine can be started there once this one is dead."""
        return int(self.address.rpartition(":")[2])

    async def stats(self) -> dict[str, Any]:
        async with aiohttp.ClientSession() as session, session.get(self.stats_url) as reply:
            return dict(await reply.json())

    async def heard(self) -> list[dict[str, Any]]:
        """The last generation requests that it received, each with its headers."""
        url = self.stats_url.replace("/stats", "/requests")
        async with aiohttp.ClientSession() as session, session.get(url) as reply:
            return list(await reply.json())

    async def count(self, counter: str) -> int:
        """One of the counters."""
        return int((await self.stats())[counter])

    async def play(self, script: str, text: str) -> None:
        """Gives it another script of `health` or `faults` while it runs."""
        url = self.stats_url.replace("/stats", f"/{script}")
        async with aiohttp.ClientSession() as session, session.post(url, data=text) as reply:
            assert reply.status == 200, await reply.text()

    async def settled(self) -> dict[str, Any]:
        """The counters once nothing runs there any more."""

        async def idle() -> bool:
            return await self.count("active") == 0

        await eventually(idle, "engine is idle")
        return await self.stats()


@dataclass(slots=True)
class Worker:
    """This package's worker process, and where to look at it from outside."""

    process: Process
    namespace: str
    model: str
    system_port: int
    pid: int

    def census(self) -> Census:
        """What the process holds now."""
        return Census.of(self.pid)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the worker itself, also where it runs below a launcher."""
        os.kill(self.pid, number)

    def terminate(self) -> None:
        """Asks it to drain and end."""
        self.signal(signal.SIGTERM)

    async def probe(self, path: str) -> tuple[int, str]:
        """GET on the system port; status 0 when nobody listens."""
        url = f"http://{programs.LOOPBACK}:{self.system_port}{path}"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as reply:
                return reply.status, await reply.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def actors(self) -> list[str]:
        """The paths of every actor alive in it."""
        _, tree = await self.probe("/actors")
        return sorted(actor["path"] for actor in json.loads(tree))

    async def metric(self, name: str) -> float:
        """The sum of a metric over all its labels; 0 where it has no sample."""
        _, text = await self.probe("/metrics")
        samples = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, samples))

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

    def start_frontend(self, *options: str, name: str = "frontend", **environment: str) -> OpenAIEndpoint:
        """Starts the stock frontend and returns where it listens."""
        endpoint = OpenAIEndpoint(programs.LOOPBACK, free_port())
        home = self.stack.directory / f"{name}-home"
        home.mkdir()
        program = programs.frontend_program(self.planes, port=endpoint.port, home=home, name=name, options=options)
        frontend = self.stack.start(_with(program, environment))
        programs.await_frontend(frontend, endpoint)
        return endpoint


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
        return Engine(process, address, _stats_url(process))

    def worker(self, engine: Engine | str, *options: str, name: str = "worker", **environment: str) -> Worker:
        """A worker in front of an engine, or of an address where there may be none."""
        program, port = self._worker_program(engine, options, name, environment)
        process = self.stack.start(program)
        return Worker(process, self.namespace, self.model, port, process.pid)

    def worker_as_process_one(self, engine: Engine) -> Worker:
        """A worker that is the first process of a PID namespace, as in a container; skips where that is forbidden."""
        launcher = ("unshare", "--pid", "--fork", "--kill-child")
        if subprocess.run((*launcher, "true"), capture_output=True, check=False).returncode:
            pytest.skip("no permission to make a PID namespace")
        program, port = self._worker_program(engine, (), "worker", {})
        process = self.stack.start(replace(program, argv=(*launcher, *program.argv)))
        children = psutil.Process(process.pid).children
        first = process.until(children, what="first process of the namespace", timeout=WORKER_SECONDS)[0]
        return Worker(process, self.namespace, self.model, port, first.pid)

    def _worker_program(
        self, engine: Engine | str, options: Iterable[str], name: str, environment: Mapping[str, str]
    ) -> tuple[Program, int]:
        address = engine if isinstance(engine, str) else engine.address
        port = free_port()
        asked = ("--namespace", self.namespace, "--system-port", str(port), *options)
        program = programs.worker_program(self.site.planes, engine=address, model_path=MODEL, name=name, options=asked)
        return _with(program, environment), port

    def serve(
        self, frontend: OpenAIEndpoint, *options: str, engine_options: tuple[str, ...] = (), **environment: str
    ) -> tuple[Engine, Worker]:
        """An engine and its worker, listed by the frontend."""
        engine = self.engine(*engine_options)
        worker = self.worker(engine, *options, **environment)
        self.await_listed(frontend, worker)
        return engine, worker

    def await_listed(self, frontend: OpenAIEndpoint, worker: Worker) -> None:
        """Waits until the frontend serves the model, watching that the worker lives."""
        worker.process.until(lambda: self.model in frontend.models(), what="listed model", timeout=WORKER_SECONDS)

    def client(self, frontend: OpenAIEndpoint) -> OpenAIClient:
        """A client of this lab's model."""
        return OpenAIClient(frontend.url, self.model)

    def cards(self) -> list[str]:
        return self.site.store.cards(self.namespace)

    def instances(self) -> list[str]:
        return self.site.store.instances(self.namespace)


def _with(program: Program, environment: Mapping[str, str]) -> Program:
    return replace(program, environment={**program.environment, **environment})


def _stats_url(engine: Process) -> str:
    found = engine.until(lambda: _STATS.search(engine.output()), what="address of its counters", timeout=WORKER_SECONDS)
    return found[0]

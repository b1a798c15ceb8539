from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from openengine_sidecar.launch.stack.errors import ChatError
from openengine_sidecar.launch.stack.openai import OpenAIEndpoint, Summary
from openengine_sidecar.proto.rev2 import observability_pb2
from tests.engine.caller import Caller
from tests.support.openai import Answer
from tests.support.site import Engine, Lab, Worker
from tests.support.waiting import GENEROUS_SECONDS, eventually

NO_CLEANUP: Final = "--no-kv-abort-cleanup"


@dataclass(slots=True)
class Half:
    """An engine of one role and the worker beside it."""

    engine: Engine
    worker: Worker

    async def sessions(self) -> dict[str, int]:
        """What became of the sessions its engine knows; zeros are left out."""
        return {name: count for name, count in (await self.engine.stats())["sessions"].items() if count}

    async def kv(self) -> dict[str, int]:
        """What the worker counted of the KV it answered for."""
        return await self._counted("openengine_sidecar_kv_sessions_total")

    async def holds(self) -> dict[str, int]:
        return await self._counted("openengine_sidecar_decode_holds_total")

    async def _counted(self, metric: str) -> dict[str, int]:
        _, text = await self.worker.probe("/metrics")
        lines = [line for line in text.splitlines() if line.startswith(metric)]
        return {line.split('end="')[1].split('"')[0]: int(float(line.rsplit(" ", 1)[1])) for line in lines}


@dataclass(slots=True)
class Pair:
    """Prefill here, decode there."""

    prefill: Half
    decode: Half

    async def at_rest(self) -> None:
        """Waits until neither engine runs anything, holds a session or a block, and no worker a stream."""
        for half in (self.prefill, self.decode):
            await eventually(lambda half=half: unloaded(half.engine), "no load")
            await eventually(lambda half=half: idle(half.worker), "no stream")


async def under_way(asking: asyncio.Task[Answer], probe: Callable[[], Awaitable[object]], what: str) -> None:
    """Waits for a request to come so far; one that ends before says how."""

    async def step() -> bool:
        assert not asking.done(), f"it ended before: {asking.result()}"
        return bool(await probe())

    await eventually(step, what)


async def unloaded(engine: Engine) -> bool:
    async with Caller(engine.address) as caller:
        load: Any = await caller.unary("GetLoad", observability_pb2.GetLoadRequest(), observability_pb2.LoadInfo)
    return not (load.running_requests or load.queued_requests or load.active_kv_sessions or load.used_kv_blocks)


async def idle(worker: Worker) -> bool:
    return await worker.metric("dynamo_component_inflight_requests") == 0


def half(lab: Lab, role: str, *options: str, engine: tuple[str, ...] = (), number: int = 1) -> Half:
    served = lab.engine("--role", role, *engine, name=f"{role}-engine-{number}")
    return Half(served, lab.worker(served, *options, name=f"{role}-{number}"))


def pair(
    lab: Lab, frontend: OpenAIEndpoint, *options: str, engine: tuple[str, ...] = (), prefill: tuple[str, ...] = ()
) -> Pair:
    """Listed by the frontend, and asked once. `engine` are options of both engines, `prefill` of the prefill engine."""
    first = half(lab, "prefill", *options, engine=(*engine, *prefill))
    second = half(lab, "decode", *options, engine=engine)
    await_served(lab, frontend, second.worker)
    return Pair(first, second)


def await_served(lab: Lab, frontend: OpenAIEndpoint, decode: Worker) -> None:
    """Waits for the first answer: the stock frontend lists a pair shortly before its router knows the prefill half."""
    lab.await_listed(frontend, decode)

    def answers() -> bool:
        try:
            return bool([*frontend.chat(lab.model, "hello", max_tokens=1, summary=Summary())])
        except ChatError as error:
            if error.status != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return False

    decode.process.until(answers, what="answer of the pair", timeout=GENEROUS_SECONDS)

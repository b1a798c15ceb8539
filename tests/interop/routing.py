"""A frontend that routes by KV overlap: where it sent a request, what it believed, and what the engine found."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from openengine_sidecar.launch.stack.process import Program
from tests.interop.pairs import await_served
from tests.support.openai import CHAT, OpenAIClient
from tests.support.site import MODEL, WORKER_SECONDS, Engine, Lab, Site, Worker
from tests.support.waiting import eventually

OUTCOMES = "openengine_sidecar_kv_events_total{"
BLOCK = 16
HELD = 14
"""Blocks of a family's beginning that are surely full."""

FAMILIES = 20
REQUESTS = 200
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Landing:
    """Where one request went. `believed` and `found` are cached blocks: the router's view, and the engine's count."""

    worker: str
    rank: int
    believed: int
    found: int


def routing_frontend(site: Site, *options: str, name: str = "kv-frontend") -> OpenAIEndpoint:
    """A stock frontend in KV mode. On few cores it freezes with the default number of threads."""
    return site.start_frontend("--router-mode", "kv", *options, name=name, DYN_RUNTIME_NUM_WORKER_THREADS="8")


async def ask(client: OpenAIClient, prompt: str, *, max_tokens: int = 2) -> Landing:
    """Sends a chat and says where it went."""
    landing = await try_ask(client, prompt, max_tokens=max_tokens)
    assert landing is not None
    return landing


async def try_ask(client: OpenAIClient, prompt: str, *, max_tokens: int = 2) -> Landing | None:
    """The same; None for a request that was lost."""
    body = client.chat_body(prompt, max_tokens=max_tokens, nvext={"extra_fields": ["timing", "worker_id"]})
    status, reply = await client.post(CHAT, body)
    if status != HTTPStatus.OK or not isinstance(reply, dict):
        return None
    extra, usage = reply["nvext"], reply["usage"]
    blocks = -(-usage["prompt_tokens"] // BLOCK)
    return Landing(
        worker=f"{extra['worker_id']['decode_worker_id']:x}",
        rank=extra["worker_id"]["decode_dp_rank"],
        believed=round(extra["timing"]["kv_hit_rate"] * blocks),
        found=usage["prompt_tokens_details"]["cached_tokens"] // BLOCK,
    )


def family(number: int, seed: int = 0) -> str:
    """A beginning that no other family shares, some fifteen blocks long."""
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 - has to repeat
    return "".join(rng.choices("abcdefghijklmnop ", k=15 * BLOCK))


async def share_landed(client: OpenAIClient, seed: int = 7) -> float:
    """Asks from every family at once, then in any order; the share of later requests sent to a holder, knowingly."""
    holders: dict[int, set[str]] = defaultdict(set)
    free = asyncio.Semaphore(AT_ONCE)
    right = 0

    async def one(number: int, index: int) -> None:
        nonlocal right
        async with free:
            landing = await ask(client, f"{family(number, seed)} question {index}")
        right += landing.worker in holders[number] and landing.believed >= HELD
        holders[number].add(landing.worker)

    await asyncio.gather(*(one(number, 0) for number in range(FAMILIES)))
    order = [number for number in range(FAMILIES) for _ in range(REQUESTS // FAMILIES - 1)]
    random.Random(seed).shuffle(order)  # noqa: S311 - has to repeat
    right = 0
    await asyncio.gather(*(one(number, index) for index, number in enumerate(order, 1)))
    assert len({worker for workers in holders.values() for worker in workers}) > 1, "one worker got everything"
    return right / len(order)


async def until_known(client: OpenAIClient, prompt: str) -> Landing:
    """Asks until the router believes in what the engine finds, and that is most of it; returns that answer.

    Requests that are lost on a worker that died are passed over.
    """

    async def known() -> Landing | None:
        landing = await try_ask(client, prompt)
        return landing if landing is not None and landing.believed == landing.found >= HELD else None

    return await eventually(known, f"the router knows of {HELD} blocks")


async def served(client: OpenAIClient) -> bool:
    """Whether a request is answered."""
    return (await client.chat("served?", max_tokens=1)).status == HTTPStatus.OK


@dataclass(slots=True)
class Routed:
    """Workers of one model behind a routing frontend, each with an engine that tells of its cache."""

    lab: Lab
    frontend: OpenAIEndpoint
    engines: list[Engine]
    workers: list[Worker]

    @classmethod
    def start(
        cls,
        lab: Lab,
        frontend: OpenAIEndpoint,
        *options: str,
        engine: Sequence[str] = ("--kv-events", "grpc"),
        count: int = 1,
    ) -> Self:
        """Starts them, and waits until the frontend can know every one."""
        engines = [lab.engine(*engine, name=f"engine-{number}") for number in range(count)]
        workers = [lab.worker(each, *options, name=f"worker-{number}") for number, each in enumerate(engines)]
        await_served(lab, frontend, workers[0])
        routed = cls(lab, frontend, engines, workers)
        workers[0].process.until(lambda: len(routed.serving()) == count, what="instances", timeout=WORKER_SECONDS)
        return routed

    def serving(self) -> list[str]:
        """The instances that take requests."""
        return [key for key in self.lab.instances() if "/generate/" in key]

    @property
    def client(self) -> OpenAIClient:
        return self.lab.client(self.frontend)

    async def outcome(self, name: str) -> float:
        """What became of KV events, summed over workers and ranks."""
        total = 0.0
        for worker in self.workers:
            _, metrics = await worker.probe("/metrics")
            lines = [line for line in metrics.splitlines() if line.startswith(OUTCOMES) and f'outcome="{name}"' in line]
            total += sum(float(line.rpartition(" ")[2]) for line in lines)
        return total


@asynccontextmanager
async def stock_workers(site: Site, frontend: OpenAIEndpoint, model: str) -> AsyncGenerator[OpenAIClient]:
    """Two stock mocker workers, and a client of theirs."""
    argv: tuple[str, ...] = (sys.executable, "-m", "dynamo.mocker", "--model-path", str(MODEL), "--model-name", model)
    argv += ("--endpoint", f"dyn://{model}.backend.generate", "--num-workers", "2")
    argv += ("--block-size", str(BLOCK), "--speedup-ratio", "0")
    process = site.stack.start(Program(name=model, argv=argv, environment=site.planes.environment))
    process.until(lambda: model in frontend.models(), what="listed mocker", timeout=WORKER_SECONDS)
    async with OpenAIClient(frontend.url, model) as client:
        yield client
    process.kill()

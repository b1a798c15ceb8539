from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from openengine_sidecar.actors.lora.ids import lora_name_to_id
from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from tests.lora.adapters import write_adapter
from tests.support.openai import Answer, OpenAIClient
from tests.support.site import Engine, Lab, Worker
from tests.support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

ON = {"DYN_LORA_ENABLED": "true"}
Body = dict[str, Any]


@dataclass
class Operator:
    """Who loads and unloads adapters on a worker's system port."""

    worker: Worker
    directory: Path

    def adapter(self, name: str) -> str:
        path = write_adapter(self.directory / name.replace("/", "-"))
        return path.as_uri()

    async def load(self, name: str, uri: str | None = None) -> tuple[int, Body]:
        return await self._call("POST", "", {"lora_name": name, "source": {"uri": uri or self.adapter(name)}})

    async def unload(self, name: str) -> tuple[int, Body]:
        return await self._call("DELETE", f"/{quote(name)}")

    async def listed(self) -> Body:
        status, body = await self._call("GET", "")
        assert (status, body["status"], body["count"]) == (200, "success", len(body["loras"]))
        return dict(body["loras"])

    async def _call(self, method: str, path: str, body: Body | None = None) -> tuple[int, Body]:
        url = f"http://127.0.0.1:{self.worker.system_port}/v1/loras{path}"
        async with aiohttp.ClientSession() as session, session.request(method, url, json=body) as reply:
            return reply.status, json.loads(await reply.text())


@dataclass
class Scene:
    lab: Lab
    engine: Engine
    worker: Worker
    operator: Operator
    client: OpenAIClient

    @property
    def base(self) -> str:
        return self.lab.model

    def name(self, short: str) -> str:
        """An adapter's name that no other test has: all tests share the frontend."""
        return f"{self.lab.model}/{short}"

    async def listed(self, *names: str) -> None:
        async def lists() -> bool:
            return set(names) <= set(await self.client.models())

        await eventually(lists, f"{names} are listed")

    async def gone(self, name: str) -> None:
        async def lacks() -> bool:
            return name not in await self.client.models()

        await eventually(lacks, f"{name} is not listed")

    async def ask(self, model: str, text: str = "hi", **options: Any) -> Answer:
        return await self.client.chat(text, **{"model": model, "max_tokens": 120, **options})


def spoke(answer: Answer, name: str | None) -> bool:
    """Whether an adapter, or the base model, gave this answer."""
    assert answer.status == 200, answer
    return (f"[adapter {name}]" in answer.text) if name else ("[adapter" not in answer.text)


@pytest.fixture
async def scene(lab: Lab, frontend: OpenAIEndpoint, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    options: tuple[str, ...] = getattr(request, "param", ())
    engine, worker = lab.serve(frontend, engine_options=options, **ON, DYN_LORA_PATH=str(tmp_path / "cache"))
    async with lab.client(frontend) as client:
        yield Scene(lab, engine, worker, Operator(worker, tmp_path / "adapters"), client)


async def test_adapters_are_models_of_their_own_until_they_are_unloaded(scene: Scene) -> None:
    a, b = scene.name("a"), scene.name("b")
    for name in (a, b):
        status, body = await scene.operator.load(name)
        assert (status, body["status"], body["lora_name"], body["lora_id"]) == (
            200,
            "success",
            name,
            lora_name_to_id(name),
        )
    assert await scene.operator.listed() == {a: lora_name_to_id(a), b: lora_name_to_id(b)}
    await scene.listed(a, b, scene.base)
    asked = [a, b, None] * 8
    answers = await asyncio.gather(*(scene.ask(name or scene.base, f"hi {n}") for n, name in enumerate(asked)))
    assert all(spoke(answer, name) for answer, name in zip(answers, asked, strict=True))
    status, body = await scene.operator.unload(a)
    assert (status, body["status"]) == (200, "success")
    await scene.gone(a)
    assert (await scene.ask(a)).status == 404
    assert spoke(await scene.ask(b), b)
    assert spoke(await scene.ask(scene.base), None)
    assert (await scene.operator.unload(a))[0] == 500

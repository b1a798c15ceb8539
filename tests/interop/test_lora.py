from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from openengine_sidecar.actors.lora.ids import lora_name_to_id
from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from openengine_sidecar.messages.dynamo.naming import slugify
from tests.lora.adapters import write_adapter
from tests.support.openai import Answer, OpenAIClient
from tests.support.site import Engine, Lab, Site, Worker
from tests.support.waiting import eventually
from tests.support.wire import RawFrontend

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

ON = {"DYN_LORA_ENABLED": "true"}
QUICK = ("--health-interval-secs", "0.3", "--health-timeout-secs", "1", "--health-misses", "2")
PACED = ("--token-delay-ms", "5")
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
    client: OpenAIClient | None = None

    @property
    def _client(self) -> OpenAIClient:
        assert self.client is not None
        return self.client

    @property
    def base(self) -> str:
        return self.lab.model

    def name(self, short: str) -> str:
        """An adapter's name that no other test has: all tests share the frontend."""
        return f"{self.lab.model}/{short}"

    def suffixes(self) -> set[str]:
        """The last part of every card's key: an adapter's slug, or nothing for the base model."""
        return {"/".join(key.split("/")[4:]) for key in self.lab.cards()}

    async def listed(self, *names: str) -> None:
        async def lists() -> bool:
            return set(names) <= set(await self._client.models())

        await eventually(lists, f"{names} are listed")

    async def gone(self, name: str) -> None:
        async def lacks() -> bool:
            return name not in await self._client.models()

        await eventually(lacks, f"{name} is not listed")

    async def ask(self, model: str, text: str = "hi", **options: Any) -> Answer:
        return await self._client.chat(text, **{"model": model, "max_tokens": 120, **options})


def spoke(answer: Answer, name: str | None) -> bool:
    """Whether an adapter, or the base model, gave this answer."""
    assert answer.status == 200, answer
    return (f"[adapter {name}]" in answer.text) if name else ("[adapter" not in answer.text)


@pytest.fixture
async def scene(lab: Lab, frontend: OpenAIEndpoint, tmp_path: Path) -> AsyncIterator[Scene]:
    engine, worker = lab.serve(frontend, *QUICK, engine_options=PACED, DYN_LORA_PATH=str(tmp_path / "cache"), **ON)
    async with lab.client(frontend) as client:
        yield Scene(lab, engine, worker, Operator(worker, tmp_path / "adapters"), client)


async def test_f29_adapters_are_models_of_their_own_until_they_are_unloaded(scene: Scene) -> None:
    a, b = scene.name("a"), scene.name("b")
    for name in (a, b):
        status, body = await scene.operator.load(name)
        assert (status, body["status"], body["lora_name"]) == (200, "success", name)
        assert body["lora_id"] == lora_name_to_id(name)
    assert await scene.operator.listed() == {a: lora_name_to_id(a), b: lora_name_to_id(b)}
    await scene.listed(a, b, scene.base)
    asked = [a, b, None] * 8
    answers = await asyncio.gather(*(scene.ask(name or scene.base, f"hi {n}") for n, name in enumerate(asked)))
    assert all(spoke(answer, name) for answer, name in zip(answers, asked, strict=True))
    assert scene.suffixes() == {"", slugify(a), slugify(b)}

    status, body = await scene.operator.unload(a)
    assert (status, body["status"]) == (200, "success")
    assert scene.suffixes() == {"", slugify(b)}
    await scene.gone(a)
    assert (await scene.ask(a)).status == 404
    assert spoke(await scene.ask(b), b)
    assert spoke(await scene.ask(scene.base), None)
    assert (await scene.operator.unload(a))[0] == 500


async def test_an_unload_waits_for_those_who_use_it_and_lets_nobody_new_in(scene: Scene) -> None:
    a = scene.name("a")
    await scene.operator.load(a)
    await scene.listed(a)
    running = asyncio.create_task(scene.ask(a, "x" * 150, max_tokens=300))
    await eventually(lambda: active(scene.engine), "it runs")
    unloading = asyncio.create_task(scene.operator.unload(a))
    await scene.gone(a)
    assert (await scene.ask(a)).status == 404
    assert not running.done()
    assert not unloading.done()
    assert (await scene.engine.stats())["calls"].get("UnloadLora", 0) == 0
    assert spoke(await running, a)
    assert (await unloading)[0] == 200
    assert (await scene.engine.stats())["calls"]["UnloadLora"] == 1


async def test_c51_an_engine_that_comes_back_empty_gets_its_adapters_again(scene: Scene) -> None:
    a, b = scene.name("a"), scene.name("b")
    for name in (a, b):
        await scene.operator.load(name)
    await scene.listed(a, b)
    scene.engine.process.kill()
    await scene.gone(a)
    engine = scene.lab.engine(*PACED, name="engine-again", port=scene.engine.port)
    await scene.listed(a, b, scene.base)
    assert set(await scene.operator.listed()) == {a, b}
    for name in (a, b, None):
        assert spoke(await scene.ask(name or scene.base), name)
    assert (await engine.stats())["calls"]["LoadLora"] == 2


async def test_f27_loads_and_unloads_at_once_end_in_one_truth(scene: Scene) -> None:
    a, others = scene.name("a"), [scene.name("b"), scene.name("c")]
    uri, operator = scene.operator.adapter(a), scene.operator
    asked = [operator.unload(a) if n % 4 == 3 else operator.load(a, uri) for n in range(25)]
    answers = await asyncio.gather(*asked, *map(operator.load, others))
    assert [body["status"] for _, body in answers[25:]] == ["success", "success"]
    assert all(status == (200 if body["status"] == "success" else 500) for status, body in answers)
    live = set(await operator.listed())
    assert live - {a} == set(others)
    assert scene.suffixes() == {"", *map(slugify, live)}
    calls = (await scene.engine.stats())["calls"]
    unloads = sum(body.get("message") == "unloaded" for _, body in answers[:25])
    assert calls["LoadLora"] - len(others) <= unloads + 1
    status, body = await operator.load(a, uri)
    assert (status, body["status"]) == (200, "success")
    await scene.listed(a)
    assert spoke(await scene.ask(a), a)


async def test_the_control_endpoints_answer_on_the_request_plane(scene: Scene, site: Site) -> None:
    name, instance = scene.name("a"), scene.lab.instances()[0].rpartition("/")[2]
    assert {key.split("/")[2] for key in scene.lab.instances()} == {
        "generate",
        "load_lora",
        "unload_lora",
        "list_loras",
    }
    async with RawFrontend(site.planes.nats_url) as frontend:

        async def ask(endpoint: str, body: Body) -> Body:
            subject = f"{scene.lab.namespace}_backend.{endpoint}-{instance}"
            acknowledged, caller = await frontend.ask(subject, body)
            assert acknowledged == b""
            await asyncio.wait_for(caller.closed.wait(), 20)
            assert caller.ended_once
            (item,) = caller.items
            return dict(item["data"])

        load = {"lora_name": name, "source": {"uri": scene.operator.adapter(name)}}
        loaded = await ask("load_lora", load)
        assert (loaded["status"], loaded["lora_id"]) == ("success", lora_name_to_id(name))
        assert (await ask("load_lora", load))["message"] == "already loaded"
        listing = {"status": "success", "loras": {name: lora_name_to_id(name)}, "count": 1}
        assert await ask("list_loras", {}) == listing
        await scene.listed(name)
        assert (await ask("unload_lora", {"lora_name": name}))["status"] == "success"
        assert (await ask("unload_lora", {"lora_name": name}))["status"] == "error"
        assert "lora_name" in (await ask("load_lora", {}))["message"]


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("", None),
        ("a" * 300, None),
        ("\N{SNOWMAN}", None),
        ("../a", None),
        ("fine", "adapters/relative"),
        ("fine", "ftp://host/a"),
        ("fine", "file:///etc"),
        ("fine", "file:///nowhere/../etc"),
    ],
)
async def test_c49_what_attacks_is_refused_with_a_reason(module_scene: Scene, name: str, uri: str | None) -> None:
    status, body = await module_scene.operator.load(name, uri or module_scene.operator.adapter("good"))
    assert (status, body["status"]) == (500, "error")
    assert body["message"]
    assert await module_scene.operator.listed() == {}
    assert (await module_scene.engine.stats())["calls"].get("LoadLora", 0) == 0


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [(b"{", "application/json", 400), (b"[]", "application/json", 500), (b"{}", "text/plain", 415)],
)
async def test_a_body_that_is_none_is_refused(module_scene: Scene, content: bytes, kind: str, status: int) -> None:
    url = f"http://127.0.0.1:{module_scene.worker.system_port}/v1/loras"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=content, headers={"Content-Type": kind}) as reply,
    ):
        assert reply.status == status
        assert (await reply.json())["status"] == "error"


async def test_adapters_are_off_unless_they_are_wanted(lab: Lab, frontend: OpenAIEndpoint) -> None:
    _, worker = lab.serve(frontend)
    assert (await worker.probe("/v1/loras"))[0] == 404
    assert [key.split("/")[2] for key in lab.instances()] == ["generate"]


async def test_an_adapter_of_a_pair_is_a_model_while_both_halves_have_it(
    lab: Lab, frontend: OpenAIEndpoint, tmp_path: Path
) -> None:
    async with lab.client(frontend) as client:
        prefill, decode = (half(lab, role, tmp_path, client) for role in ("prefill", "decode"))
        lab.await_listed(frontend, decode.worker)
        name = decode.name("a")
        uri = decode.operator.adapter(name)
        assert (await decode.operator.load(name, uri))[0] == 200
        assert (await decode.ask(name)).status >= 400
        assert (await prefill.operator.load(name, uri))[0] == 200
        await decode.listed(name)
        assert spoke(await decode.ask(name), name)
        assert spoke(await decode.ask(decode.base), None)
        for scene in (prefill, decode):
            asked = [heard["request"].get("lora_name") for heard in await scene.engine.heard()]
            assert asked == [name, None]
            assert (await scene.operator.unload(name))[0] == 200
        await decode.gone(name)
        assert (await decode.ask(name)).status == 404
        assert spoke(await decode.ask(decode.base), None)


def half(lab: Lab, role: str, directory: Path, client: OpenAIClient) -> Scene:
    engine = lab.engine("--role", role, name=f"{role}-engine")
    worker = lab.worker(engine, name=role, **ON)
    return Scene(lab, engine, worker, Operator(worker, directory / role), client)


async def active(engine: Engine) -> bool:
    return await engine.count("active") > 0


@pytest.fixture(scope="module")
def module_scene(module_lab: Lab, frontend: OpenAIEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """For what changes nothing; without a client, which belongs to one test's loop."""
    engine, worker = module_lab.serve(frontend, **ON)
    return Scene(module_lab, engine, worker, Operator(worker, tmp_path_factory.mktemp("adapters")))

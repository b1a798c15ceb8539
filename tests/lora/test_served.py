from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from tests.lora.adapters import ADAPTER, read_adapter
from tests.lora.s3 import S3
from tests.support.site import Lab
from tests.support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


async def test_an_adapter_of_an_object_store_is_served_though_its_connection_breaks(
    lab: Lab, frontend: OpenAIEndpoint, s3: S3, tmp_path: Path
) -> None:
    name, uri, cache = f"{lab.model}/remote", s3.put(), tmp_path / "cache"
    s3.proxy.victim, s3.proxy.cuts = "adapter_model.safetensors", [3000]
    environment = {"DYN_LORA_ENABLED": "true", "DYN_LORA_PATH": str(cache), "AWS_ENDPOINT": s3.proxy.endpoint}
    engine, worker = lab.serve(frontend, **environment)
    body = {"lora_name": name, "source": {"uri": uri}}
    url = f"http://127.0.0.1:{worker.system_port}/v1/loras"
    async with lab.client(frontend) as client:
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as reply:
            assert reply.status == 200, await reply.text()
            assert json.loads(await reply.text())["status"] == "success"

        async def listed() -> bool:
            return name in await client.models()

        await eventually(listed, "it is listed")
        assert f"[adapter {name}]" in (await client.chat("hi", model=name, max_tokens=120)).text
    assert s3.proxy.cuts == []
    (entry,) = (cache / "adapters").iterdir()
    assert read_adapter(entry) == ADAPTER
    assert list((cache / "partial").iterdir()) == []
    assert (await engine.stats())["calls"]["LoadLora"] == 1

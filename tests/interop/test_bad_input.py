from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import copytree
from typing import Any

import msgspec
import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from openengine_sidecar.launch.stack.ports import free_port
from tests.support.openai import CHAT, OpenAIClient
from tests.support.site import MODEL, Engine, Lab, Worker
from tests.support.wire import PREFIX, RawFrontend, frame, request_body

pytestmark = pytest.mark.interop

HI = [72, 105]
MALFORMED = b"Server overloaded: malformed request"


@pytest.fixture(scope="module")
def served(module_lab: Lab, frontend: OpenAIEndpoint) -> tuple[Engine, Worker]:
    return module_lab.serve(frontend)


@pytest.fixture
def subject(module_lab: Lab, served: tuple[Engine, Worker]) -> str:
    assert served[1].process.exit_code is None
    return str(module_lab.site.store.records("instances", module_lab.namespace)[0]["transport"]["nats_tcp"])


@pytest.fixture
async def raw(module_lab: Lab) -> AsyncIterator[RawFrontend]:
    async with RawFrontend(module_lab.site.planes.nats_url) as raw:
        yield raw


async def still_serves(raw: RawFrontend, subject: str) -> bool:
    acknowledgement, caller = await raw.ask(subject, request_body(HI, max_tokens=3))
    assert acknowledgement == b""
    await caller.closed.wait()
    return caller.complete and len(caller.token_ids) == 3


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"short",
        PREFIX.pack(2**63, 2**63, 0),
        frame(b"{}", b"x" * 10)[:-5],
        frame(b"{}", b"") + b"trailing",
        frame(b"this is not JSON", b""),
        frame(b"[1, 2]", b""),
        frame(b'{"id": "nobody to answer to"}', b""),
        frame(b"\xff\xfe", b"\xc0"),
    ],
    ids=[
        "empty",
        "no-prefix",
        "oversized",
        "truncated",
        "trailing",
        "not-json",
        "no-object",
        "no-address",
        "not-utf8",
    ],
)
async def test_a_frame_that_names_no_address_is_refused_at_once(raw: RawFrontend, subject: str, payload: bytes) -> None:
    assert await raw.send(subject, payload) == MALFORMED
    assert await still_serves(raw, subject)


async def test_a_frame_that_names_no_address_is_logged_and_counted(
    raw: RawFrontend, subject: str, served: tuple[Engine, Worker]
) -> None:
    _, worker = served
    before = await worker.metric("dynamo_component_errors_total")
    await raw.send(subject, b"23 bytes of no frame...")
    assert await worker.metric("dynamo_component_errors_total") == before + 1
    assert "23 bytes" in worker.process.tail(3)


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        ("msgpack", b"\xc1 never used in MessagePack"),
        ("msgpack", msgspec.msgpack.encode([1, 2, 3])),
        ("msgpack", msgspec.msgpack.encode({"model": "no tokens at all"})),
        ("cbor", msgspec.msgpack.encode(request_body(HI))),
        ("msgpack", msgspec.msgpack.encode(request_body([]))),
        ("msgpack", msgspec.msgpack.encode(request_body([10**12]))),
    ],
    ids=["garbage", "wrong-shape", "missing-field", "unknown-codec", "no-tokens", "token-out-of-range"],
)
async def test_a_body_that_cannot_be_served_is_the_clients_fault(
    raw: RawFrontend, subject: str, codec: str, body: bytes
) -> None:
    caller = raw.caller()
    acknowledgement = await raw.send(subject, frame(raw.header(caller, payload_codec=codec), body))
    assert acknowledgement == b""
    await caller.closed.wait()
    assert caller.ended_once
    assert caller.refusal is not None
    assert caller.refusal["error_type"] == {"Backend": "InvalidArgument"}
    assert caller.refusal["public"]["message"]
    assert caller.items == []
    assert await still_serves(raw, subject)


async def test_json_is_answered_in_json(raw: RawFrontend, subject: str) -> None:
    caller = raw.caller()
    header = raw.header(caller, payload_codec="json")
    assert await raw.send(subject, frame(header, json.dumps(request_body(HI, max_tokens=3)).encode())) == b""
    await caller.closed.wait()
    assert caller.error is None
    assert (caller.complete, len(caller.token_ids)) == (True, 3)


async def test_an_address_that_does_not_answer_costs_only_its_request(raw: RawFrontend, subject: str) -> None:
    acknowledgement, _ = await raw.ask(subject, request_body(HI), **_elsewhere(raw, f"127.0.0.1:{free_port()}"))
    assert acknowledgement == b""
    assert await still_serves(raw, subject)


async def test_the_client_is_told_what_is_wrong(module_lab: Lab, subject: str, frontend: OpenAIEndpoint) -> None:
    assert subject
    async with module_lab.client(frontend) as client:
        for stream in (False, True):
            refused = client.chat_body("hello", max_tokens=10_000_000, stream=stream)
            status, reply = await client.post(CHAT, refused)
            assert status == 400
            assert "10000000" in str(reply)
            served = await client.chat("hello", max_tokens=1)
            assert served.status == 200, "the refusal took the worker out of service"


def _elsewhere(raw: RawFrontend, address: str) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(raw.header(raw.caller(), address=address))
    return {"connection_info": header["connection_info"]}


async def test_a_model_path_that_does_not_exist_ends_with_its_name(lab: Lab, tmp_path: Path) -> None:
    engine = lab.engine()
    missing = tmp_path / "no-such-model"
    worker = lab.worker(engine, "--model-path", str(missing))
    assert await worker.ended() in {1, 2}
    assert str(missing) in worker.process.tail(3)


@pytest.mark.parametrize("file", ["tokenizer.json", "config.json", "tokenizer_config.json"])
async def test_a_missing_model_file_ends_with_its_name(lab: Lab, tmp_path: Path, file: str) -> None:
    engine = lab.engine()
    model = tmp_path / "model"
    copytree(MODEL, model)
    (model / file).unlink()
    worker = lab.worker(engine, "--model-path", str(model))
    assert await worker.ended() in {1, 2}
    assert file in worker.process.tail(3)
    assert lab.instances() == []


async def test_a_taken_system_port_ends_with_its_number(lab: Lab) -> None:
    engine = lab.engine()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        worker = lab.worker(engine, "--system-port", port)
        assert await worker.ended() in {1, 2}
    assert port in worker.process.tail(5)
    assert lab.instances() == []


async def test_an_unknown_model_is_not_found(client: OpenAIClient) -> None:
    client.model = "nobody-serves-this"
    assert (await client.chat("hello")).status == 404

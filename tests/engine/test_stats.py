from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.launch.engine.stats_file import StatsFile
from openengine_sidecar.launch.engine.window import StatsWindow
from openengine_sidecar.messages.errors import ConfigurationError
from tests.engine.caller import Caller, ask, serving
from tests.support.waiting import eventually


async def http(url: str, path: str, method: str = "GET", body: str = "") -> tuple[int, Any]:
    host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = body.encode()
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    answer = await reader.read()
    writer.close()
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(content)


async def test_counters_tell_what_happened(engine: ReferenceEngine, caller: Caller) -> None:
    await caller.generate(ask(request_id="a", model="model", priority=4))
    await caller.generate(ask(request_id="b", stopping={"max_tokens": 2}))
    await caller.generate(ask(request_id=""))
    found = engine.stats.as_dict()
    assert (found["requests"], found["active"], found["tokens"]) == (2, 0, 33)
    assert found["finished"] == {"stop": 1, "length": 1}
    assert found["refused"] == {"INVALID_ARGUMENT": 1}
    assert found["calls"] == {"Generate": 3}
    assert found["records"][0] == {
        "request_id": "a",
        "model": "model",
        "prompt_tokens": 9,
        "rank": 0,
        "priority": 4,
        "tokens": 31,
        "events": 32,
        "cached_tokens": 0,
        "ended": "stop",
        "cancelled": False,
        "aborts": 0,
        "session": None,
    }
    assert [record["ended"] for record in found["records"]] == ["stop", "length"]


async def test_the_last_requests_are_kept_as_they_came() -> None:
    async with serving(keep_requests=2) as (engine, caller):
        for number in range(3):
            request = ask(request_id=str(number), kv={"cache_salt": ""}, sampling={"temperature": 0.5})
            await caller.generate(request, metadata=(("traceparent", "00-ab-cd-01"),))
        kept = engine.stats.received_as_dicts()
    assert [entry["request"]["request_id"] for entry in kept] == ["1", "2"]
    assert kept[0]["request"]["kv"] == {"cache_salt": ""}
    assert kept[0]["request"]["sampling"] == {"temperature": 0.5}
    assert kept[0]["headers"]["traceparent"] == "00-ab-cd-01"


async def test_records_are_bounded(monkeypatch: pytest.MonkeyPatch, engine: ReferenceEngine, caller: Caller) -> None:
    monkeypatch.setattr("openengine_sidecar.launch.engine.stats.KEPT_RECORDS", 2)
    for number in range(3):
        await caller.generate(ask(request_id=str(number)))
    assert list(engine.stats.records) == ["1", "2"]


async def test_waiting_for_what_is_true_already(engine: ReferenceEngine) -> None:
    await asyncio.wait_for(engine.stats.until(lambda stats: stats.requests == 0), 1)


async def test_a_waiter_that_gave_up_disturbs_nobody(engine: ReferenceEngine, caller: Caller) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(engine.stats.until(lambda stats: stats.requests == 9), 0.01)
    await caller.generate(ask())
    assert not engine.stats.awaited


async def test_the_window_shows_and_steers(engine: ReferenceEngine, caller: Caller) -> None:
    window = StatsWindow(engine.core, 0)
    url = await window.start()
    await caller.generate(ask())
    assert url.startswith("http://127.0.0.1:")
    status, stats = await http(url, "/stats")
    assert (status, stats["requests"]) == (200, 1)
    assert (await http(url, "/"))[1] == stats
    status, requests = await http(url, "/requests?last")
    assert (status, requests[0]["request"]["request_id"]) == (200, "r")

    assert (await http(url, "/health", "POST", "degraded"))[0] == 200
    answer = engine.core.health.next()
    assert answer.state == 3
    assert (await http(url, "/faults", "POST", "no-terminal:1@1\nno-text"))[0] == 200
    assert (await caller.generate(ask())).text() == ""
    assert (await http(url, "/answers", "POST", 'GetLoad={"running_requests": 7}'))[0] == 200
    assert (await http(url, "/faults", "POST", ""))[0] == 200
    assert (await caller.generate(ask())).text() == 'You said: "hello".'
    await window.stop()


@pytest.mark.parametrize(
    ("path", "method", "body", "status"),
    [
        ("/nowhere", "GET", "", 404),
        ("/stats", "POST", "", 404),
        ("/health", "POST", "happy", 400),
        ("/faults", "POST", "nonsense", 400),
        ("/answers", "POST", "nonsense", 400),
    ],
)
async def test_the_window_refuses(engine: ReferenceEngine, path: str, method: str, body: str, status: int) -> None:
    window = StatsWindow(engine.core, 0)
    url = await window.start()
    found, answer = await http(url, path, method, body)
    await window.stop()
    assert found == status
    assert answer["error"]


async def test_the_window_survives_broken_clients(engine: ReferenceEngine) -> None:
    window = StatsWindow(engine.core, 0)
    url = await window.start()
    host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
    for data in (b"", b"GET /stats", b"POST /health HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        writer.write_eof()
        await reader.read()
        writer.close()
    assert engine.stats.calls["window_broken"] == 3
    assert (await http(url, "/stats"))[0] == 200
    await window.stop()


async def test_a_taken_port_is_named(engine: ReferenceEngine) -> None:
    window = StatsWindow(engine.core, 0)
    port = (await window.start()).rpartition(":")[2].partition("/")[0]
    with pytest.raises(ConfigurationError, match=port):
        await StatsWindow(engine.core, int(port)).start()
    await window.stop()


async def test_the_file_is_whole_and_current(engine: ReferenceEngine, caller: Caller, tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    file = StatsFile(engine.stats, path)
    file.start()
    assert read(path)["requests"] == 0
    await caller.generate(ask())
    await file.stop()
    assert (read(path)["requests"], read(path)["received"][0]["request"]["request_id"]) == (1, "r")
    assert files(tmp_path) == [path]


async def test_the_file_follows(
    engine: ReferenceEngine, caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openengine_sidecar.launch.engine.stats_file.INTERVAL", 0.001)
    path = tmp_path / "stats.json"
    file = StatsFile(engine.stats, path)
    file.start()
    await caller.generate(ask())
    await eventually(lambda: read(path)["requests"] == 1, "the file shows the request")
    await file.stop()


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def files(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_the_file_is_left_alone_while_nothing_happens(engine: ReferenceEngine, tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    file = StatsFile(engine.stats, path)
    file.start()
    path.unlink()
    await file.stop()
    assert not path.exists()


async def test_an_unwritable_file_is_named(engine: ReferenceEngine, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="missing"):
        StatsFile(engine.stats, tmp_path / "missing" / "stats.json").start()

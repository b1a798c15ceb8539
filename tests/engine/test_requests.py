from __future__ import annotations

import asyncio

import pytest

from openengine_sidecar.launch.engine.prefix import Hold, Namespace, PrefixCache
from openengine_sidecar.launch.engine.requests import ActiveRequest, RequestTable
from openengine_sidecar.launch.engine.stats import RequestRecord
from tests.engine.caller import ask, serving


def request(name: str) -> ActiveRequest:
    record = RequestRecord(request_id=name, model="", prompt_tokens=1, rank=0)
    return ActiveRequest(record, Hold(PrefixCache(4, 4), Namespace()))


Queue = tuple[dict[str, ActiveRequest], list[str], list[asyncio.Task[None]]]


async def queue(table: RequestTable, **priorities: int) -> Queue:
    order: list[str] = []
    requests = {name: request(name) for name in priorities}

    async def run(name: str) -> None:
        await table.run(requests[name], priorities[name])
        order.append(name)

    tasks: list[asyncio.Task[None]] = []
    for name in priorities:
        table.add(requests[name])
        tasks.append(asyncio.create_task(run(name)))
        await asyncio.sleep(0)
    return requests, order, tasks


async def test_the_urgent_go_first_then_the_early() -> None:
    table = RequestTable(places=1)
    requests, order, tasks = await queue(table, first=0, late=0, low=-5, high=9, early=0)
    assert (order, table.running, table.queued) == (["first"], 1, 4)
    for _ in range(4):
        table.remove(requests[order[-1]])
        await asyncio.sleep(0)
    assert order == ["first", "high", "late", "early", "low"]
    await asyncio.gather(*tasks)


async def test_who_leaves_the_queue_takes_no_place() -> None:
    table = RequestTable(places=1)
    requests, order, tasks = await queue(table, first=0, aborted=0, cancelled=0, last=0)
    requests["aborted"].abort()
    tasks[2].cancel()
    await asyncio.sleep(0)
    table.remove(requests["cancelled"])
    assert not requests["aborted"].running
    table.remove(requests["first"])
    await asyncio.sleep(0)
    assert requests["last"].running
    assert order == ["first", "aborted", "last"]
    with pytest.raises(asyncio.CancelledError):
        await tasks[2]


async def test_a_place_given_to_one_who_leaves_is_passed_on() -> None:
    table = RequestTable(places=1)
    requests, _, tasks = await queue(table, first=0, leaving=0, last=0)
    table.remove(requests["first"])
    tasks[1].cancel()
    table.remove(requests["leaving"])
    await asyncio.sleep(0)
    assert requests["last"].running
    assert table.running == 1


async def test_queued_requests_are_served_by_priority() -> None:
    async with serving(max_running_requests=1, faults=("silent:0.05@1",)) as (engine, caller):
        ended: list[str] = []

        async def one(name: str, priority: int) -> None:
            await caller.generate(ask(request_id=name, priority=priority))
            ended.append(name)

        tasks: list[asyncio.Task[None]] = []
        for name, priority in {"running": 0, "low": -1, "high": 1}.items():
            tasks.append(asyncio.create_task(one(name, priority)))
            await asyncio.wait_for(engine.stats.until(lambda stats: stats.active == len(tasks)), 10)
        await asyncio.gather(*tasks)
    assert ended == ["running", "high", "low"]


async def test_remembered_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openengine_sidecar.launch.engine.requests.REMEMBERED", 2)
    table = RequestTable(places=9)
    for name in "abc":
        gone = request(name)
        table.add(gone)
        await table.run(gone, 0)
        table.remove(gone)
    assert [table.ended(name) for name in "abc"] == [False, True, True]

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable

import grpc.aio
import pytest
from blockbuster import BlockBuster
from nats.aio.client import Client

from openengine_sidecar.actors.config import AdmissionConfig
from openengine_sidecar.supervision.testing import crash_now
from tests.sidecar.conftest import LONG, Embedded
from tests.support.leaks import Census
from tests.support.waiting import eventually

ROUNDS = 12


async def whole(embedded: Embedded) -> None:
    await embedded.serves()


async def two_outputs(embedded: Embedded) -> None:
    caller = await embedded.accepted(sampling_options={"n": 2, "temperature": 1.0})
    await caller.closed.wait()


async def hung_up(embedded: Embedded) -> None:
    [caller] = await embedded.flowing()
    caller.kill()


async def reset(embedded: Embedded) -> None:
    [caller] = await embedded.flowing()
    assert caller.writer is not None
    caller.writer.transport.abort()


async def refused_by_us(embedded: Embedded) -> None:
    caller = await embedded.accepted(token_ids=[])
    await caller.closed.wait()


async def malformed(embedded: Embedded) -> None:
    await embedded.raw.send(embedded.subject, b"no frame at all")


async def nobody_to_answer_to(embedded: Embedded) -> None:
    await embedded.accepted(header={"address": "127.0.0.1:1"})


async def crashed(embedded: Embedded) -> None:
    [caller] = await embedded.flowing()
    [path] = [path for path in embedded.actors() if caller.subject in path]
    crash_now(embedded.sidecar.system, path)
    await caller.closed.wait()


def with_fault(fault: str) -> Callable[[Embedded], Awaitable[None]]:
    async def faulty(embedded: Embedded) -> None:
        caller = await embedded.accepted(extra_args={"metadata": {"fault": fault}})
        await caller.closed.wait()

    return faulty


async def silent_then_hung_up(embedded: Embedded) -> None:
    caller = await embedded.accepted(max_tokens=LONG, extra_args={"metadata": {"fault": "silent"}})
    records = embedded.engine.stats.records
    await eventually(lambda: any(caller.subject in engine_id for engine_id in records), "the engine holds it")
    caller.kill()


KINDS: dict[str, Callable[[Embedded], Awaitable[None]]] = {
    "whole": whole,
    "two outputs": two_outputs,
    "hung up": hung_up,
    "reset": reset,
    "silent, hung up": silent_then_hung_up,
    "refused by us": refused_by_us,
    "malformed": malformed,
    "nobody to answer to": nobody_to_answer_to,
    "crashed": crashed,
    "refused by the engine": with_fault("refuse"),
    "error": with_fault("error:internal,after=3"),
    "status": with_fault("status:unavailable,after=3"),
    "violation": with_fault("wrong-id:3"),
    "undecodable": with_fault("garbage:3"),
    "no terminal": with_fault("no-terminal:3"),
    "trailers": with_fault("trailers"),
    "deaf": with_fault("deaf;wrong-id:3"),
}


def tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}


async def test_f57_after_requests_of_every_kind_everything_is_as_before(embedded: Embedded) -> None:
    await embedded.start()
    for kind in KINDS.values():
        await kind(embedded)
    await embedded.idle()
    gc.collect()
    before, actors, known = Census.of(os.getpid()), embedded.actors(), len(asyncio.all_tasks())

    for _ in range(ROUNDS):
        await asyncio.gather(*(kind(embedded) for kind in KINDS.values()))
    await embedded.idle()
    await eventually(lambda: embedded.actors() == actors, "actors as before")
    await eventually(lambda: len(asyncio.all_tasks()) <= known, "tasks as before")
    await eventually(lambda: Census.of(os.getpid()).within(before), "sockets, files and threads as before")
    await embedded.serves()


async def test_refusals_above_the_limit_leave_nothing_either(embedded: Embedded) -> None:
    embedded.reconfigure(admission=AdmissionConfig(request_limit=1))
    await embedded.start()
    [caller] = await embedded.flowing()
    before, known = Census.of(os.getpid()), len(asyncio.all_tasks())
    for _ in range(ROUNDS):
        acknowledgement, _ = await embedded.ask()
        assert acknowledgement.startswith(b"Server overloaded:")
    assert len(asyncio.all_tasks()) <= known
    assert Census.of(os.getpid()).within(before)
    caller.kill()
    await embedded.idle()


async def test_after_its_end_no_task_of_it_is_left(embedded: Embedded) -> None:
    known = tasks()
    sidecar = await embedded.start()
    await embedded.serves()
    callers = await embedded.flowing(3)
    await sidecar.drain("too short", timeout=0.5)
    for caller in callers:
        await caller.closed.wait()
        assert caller.ended_once
    await eventually(lambda: not {name for name in tasks() - known if "/sidecar" in name}, "no task is left")
    await eventually(lambda: embedded.engine.stats.active == 0, "engine at rest")


async def test_f55_one_loop_owns_every_channel_and_connection(embedded: Embedded) -> None:
    await embedded.start()
    await embedded.serves()
    loop = asyncio.get_running_loop()
    channels = [thing for thing in gc.get_objects() if isinstance(thing, grpc.aio.Channel)]
    clients = [thing for thing in gc.get_objects() if isinstance(thing, Client) and thing.is_connected]
    assert len(channels) >= embedded.config.engine.connections + 1
    assert len(clients) >= 2
    owners = {id(channel._loop) for channel in channels if not _closed(channel)}
    owners |= {id(client._reading_task.get_loop()) for client in clients}
    assert owners == {id(loop)}


def _closed(channel: grpc.aio.Channel) -> bool:
    return channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


@pytest.fixture
def nobody_blocks() -> object:
    """Any call that blocks the loop, made by this package, raises."""
    buster = BlockBuster(scanned_modules=["openengine_sidecar.actors", "openengine_sidecar.supervision"])
    buster.activate()
    yield buster
    buster.deactivate()


async def test_f58_nothing_blocks_from_start_to_end(embedded: Embedded, nobody_blocks: object) -> None:
    assert nobody_blocks
    sidecar = await embedded.start()
    for kind in KINDS.values():
        await kind(embedded)
    await embedded.idle()
    await sidecar.drain("the test is over")
    assert (await sidecar.terminated()).normal

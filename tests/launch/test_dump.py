from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import Iterator
from typing import Never

import pytest
from loguru import logger

from openengine_sidecar.launch.dump import dump, install, waiting_at
from openengine_sidecar.supervision import Actor, ActorSystem, ChildSpec


class Waiter(Actor[Never]):
    async def on_start(self) -> None:
        self.background(self.outer(), name="outer task")

    async def outer(self) -> None:
        await self.inner()

    async def inner(self) -> None:
        await asyncio.get_running_loop().create_future()


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    sink = logger.add(stream, format="{extra[dump]}: {message}", filter=lambda record: "dump" in record["extra"])
    yield stream
    logger.remove(sink)


async def test_a_dump_shows_actors_and_where_tasks_wait(log: io.StringIO) -> None:
    system = ActorSystem()
    await system.start(ChildSpec(name="waiter", factory=Waiter))
    await asyncio.sleep(0)
    dump(system)
    await system.stop()
    lines = log.getvalue().splitlines()
    (actor,) = [line for line in lines if line.startswith("actors: /waiter")]
    assert "running" in actor
    (task,) = [line for line in lines if line.startswith("tasks: ") and "Waiter.inner" in line]
    assert "Waiter.inner (test_dump.py:" in task.partition(" <- ")[0]
    assert "Waiter.outer (test_dump.py:" in task.partition(" <- ")[2]


async def test_the_signal_dumps_and_the_process_goes_on(log: io.StringIO) -> None:
    system = ActorSystem()
    await system.start(ChildSpec(name="waiter", factory=Waiter))
    install(system)
    seen = asyncio.Event()
    sink = logger.add(lambda _: seen.set(), filter=lambda record: record["extra"].get("dump") == "tasks")
    os.kill(os.getpid(), signal.SIGUSR1)
    await seen.wait()
    logger.remove(sink)
    assert "actors: /waiter" in log.getvalue()
    assert system.ref("/waiter").is_alive
    await system.stop()
    asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)


async def test_a_coroutine_that_has_not_started_stands_at_its_head() -> None:
    async def idle() -> None: ...

    coroutine = idle()
    (place,) = waiting_at(coroutine)
    await coroutine
    assert place.startswith("test_a_coroutine_that_has_not_started_stands_at_its_head.<locals>.idle (test_dump.py:")
    assert list(waiting_at(coroutine)) == []

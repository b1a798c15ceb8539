"""What a process is doing right now, written to the log: the actor tree, and every task of the loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

from loguru import logger

from openengine_sidecar.launch import tree_view
from openengine_sidecar.supervision import ActorSystem

DEEPEST = 32


def install(system: ActorSystem) -> None:
    """Dump to the log on SIGUSR1, for as long as the running loop lives. Call it on the loop."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, dump, system)


def dump(system: ActorSystem) -> None:
    """Log the actor tree, a record per actor, then each task with where it waits. Call it on the loop."""
    log = logger.bind(dump="actors")
    for line in tree_view.plain(tree_view.lines(system.snapshot(), most_siblings=len(system.snapshot()))).splitlines():
        log.info("{}", line)
    log = logger.bind(dump="tasks")
    for task in sorted(asyncio.all_tasks(), key=lambda each: each.get_name()):
        log.info("{}: {}", task.get_name(), " <- ".join(reversed(list(waiting_at(task.get_coro())))) or "not started")


def waiting_at(awaitable: Any) -> Iterator[str]:
    """Yield where a suspended coroutine stands, outermost first: `function (file:line)`."""
    for _ in range(DEEPEST):
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "gi_frame", None)
        if frame is None:
            return
        code = frame.f_code
        yield f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})"
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)

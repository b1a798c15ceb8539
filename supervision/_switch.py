"""Direct switches: who is about to wait for an idle actor, or for the start of one, runs its coroutine at once.

Two trips through the event loop are saved, which is most of what an ask or a start costs. The coroutine runs as its own
task and in its own context all the same; if it has to wait for something, its task goes on from there.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task  # documented for task implementations in "Extending asyncio"
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from openengine_sidecar.supervision._host import Host

MAX_DEPTH: Final = 16
"""Switches nested in one another; more go through the loop."""


def begin(host: Host, handler: Coroutine[Any, Any, Any]) -> Any:
    """Run a handler to its first wait, in the name of the host's task, which sleeps.

    Returns:
        What it waits for.

    Raises:
        StopIteration: it had nothing to wait for; the value is what it returned.
        BaseException: it failed.
    """
    system, task = host.system, host.task
    loop = system.loop
    asker = asyncio.current_task(loop)
    if asker is not None:
        _leave_task(loop, asker)
    _enter_task(loop, task)
    system.depth += 1
    try:
        return host.context.run(handler.send, None)
    finally:
        system.depth -= 1
        _leave_task(loop, task)
        if asker is not None:
            _enter_task(loop, asker)


class Continued:
    """A hook or handler that somebody else has begun, and that its own task finishes by awaiting this."""

    __slots__ = ("_handler", "_interruption", "_pending")

    def __init__(self, handler: Coroutine[Any, Any, Any], pending: Any) -> None:
        self._handler = handler
        self._pending = pending
        self._interruption: BaseException | None = None

    def interrupt(self, error: BaseException) -> None:
        """The task was cancelled before it could take over; so is what the handler waits for."""
        pending = self._pending
        if pending is None or not pending.cancel():
            self._interruption = error

    def __await__(self) -> Generator[Any, Any, Any]:
        handler, pending, error = self._handler, self._pending, self._interruption
        sent: Any = None
        while True:
            if error is None:
                try:
                    sent = yield pending
                except GeneratorExit:
                    handler.close()
                    raise
                except BaseException as thrown:  # noqa: BLE001 - belongs to the handler
                    error = thrown
            try:
                pending = handler.send(sent) if error is None else handler.throw(error)
            except StopIteration as stop:
                return stop.value
            error = None

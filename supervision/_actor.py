"""Actors on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from openengine_sidecar.messages.signals import Cancel, Cause, Drain, Terminated
from openengine_sidecar.supervision._behaviour import Behaviour
from openengine_sidecar.supervision._children import spawn
from openengine_sidecar.supervision._host import Host
from openengine_sidecar.supervision._loop_host import LoopHost
from openengine_sidecar.supervision._ref import Ref
from openengine_sidecar.supervision._spec import ChildSpec

M = TypeVar("M")
T = TypeVar("T")


class Actor(Behaviour[M]):
    """An actor whose hooks and handlers are coroutines on the system's event loop.

    `class Gate(Actor[Request | Settled])` declares the closed protocol: anything else told becomes a dead letter,
    anything else asked fails the ask. One hook or handler runs at a time, but for `on_drain`, which has a task of its
    own. What any of them raises ends this life, and its supervisor decides what comes next.
    """

    _host_type: ClassVar[type[Host]] = LoopHost

    async def on_start(self) -> None:
        """Get ready; raising means that the start failed."""

    async def on_message(self, message: M) -> object:
        """Handle one message.

        Returns:
            The reply, should this be an ask. A future or task is a deferred reply: the mailbox goes on, and the asker
            is answered when it is done.
        """
        raise NotImplementedError(type(message).__name__)

    def become(self, handler: Callable[[M], Coroutine[Any, Any, object]]) -> None:
        """Give messages to `handler` instead of `on_message`, from the next one on: a state, as in a state machine."""
        self._host.handle = handler

    async def on_drain(self, drain: Drain) -> None:
        """Finish what is under way; returning means drained. Mail and signals keep flowing meanwhile."""

    async def on_cancel(self, cancel: Cancel) -> None:
        """Give up what is under way; by default, stop."""
        del cancel
        self.stop()

    async def on_terminated(self, terminated: Terminated) -> None:
        """A watched actor, or a child, is gone for good."""

    async def on_stop(self, cause: Cause) -> None:
        """Clean up. Runs once `on_start` was entered, however this life ends; the children have ended before."""

    async def spawn(self, spec: ChildSpec) -> Ref[Any]:
        """Start a temporary child; `on_terminated` hears of its end, and it is never restarted.

        Returns:
            Its ref, once it is ready.

        Raises:
            Exception: what its factory or `on_start` raised.
            NotReadyError: it was not ready within its ready_timeout.
            ChildSpecError: a sibling has that name.
        """
        return await spawn(self._host, spec)

    def background(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run a coroutine beside the mailbox. Its failure is this actor's failure; it is cancelled before on_stop."""
        return self._host.adopt_task(coro, name)

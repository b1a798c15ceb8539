"""Actors on a thread of their own, for work that blocks."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from openengine_sidecar.messages.signals import Cancel, Cause, Drain, Terminated
from openengine_sidecar.supervision._behaviour import Behaviour
from openengine_sidecar.supervision._children import spawn
from openengine_sidecar.supervision._host import Host
from openengine_sidecar.supervision._ref import Ref
from openengine_sidecar.supervision._spec import ChildSpec
from openengine_sidecar.supervision._thread_host import Cancellation, ThreadHost
from openengine_sidecar.supervision.errors import ThreadCancelledError

M = TypeVar("M")
T = TypeVar("T")


class ThreadActor(Behaviour[M]):
    """The twin of `Actor` whose hooks and handlers may block: they run, one at a time, on a thread of their own.

    A thread cannot be interrupted. When its patience with this actor ends, the supervisor sets `cancelled`; long work
    looks at it, or calls `checkpoint`, and gives up. An actor that does not is abandoned, as a daemon.
    """

    _host_type: ClassVar[type[Host]] = ThreadHost

    def on_start(self) -> None:
        """Get ready; raising means that the start failed."""

    def on_message(self, message: M) -> object:
        """Handle one message.

        Returns:
            The reply, should this be an ask. A `concurrent.futures.Future` or an `AskFuture` is a deferred reply.
        """
        raise NotImplementedError(type(message).__name__)

    def become(self, handler: Callable[[M], object]) -> None:
        """Give messages to `handler` instead of `on_message`, from the next one on: a state, as in a state machine."""
        self._host.handle = handler

    def on_drain(self, drain: Drain) -> object:
        """Finish what is under way, between two messages.

        Returns:
            A `concurrent.futures.Future` or an `AskFuture` that ends the drain while mail keeps flowing, or anything
            else: drained.
        """

    def on_cancel(self, cancel: Cancel) -> None:
        """Give up what is under way; by default, stop."""
        del cancel
        self.stop()

    def on_terminated(self, terminated: Terminated) -> None:
        """A watched actor, or a child, is gone for good."""

    def on_stop(self, cause: Cause) -> None:
        """Clean up. Runs once `on_start` was entered, however this life ends; the children have ended before."""

    @property
    def cancelled(self) -> Cancellation:
        """Set once this actor has to give up what it is doing."""
        return self._thread_host.cancelled

    def checkpoint(self) -> None:
        """Call it now and then in long work.

        Raises:
            ThreadCancelledError: this actor has to give up what it is doing.
        """
        if self.cancelled.is_set():
            raise ThreadCancelledError(self.path)

    def spawn(self, spec: ChildSpec) -> Ref[Any]:
        """Start a temporary child and wait until it is ready; see `Actor.spawn`."""
        host = self._thread_host
        return host.system.wait_for(spawn(host, spec))

    def background(self, coro: Coroutine[Any, Any, T], *, name: str) -> concurrent.futures.Future[T]:
        """Run a coroutine on the system's event loop. Its failure is this actor's failure."""
        host = self._thread_host
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        host.system.run_on_loop(_relay, host, coro, name, outcome)
        return outcome

    @property
    def _thread_host(self) -> ThreadHost:
        host = self._host
        return host if isinstance(host, ThreadHost) else self._not_alive()


def _relay(host: Host, coro: Coroutine[Any, Any, T], name: str, outcome: concurrent.futures.Future[T]) -> None:
    def finish(task: asyncio.Task[T]) -> None:
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            outcome.cancel()
        elif error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    host.adopt_task(coro, name).add_done_callback(finish)

"""The reply to an ask: awaited on any event loop, or waited for by any thread that runs none."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pykka

from openengine_sidecar.supervision._clock import INFINITY, TimerHandle
from openengine_sidecar.supervision._counters import Count
from openengine_sidecar.supervision._current import MARK, Nap, current_host
from openengine_sidecar.supervision.errors import AskTimeoutError, BlockingCallError, ThreadCancelledError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._cell import Cell
    from openengine_sidecar.supervision._host import Host
    from openengine_sidecar.supervision._ref import Ref

T = TypeVar("T")

ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


def refuse_to_block(what: str) -> None:
    """Raise at once where blocking would stop an event loop, and with it whoever is to answer.

    Raises:
        BlockingCallError: this thread runs an event loop.
    """
    if _running_loop() is None:
        return
    msg = f"{what} would block the event loop of this thread; await it"
    raise BlockingCallError(msg)


class AskFuture(pykka.Future[T]):
    """A pykka future with a real `await`, a deadline, and exactly one outcome. It carries its ask through the mailbox.

    Attributes:
        message: what is asked.
        sender: which actor asks, None elsewhere.
        postponed: whether the callee has put the ask aside.
        target: who is asked, None where plain pykka asks.
        deferred: whether the handler has returned, and the reply comes by itself.
        timeout: seconds that the asker is willing to wait, `INFINITY` where plain pykka asks.
        deadline: when that is over, on the system's clock.
    """

    # Defaults on the class keep the making of one cheap; so pykka's own __init__ is not called.
    _get_hook: Callable[[float | None], T] | None = None
    _done = False
    _value: Any = None
    _error: BaseException | None = None
    _waiter: asyncio.Future[None] | None = None
    _callbacks: list[Callable[[], None]] | None = None
    _timer: TimerHandle | None = None
    _armed = False
    _expected = False
    target: Cell | None = None
    message: object = None
    sender: Ref[Any] | None = None
    postponed = False
    deferred = False
    deadline = INFINITY
    timeout = INFINITY

    def __init__(self, target: Cell | None = None, message: object = None, timeout: float = INFINITY) -> None:
        self._open = threading.Lock()
        if target is not None:
            self.target = target
            self.message = message
            self.timeout = timeout
            self.deadline = target.system.now() + timeout

    def __repr__(self) -> str:
        return f"<AskFuture {'done' if self._done else 'pending'}>"

    @property
    def reply(self) -> Self:
        """What the callee answers to."""
        return self

    @property
    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._done

    @property
    def error(self) -> BaseException | None:
        """The error given for a reply, None before that, or for a reply."""
        return self._error

    @property
    def value(self) -> Any:
        """The reply, None before that."""
        return self._value

    def expire(self) -> bool:
        """Give up waiting; returns False if there was an outcome already."""
        path = self.target.path if self.target is not None else "?"
        return self.fail(AskTimeoutError(path, self.timeout))

    def answer(self, value: T | None) -> bool:
        """Give the reply; returns False, and counts it, if there was an outcome already."""
        if self._open.acquire(blocking=False):
            self._value = value
            self._done = True
            if self._expected:
                self._announce()
            return True
        if isinstance(self._error, AskTimeoutError) and self.target is not None:
            self.target.system.counters.add(Count.LATE_REPLIES)
        return False

    def fail(self, error: BaseException) -> bool:
        """Give an error for a reply; returns False if there was an outcome already."""
        if not self._open.acquire(blocking=False):
            return False
        self._error = error
        self._done = True
        if self._expected:
            self._announce()
        return True

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback()` once there is an outcome, on the thread that brings it; at once if it is there."""
        self._expected = True
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)
        if self.done:
            self._run_callbacks()
        else:
            self._arm()

    def get(self, *, timeout: float | None = None) -> Any:
        """Block until the reply is there. For threads that run no event loop.

        Args:
            timeout: real seconds to wait at most, None for as long as the ask itself may take.

        Raises:
            BlockingCallError: this thread runs an event loop; raised at once, reply or not.
            AskTimeoutError: no reply in time.
            ThreadCancelledError: the thread-hosted actor that waits here has to give up.
        """
        refuse_to_block("get()")
        if self._get_hook is not None and not self._done:
            self.answer(self._get_hook(timeout))
        if not self._done:
            self._block(timeout)
        return self._outcome()

    def set(self, value: T | None = None) -> None:
        """Give the reply, as pykka does.

        Raises:
            queue.Full: there was an outcome already.
        """
        if not self.answer(value):
            raise queue.Full

    def set_exception(self, exc_info: ExcInfo | None = None) -> None:
        """Give an error for a reply, by default the one being handled, as pykka does.

        Raises:
            queue.Full: there was an outcome already.
        """
        error = (exc_info or sys.exc_info())[1]
        if error is None or not self.fail(error):
            raise queue.Full

    def set_get_hook(self, func: Callable[[float | None], T]) -> None:
        """Compute the value on `get()`, as pykka does for `ActorRef.stop`."""
        self._get_hook = func

    def __await__(self) -> Generator[None, None, T]:
        if not self._done:
            host = current_host() if MARK.get() is not None else None
            if host is not None:
                yield from self._wait_as(host)
            else:
                callee = self.target.host if self.target is not None else None
                if callee is not None and callee.parked:
                    callee.handle_now(self)
                if not self.done:
                    yield from self._new_waiter()
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def _wait_as(self, host: Host) -> Generator[None, None, None]:
        host.asking = self
        try:
            callee = self.target.host if self.target is not None else None
            if callee is not None and callee.parked:
                callee.handle_now(self)
            if not self._done:
                host.refuse_deadlock()
                yield from self._new_waiter()
        finally:
            host.asking = None

    def _block(self, timeout: float | None) -> None:
        nap, host = Nap(), current_host()
        self.when_done(nap.wake)
        if host is None:
            in_time = nap.sleep(self._patience(timeout))
        else:
            host.asking = self
            try:
                host.refuse_deadlock()
                with host.on_interrupt(nap.wake):
                    in_time = nap.sleep(self._patience(timeout))
            finally:
                host.asking = None
        if self._done:
            return
        if in_time:
            msg = "cancelled while waiting for a reply"
            raise ThreadCancelledError(msg)
        self.expire()

    def _new_waiter(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiter is None:
            self._waiter = waiter
            self._expected = True
            if self._done:  # settled by another thread, which may not have seen the waiter
                _finish(waiter)
            self._arm()
        else:
            self.when_done(lambda: _wake(waiter))
        return waiter

    def _arm(self) -> None:
        """Have the loop start the timer once it comes round: most replies are there by then."""
        if not self._armed and self.target is not None and self.deadline != INFINITY:
            self._armed = True
            self.target.system.soon(self._start_timer)

    def _start_timer(self) -> None:
        if not self._done and self.target is not None:
            self._timer = self.target.system.clock.call_at(self.deadline, self.expire)

    def _patience(self, timeout: float | None) -> float | None:
        if timeout is not None:
            return timeout
        # The timer on the loop ends the wait; this only bounds it should that loop be gone or stuck.
        return self.timeout + 1.0 if self.timeout != INFINITY else None

    def _outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def _announce(self) -> None:
        if self._timer is not None:
            self._cancel_timer()
        if self._waiter is not None:
            _wake(self._waiter)
        if self._callbacks is not None:
            self._run_callbacks()

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and self.target is not None:
            self.target.system.run_on_loop(timer.cancel)

    def _run_callbacks(self) -> None:
        callbacks = self._callbacks
        while callbacks:
            try:
                callback = callbacks.pop()
            except IndexError:  # settled and registered at once, on two threads
                return
            callback()


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wake(waiter: asyncio.Future[None]) -> None:
    loop = waiter.get_loop()
    if _running_loop() is loop:
        _finish(waiter)
    elif not loop.is_closed():
        loop.call_soon_threadsafe(_finish, waiter)

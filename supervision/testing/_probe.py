"""Probes: actors that remember what they hear, for tests to look at."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeVar

from openengine_sidecar.messages.signals import Cause, Terminated
from openengine_sidecar.supervision._actor import Actor

T = TypeVar("T")


class Probe(Actor[object]):
    """Understands every message, and remembers it; ends of watched actors too.

    Attributes:
        heard: every message and every Terminated, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[object] = []
        self._fresh: deque[object] = deque()
        self._waiter: asyncio.Future[None] | None = None

    async def on_message(self, message: object) -> object:
        """Remember it; asked, echo it."""
        self._take(message)
        return message

    async def on_terminated(self, terminated: Terminated) -> None:
        """Remember it."""
        self._take(terminated)

    async def next(self, kind: type[T], *, timeout: float = 10.0) -> T:
        """Take what was heard next, waiting for it if need be.

        Args:
            kind: what it has to be.
            timeout: real seconds to wait at most.

        Raises:
            AssertionError: something else was heard.
            TimeoutError: nothing was heard.
        """
        async with asyncio.timeout(timeout):
            while not self._fresh:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        message = self._fresh.popleft()
        if not isinstance(message, kind):
            msg = f"expected {kind.__name__}, heard {message!r}"
            raise AssertionError(msg)  # noqa: TRY004 - a test's expectation, not a type
        return message

    async def end_of(self, path: str, *, timeout: float = 10.0) -> Cause:
        """Take the end of a watched actor, which has to be what was heard next.

        Raises:
            AssertionError: something else was heard.
            TimeoutError: nothing was heard.
        """
        terminated = await self.next(Terminated, timeout=timeout)
        if terminated.address.path != path:
            msg = f"expected the end of {path}, heard {terminated!r}"
            raise AssertionError(msg)
        return terminated.cause

    def _take(self, message: object) -> None:
        self.heard.append(message)
        self._fresh.append(message)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar, overload

T = TypeVar("T")

GENEROUS_SECONDS = 30.0
_POLL_SECONDS = 0.01


@overload
async def eventually(probe: Callable[[], Awaitable[T]], what: str, *, timeout: float = ...) -> T: ...


@overload
async def eventually(probe: Callable[[], T], what: str, *, timeout: float = ...) -> T: ...


async def eventually(probe: Callable[[], Any], what: str, *, timeout: float = GENEROUS_SECONDS) -> Any:
    """Waits until `probe` returns something true, and returns that."""
    deadline = time.monotonic() + timeout
    while True:
        answer = probe()
        if isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if time.monotonic() > deadline:
            message = f"never: {what} (last answer {answer!r})"
            raise AssertionError(message)
        await asyncio.sleep(_POLL_SECONDS)


async def unchanging(probe: Callable[[], T], what: str, *, rounds: int = 30) -> T:
    """Waits until `probe` returned the same thing many times in a row: whatever changes it has come to rest."""
    last, seen = probe(), 0

    def rests() -> bool:
        nonlocal last, seen
        now = probe()
        last, seen = now, seen + 1 if now == last else 0
        return seen >= rounds

    await eventually(rests, f"{what} at rest")
    return last

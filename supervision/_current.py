"""Which actor is running here: the one whose hook or handler this task, or this thread, is in right now."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from openengine_sidecar.supervision._host import Host

MARK: Final[ContextVar[Host | None]] = ContextVar("openengine_sidecar_actor", default=None)
"""Whose context this is. Without a mark no actor runs here; hot paths ask that first."""


def enter(host: Host) -> None:
    """Mark this task's, or this thread's, context as the host's."""
    MARK.set(host)


def current_host() -> Host | None:
    """The host whose hook or handler runs here; None elsewhere, also in its background tasks.

    Tasks inherit the context of whoever started them, so the mark alone proves nothing.
    """
    host = MARK.get()
    return host if host is not None and host.is_current() else None


class Nap:
    """What a thread waits for. Whoever wakes it also says that its actor is at work again, before it is."""

    def __init__(self) -> None:
        self._host = current_host()
        self._lock = threading.Lock()
        self._over = threading.Event()

    def sleep(self, timeout: float | None) -> bool:
        """Wait at most `timeout` real seconds; returns whether somebody called `wake`."""
        with self._lock:
            self._mark(napping=not self._over.is_set())
        woken = self._over.wait(timeout)
        self._mark(napping=False)
        return woken

    def wake(self, *_: object) -> None:
        """End it, or keep it from beginning; any thread."""
        with self._lock:
            self._over.set()
            self._mark(napping=False)

    def _mark(self, *, napping: bool) -> None:
        if self._host is not None:
            self._host.napping = napping

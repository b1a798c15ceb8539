"""Which actor is running here: the one whose hook or handler this task, or this thread, is in right now."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openengine_sidecar.supervision._host import Host

_HOST: ContextVar[Host | None] = ContextVar("openengine_sidecar_actor", default=None)


def enter(host: Host) -> None:
    """Mark this task's, or this thread's, context as the host's."""
    _HOST.set(host)


def current_host() -> Host | None:
    """The host whose hook or handler runs here; None elsewhere, also in its background tasks.

    Tasks inherit the context of whoever started them, so the mark alone proves nothing.
    """
    host = _HOST.get()
    return host if host is not None and host.is_current() else None


@contextmanager
def asleep() -> Generator[None]:
    """Mark the actor of this thread, if any, as waiting for others rather than at work."""
    host = current_host()
    if host is None:
        yield
        return
    host.asleep = True
    try:
        yield
    finally:
        host.asleep = False

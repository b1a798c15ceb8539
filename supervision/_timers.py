"""Keyed timers: their messages arrive as the actor's own mail, and never after they were called off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openengine_sidecar.supervision._inbox import Tick

if TYPE_CHECKING:
    from openengine_sidecar.supervision._host import Host


def schedule(host: Host, key: str, delay: float, message: object) -> None:
    """Set the timer `key` anew. Loop thread only."""
    cancel_timer(host, key)
    if host.over:
        return
    tick = Tick(key, message)
    clock = host.system.clock
    host.timers[key] = (tick, clock.call_at(clock.monotonic() + max(0.0, delay), host.cell.put_tick, tick))


def cancel_timer(host: Host, key: str) -> None:
    """Call the timer off; its tick, if it waits in the mailbox, is stale from now on. Loop thread only."""
    timer = host.timers.pop(key, None)
    if timer is not None:
        timer[1].cancel()

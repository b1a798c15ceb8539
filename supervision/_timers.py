"""Keyed timers: their messages arrive as the actor's own mail, and never after they were called off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openengine_sidecar.supervision._inbox import Tick

if TYPE_CHECKING:
    from openengine_sidecar.supervision._host import Host


def schedule(host: Host, key: str, delay: float, message: object) -> None:
    """Set the timer `key` anew; what it was set to before is stale at once."""
    cancel_timer(host, key)
    tick = host.timers[key] = Tick(key, message)
    host.system.run_on_loop(_arm, host, tick, host.system.clock.monotonic() + max(0.0, delay))


def cancel_timer(host: Host, key: str) -> None:
    """Call the timer off; its tick, should it wait in the mailbox, is stale from now on."""
    tick = host.timers.pop(key, None)
    if tick is not None:
        host.system.run_on_loop(_disarm, tick)


def cancel_timers(host: Host) -> None:
    """Call every timer off. Loop thread only."""
    for key in tuple(host.timers):
        cancel_timer(host, key)


def _arm(host: Host, tick: Tick, when: float) -> None:
    if host.timers.get(tick.key) is tick and not host.over:
        tick.handle = host.system.clock.call_at(when, host.cell.put_tick, tick)


def _disarm(tick: Tick) -> None:
    if tick.handle is not None:
        tick.handle.cancel()

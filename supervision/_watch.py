"""Death watch. What an actor watches is its own affair, on its own thread; cells only send word of their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openengine_sidecar.messages.signals import Terminated
from openengine_sidecar.supervision._inbox import Notice

if TYPE_CHECKING:
    from openengine_sidecar.supervision._host import Host
    from openengine_sidecar.supervision._ref import Ref


def watch(host: Host, ref: Ref[Any]) -> None:
    """Begin to watch."""
    cell = ref.resolve()
    host.watching[cell.path] = cell
    host.system.run_on_loop(cell.add_watcher, host)


def unwatch(host: Host, ref: Ref[Any]) -> None:
    """Watch no more: word that is on its way falls on deaf ears."""
    cell = host.watching.pop(ref.path, None)
    if cell is not None:
        host.system.run_on_loop(cell.remove_watcher, host)


def heard(host: Host, notice: Notice) -> Terminated | None:
    """What to make of word of an end: None if the actor does not watch that one any more."""
    if host.watching.get(notice.terminated.address.path) is not notice.cell:
        return None
    del host.watching[notice.terminated.address.path]
    return notice.terminated

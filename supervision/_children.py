"""The children of one life: adopted, spawned, told to drain, stopped, and buried."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from openengine_sidecar.messages.signals import Cause, CauseKind, Drain, Terminated
from openengine_sidecar.supervision._cell import Cell
from openengine_sidecar.supervision._clock import INFINITY, Limit, within
from openengine_sidecar.supervision._life import LAST_WORDS
from openengine_sidecar.supervision._ref import Ref
from openengine_sidecar.supervision._spec import ChildSpec
from openengine_sidecar.supervision._status import ActorState
from openengine_sidecar.supervision.errors import ChildSpecError, StartError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._host import Host


def adopt(host: Host, spec: ChildSpec, *, follows: bool) -> Cell:
    """Open an address below `host`; mail is held from now on.

    Raises:
        ChildSpecError: a sibling has that name.
        StartError: the parent is about to end.
    """
    path = f"{host.cell.path}/{spec.name}"
    if spec.name in host.children:
        msg = f"{path} is taken"
        raise ChildSpecError(msg)
    if host.over or host.cell.state is ActorState.STOPPING:
        raise StartError(path, Cause(CauseKind.STOPPED, "its parent is stopping"))
    cell = Cell(host.system, host, spec, path)
    cell.follows = follows
    host.children[spec.name] = cell
    host.system.enroll(cell)
    return cell


async def spawn(host: Host, spec: ChildSpec) -> Ref[Any]:
    """Start a temporary child. Whoever spawns while draining gets a child that drains."""
    cell = adopt(host, spec, follows=False)
    try:
        await cell.start()
    except BaseException as error:
        if cell.host is not None:  # the spawner gave up waiting
            cell.host.request_stop("given up while starting")
        elif cell.end is None:  # the factory raised
            bury(host, cell, cell.failure or Cause(CauseKind.FAILED, str(error)))
        raise
    if host.draining is not None:
        cell.send_drain(host.draining)
    return cell.ref


def bury(host: Host, cell: Cell, cause: Cause) -> None:
    """Give a child's address up."""
    cell.remove_watcher(host)
    host.watching.pop(cell.path, None)
    host.children.pop(cell.spec.name, None)
    cell.close(cause)


def child_over(host: Host, cell: Cell, terminated: Terminated) -> None:
    """A child's only life is over: its parent is told, unless the start itself told it already."""
    bury(host, cell, terminated.cause)
    if cell.was_ready:
        host.cell.post(terminated)


async def stop_together(cells: Iterable[Cell], by: float = INFINITY) -> None:
    """Stop children at the same time, the youngest first in line."""
    youngest_first = tuple(reversed(tuple(cells)))
    await asyncio.gather(*(cell.shut_down(by) for cell in youngest_first))


async def kill_together(cells: Iterable[Cell]) -> None:
    """Cancel children at once, and give them a moment to notice."""
    hosts = [cell.host for cell in cells if cell.host is not None]
    for host in hosts:
        host.kill()
    if hosts:
        ends = asyncio.gather(*(host.task for host in hosts), return_exceptions=True)
        await within(hosts[0].system.clock, ends, LAST_WORDS)


def orphan(host: Host) -> None:
    """The life is over, however it came: nobody below it may outlive it."""
    for cell in reversed(tuple(host.children.values())):
        if cell.host is not None:
            cell.host.abandon()
        bury(host, cell, Cause(CauseKind.ABANDONED, "its parent is gone"))


async def drain_together(host: Host, drain: Drain) -> None:
    """Drain a parent and its children side by side: it hears first, so that it takes on nothing new."""
    own = host.adopt_task(host.drain_self(drain), "on_drain")
    await asyncio.sleep(0)
    children = tuple(reversed(tuple(host.children.values())))
    for cell in children:
        cell.send_drain(host.draining or drain)
    await own
    for cell in children:
        if cell.host is not None:
            await cell.host.drained


def send_drain_if_up(cell: Cell, drain: Drain) -> None:
    """Tell a child to drain, unless it is not up: it has nothing to drain then."""
    if _can_drain(cell):
        cell.send_drain(drain)


async def wait_drained(cell: Cell, limit: Limit) -> None:
    """Wait for a child that was told to drain, at most until the limit."""
    if cell.host is not None and _can_drain(cell):
        await limit.wait(cell.host.drained)


def _can_drain(cell: Cell) -> bool:
    return cell.host is not None and (cell.host.ready or cell.host.supervises)

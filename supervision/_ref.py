"""Refs: the stable addresses actors are spoken to by."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from openengine_sidecar.messages.signals import Cancel, Cause, Drain
from openengine_sidecar.supervision._clock import within
from openengine_sidecar.supervision._current import MARK, current_host
from openengine_sidecar.supervision._future import AskFuture
from openengine_sidecar.supervision._inbox import Envelope
from openengine_sidecar.supervision.errors import AskDeadlockError, AskTimeoutError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._cell import Cell

M_contra = TypeVar("M_contra", contravariant=True)


class Ref(Generic[M_contra]):
    """Address of an actor; survives its lives, and is equal to every other ref to the same path of the same system.

    Refs from `ActorSystem.ref` and refs to a supervisor's children mean whoever lives at the path, now or later. A
    ref from `Actor.spawn` means that one child: it is not taken over by a later child of the same name.
    """

    __slots__ = ("_cell", "_follows")

    def __init__(self, cell: Cell, *, follows: bool) -> None:
        self._cell = cell
        self._follows = follows

    @property
    def path(self) -> str:
        """Where the actor stands in the tree."""
        return self._cell.path

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self._cell.path.rpartition("/")[2]

    @property
    def is_alive(self) -> bool:
        """Whether the address is in use: its actor lives, starts, or waits to be restarted."""
        return self.resolve().limit >= 0

    def tell(self, message: M_contra, *, sender: Ref[Any] | None = None) -> None:
        """Send a message; any thread, never blocks.

        What one sender tells one receiver arrives in order. What cannot be delivered becomes a dead letter.

        Raises:
            MailboxFullError: the mailbox is full and its policy is to refuse.
        """
        cell = self._cell
        mail = cell.mail
        if len(mail) >= cell.limit:
            self.resolve().put(message if sender is None else Envelope(message, sender))
            return
        mail.append(message if sender is None else Envelope(message, sender))
        if cell.waiter is not None:
            cell.wake()
        elif cell.limit < 0:
            cell.flush()

    async def offer(self, message: M_contra, *, timeout: float) -> None:
        """Send a message as soon as the mailbox has room; whoever waits longest comes first. On the system's loop.

        Raises:
            AskTimeoutError: there was no room in time.
            ActorGoneError: nobody lives at the address, or nobody does any more.
        """
        cell = self.resolve()
        entering = asyncio.ensure_future(cell.squeeze_in(message))
        in_time = False
        try:
            in_time = await within(cell.system.clock, entering, timeout)
        finally:
            if not in_time:
                entering.cancel()
        if not in_time:
            raise AskTimeoutError(cell.path, timeout)
        entering.result()

    def ask(self, message: M_contra, *, timeout: float) -> AskFuture[Any]:
        """Send a message and get hold of its reply; any thread, never blocks.

        Args:
            message: what to ask.
            timeout: seconds until the asker gives up; the callee sees the deadline, and skips what has expired.

        Returns:
            A future to await, or to `get()` from a thread without an event loop. It fails with AskTimeoutError,
            ActorGoneError, MailboxFullError, UnknownMessageError, or with what the handler raised.

        Raises:
            AskDeadlockError: an actor asks itself from its own hook or handler; a background task may.
        """
        cell = self._cell
        if cell.limit < 0:
            cell = self.resolve()
        host = current_host() if MARK.get() is not None else None
        if host is not None and host is cell.host:
            raise AskDeadlockError((cell.path, cell.path))
        reply: AskFuture[Any] = AskFuture(cell, message, timeout)
        if host is not None:
            reply.sender = host.cell.ref
        if len(cell.mail) >= cell.limit:
            cell.put(reply)
            return reply
        cell.mail.append(reply)
        if cell.waiter is not None:
            cell.wake()
        elif cell.limit < 0:
            cell.flush()
        return reply

    def drain(self, deadline: float, reason: str) -> None:
        """Send `Drain`; any thread. A later deadline than one already known changes nothing."""
        cell = self.resolve()
        cell.system.run_on_loop(cell.send_drain, Drain(deadline, reason))

    def cancel(self, reason: str) -> None:
        """Send `Cancel`; any thread."""
        self.resolve().post(Cancel(reason))

    async def stopped(self) -> Cause:
        """Wait, on the system's loop, until the address is gone for good; returns why, at once if it is gone."""
        return await self.resolve().wait_gone()

    def resolve(self) -> Cell:
        """Whoever lives at the address now. For the kit."""
        cell = self._cell
        if cell.limit < 0 and self._follows:
            self._cell = cell = cell.system.resolve(cell)
        return cell

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ref):
            return NotImplemented
        return self._cell.path == other._cell.path and self._cell.system is other._cell.system

    def __hash__(self) -> int:
        return hash(self._cell.path)

    def __repr__(self) -> str:
        return f"<Ref {self._cell.path}>"

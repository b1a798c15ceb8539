"""Mailboxes: two lanes, bounded, closed atomically, filled from any thread without a lock.

A producer appends first and looks at the flags afterwards; a consumer raises its flag first and looks at the lanes
afterwards. Whatever the interleaving, one of the two sees the other, so that no wake-up and no letter is lost.
"""

from __future__ import annotations

import queue
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from openengine_sidecar.messages.signals import Signal, Terminated
from openengine_sidecar.supervision._clock import TimerHandle
from openengine_sidecar.supervision._counters import Count
from openengine_sidecar.supervision._dead_letters import DeadLetter, DeadReason
from openengine_sidecar.supervision._future import AskFuture
from openengine_sidecar.supervision._spec import Mailbox, Overflow
from openengine_sidecar.supervision.errors import ActorGoneError, MailboxFullError

if TYPE_CHECKING:
    import asyncio

    from openengine_sidecar.supervision._cell import Cell
    from openengine_sidecar.supervision._ref import Ref
    from openengine_sidecar.supervision._system import ActorSystem

CLOSED: Final = -1


class Envelope:
    """A message told, with its sender. A plain tell travels without one, and an ask is its own."""

    __slots__ = ("message", "postponed", "sender")

    reply = None

    def __init__(self, message: object, sender: Ref[Any] | None = None) -> None:
        self.message = message
        self.sender = sender
        self.postponed = False


Letter = Envelope | AskFuture[Any]


class Tick:
    """A timer, and its message on the way through the mailbox; stale once the timer is cancelled or set anew."""

    __slots__ = ("handle", "key", "message")

    def __init__(self, key: str, message: object) -> None:
        self.key = key
        self.message = message
        self.handle: TimerHandle | None = None


class Notice:
    """Word to a watcher that somebody it watches, or watched, is gone for good."""

    __slots__ = ("cell", "terminated")

    def __init__(self, cell: Cell, terminated: Terminated) -> None:
        self.cell = cell
        self.terminated = terminated


class Bell:
    """What a thread sleeps on."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """Wake the sleeper, or keep it from falling asleep."""
        self._queue.put(None)

    def sleep(self) -> None:
        """Sleep until the bell was rung."""
        self._queue.get()


class Inbox:
    """The mailbox of one address; it outlives the actors that live there.

    Attributes:
        mail: the user lane.
        signals: the signal lane, always emptied first.
        limit: depth from which a put takes the slow path: the high-water mark, or CLOSED.
        closed_because: why nothing is taken in, once it is closed.
        waiter: what the consumer sleeps on, None while it is awake.
    """

    waiter: asyncio.Future[None] | Bell | None = None
    closed_because = DeadReason.GONE
    _waking = False

    def __init__(self, system: ActorSystem, path: str, mailbox: Mailbox) -> None:
        self.system = system
        self.path = path
        self.mailbox = mailbox
        self.mail: deque[Any] = deque()
        self.signals: list[Signal | Notice] = []  # short, and cheap while empty
        self.limit = 0

    @property
    def high_water(self) -> int:
        """The most messages that ever waited here at once."""
        return max(self.limit, 0)

    def put(self, item: Any) -> None:
        """Take a message or a letter in; any thread, never blocks.

        Raises:
            MailboxFullError: the mailbox is full, its policy is to refuse and nobody waits for a reply.
        """
        mail = self.mail
        if len(mail) >= self.limit and not self._make_room(item):
            return
        mail.append(item)
        if self.waiter is not None:
            self.wake()
        elif self.limit < 0:
            self.flush()

    def put_tick(self, tick: Tick) -> None:
        """Take a timer's message in, whatever the depth: there is at most one per key."""
        self.mail.append(tick)
        self.wake()

    def post(self, signal: Signal | Notice) -> None:
        """Take a signal in; any thread."""
        if self.limit >= 0:
            self.signals.append(signal)
            self.wake()

    def wake(self) -> None:
        """Wake the consumer if it sleeps; any thread."""
        waiter = self.waiter
        if waiter is None:
            return
        if isinstance(waiter, Bell):
            self.waiter = None
            waiter.ring()
        elif get_ident() == self.system.thread:
            self.waiter = None
            if not waiter.done():
                waiter.set_result(None)
        elif not self._waking:
            self._waking = True
            if not self.system.call_from_thread(self._wake_from_thread):
                self.flush(DeadReason.LOOP_CLOSED)

    def _wake_from_thread(self) -> None:
        self._waking = False
        self.wake()

    def seal(self) -> None:
        """Refuse everything from now on; what still waits is buried. For good."""
        self.limit = CLOSED
        self.waiter = None
        self.signals.clear()
        self.flush()

    def flush(self, reason: DeadReason = DeadReason.STOPPED) -> None:
        """Bury everything that waits."""
        mail = self.mail
        while mail:
            try:
                item = mail.popleft()
            except IndexError:  # another thread was faster
                return
            self.bury(item, reason)

    def bury(self, item: Any, reason: DeadReason) -> None:
        """Give up one item: an ask is answered with an error, anything else becomes a dead letter."""
        if isinstance(item, Tick):
            return
        sender = None
        if isinstance(item, AskFuture):
            item.fail(self._why_not(reason))
            return
        if isinstance(item, Envelope):
            sender, item = item.sender, item.message
        system = self.system
        sender_path = sender.path if sender is not None else None
        system.dead_letters.add(DeadLetter(item, self.path, sender_path, reason, system.clock.monotonic()))

    def _why_not(self, reason: DeadReason) -> Exception:
        if reason in (DeadReason.DROPPED_NEW, DeadReason.DROPPED_OLD):
            return MailboxFullError(self.path, self.mailbox.capacity)
        return ActorGoneError(self.path, f"not delivered: {reason.value}")

    def _make_room(self, item: Any) -> bool:
        """The slow path of a put; returns whether the item may be appended."""
        if self.limit < 0:
            self.bury(item, self.closed_because)
            return False
        if len(self.mail) < self.mailbox.capacity:
            self.limit = len(self.mail) + 1
            return True
        self.system.counters.add(Count.REJECTIONS)
        match self.mailbox.overflow:
            case Overflow.DROP_OLD:
                self._drop_oldest()
                return True
            case Overflow.DROP_NEW:
                self.bury(item, DeadReason.DROPPED_NEW)
                return False
            case Overflow.REJECT:
                self._reject(item)
                return False

    def _drop_oldest(self) -> None:
        mail = self.mail
        for _ in range(len(mail)):
            try:
                item = mail.popleft()
            except IndexError:  # emptied by its consumer meanwhile
                return
            if not isinstance(item, Tick):
                self.bury(item, DeadReason.DROPPED_OLD)
                return
            mail.append(item)

    def _reject(self, item: Any) -> None:
        error = MailboxFullError(self.path, self.mailbox.capacity)
        if not isinstance(item, AskFuture):
            raise error
        item.fail(error)

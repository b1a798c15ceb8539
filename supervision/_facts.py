"""Facts: published once, heard by whoever subscribed, and the last one of each type kept for who comes later."""

from __future__ import annotations

from collections.abc import Iterable
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from openengine_sidecar.supervision._dead_letters import DeadReason
from openengine_sidecar.supervision.errors import MailboxFullError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._cell import Cell
    from openengine_sidecar.supervision._system import ActorSystem

F = TypeVar("F")


class Facts:
    """The fact stream of one system. Subscribing to a class means its subclasses too."""

    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._last: dict[type, object] = {}  # in the order of their publication
        self._subscribers: dict[type, dict[Cell, None]] = {}
        self._subscriptions: dict[Cell, set[type]] = {}

    def publish(self, fact: object) -> None:
        """Tell a fact to its subscribers; from another thread it travels through the loop first."""
        if get_ident() != self._system.thread:
            self._system.call_from_thread(self.publish, fact)
            return
        kind = type(fact)
        self._last.pop(kind, None)
        self._last[kind] = fact
        hearers: dict[Cell, None] = {}
        for heard in kind.__mro__:
            hearers.update(self._subscribers.get(heard, {}))
        for cell in hearers:
            _deliver(cell, fact)

    def last(self, fact_type: type[F]) -> F | None:
        """The last fact of exactly this type, None before the first."""
        fact = self._last.get(fact_type)
        return fact if isinstance(fact, fact_type) else None

    def subscribe(self, cell: Cell, fact_types: Iterable[type]) -> None:
        """Deliver facts of these types to a mailbox, beginning with the last of each, oldest first."""
        known = self._subscriptions.setdefault(cell, set())
        new = tuple(kind for kind in fact_types if kind not in known)
        known.update(new)
        for kind in new:
            self._subscribers.setdefault(kind, {})[cell] = None
        for fact in tuple(self._last.values()):
            if isinstance(fact, new):
                _deliver(cell, fact)

    def unsubscribe(self, cell: Cell) -> None:
        """Deliver nothing more to a mailbox."""
        for kind in self._subscriptions.pop(cell, ()):
            del self._subscribers[kind][cell]


def _deliver(cell: Cell, fact: Any) -> None:
    try:
        cell.put(fact)
    except MailboxFullError:
        cell.bury(fact, DeadReason.DROPPED_NEW)

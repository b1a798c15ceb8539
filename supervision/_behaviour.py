"""What both kinds of actor share: who they are, and the services that neither block nor wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar

from loguru import logger

from openengine_sidecar.messages.signals import Drain, Stop
from openengine_sidecar.supervision._cell import Cell
from openengine_sidecar.supervision._clock import Clock
from openengine_sidecar.supervision._host import Host
from openengine_sidecar.supervision._ref import Ref
from openengine_sidecar.supervision._stash import stash, unstash
from openengine_sidecar.supervision._timers import cancel_timer, schedule
from openengine_sidecar.supervision._vocabulary import Vocabulary, vocabulary_of
from openengine_sidecar.supervision._watch import unwatch, watch
from openengine_sidecar.supervision.errors import ChildSpecError

if TYPE_CHECKING:
    from loguru import Logger

    from openengine_sidecar.supervision._system import ActorSystem

M = TypeVar("M")


class Behaviour(Generic[M]):
    """Base of `Actor` and `ThreadActor`. An object serves one life; its factory makes a fresh one for the next.

    The services are there from `on_start` on, not yet in `__init__`.
    """

    on_message: Callable[[M], Any]
    _host_type: ClassVar[type[Host]]
    _bound: Host | None = None

    @classmethod
    def vocabulary(cls) -> Vocabulary:
        """The message types this class understands, read off its parameter."""
        found = cls.__dict__.get("_vocabulary")
        if not isinstance(found, Vocabulary):
            found = vocabulary_of(cls, Behaviour)
            cls._vocabulary = found
        return found

    _vocabulary: ClassVar[Vocabulary | None] = None

    def host_in(self, cell: Cell) -> Host:
        """Begin to serve the life that `cell` is about to lead.

        Raises:
            ChildSpecError: it serves, or served, another one.
        """
        if self._bound is not None:
            msg = f"{cell.path}: its factory returned an actor that has lived already"
            raise ChildSpecError(msg)
        self._bound = self._host_type(cell, self)
        return self._bound

    @property
    def _host(self) -> Host:
        return self._bound if self._bound is not None else self._not_alive()

    def _not_alive(self) -> NoReturn:
        msg = f"{type(self).__name__} is not alive yet; its services are there from on_start on"
        raise RuntimeError(msg)

    @property
    def ref(self) -> Ref[M]:
        """This actor's own address."""
        return self._host.cell.ref

    @property
    def path(self) -> str:
        """Where it stands in the tree."""
        return self._host.cell.path

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self._host.cell.spec.name

    @property
    def incarnation(self) -> int:
        """Which life at this address, counted from 1."""
        return self._host.incarnation

    @property
    def system(self) -> ActorSystem:
        """The system it belongs to."""
        return self._host.system

    @property
    def clock(self) -> Clock:
        """The system's clock."""
        return self._host.system.clock

    @property
    def deadline(self) -> float | None:
        """When the asker of the message being handled gives up, on the system's clock; None for a tell."""
        letter = self._host.letter
        return letter.reply.deadline if letter is not None and letter.reply is not None else None

    @property
    def sender(self) -> Ref[Any] | None:
        """Who sent the message being handled, where that is known."""
        letter = self._host.letter
        return letter.sender if letter is not None else None

    @property
    def draining(self) -> Drain | None:
        """The shortest `Drain` heard in this life, None before the first."""
        return self._host.draining

    @property
    def mailbox_empty(self) -> bool:
        """Whether no mail waits behind the message being handled."""
        return not self._host.cell.mail

    @property
    def children(self) -> Mapping[str, Ref[Any]]:
        """A live view of the children by name, in the order they were started."""
        return Children(self._host.children)

    @cached_property
    def log(self) -> Logger:
        """A logger that knows the actor's path; may be replaced by one that knows more."""
        return logger.bind(actor=self._host.cell.path)

    def stop(self) -> None:
        """End normally, after the current message or hook; any thread."""
        self._host.cell.post(Stop())

    def watch(self, ref: Ref[Any]) -> None:
        """Be told, by `on_terminated`, when that address is gone for good; at once if it is gone already."""
        watch(self._host, ref)

    def unwatch(self, ref: Ref[Any]) -> None:
        """Be told no more; a `Terminated` already under way is taken back."""
        unwatch(self._host, ref)

    def schedule(self, key: str, delay: float, message: M) -> None:
        """Send oneself a message after `delay` seconds; replaces what was scheduled under the same key."""
        schedule(self._host, key, delay, message)

    def cancel_timer(self, key: str) -> None:
        """Call off what was scheduled under the key, also if it waits in the mailbox already."""
        cancel_timer(self._host, key)

    def subscribe(self, *fact_types: type) -> None:
        """Get facts of these types as ordinary mail from now on, the last one of each at once."""
        host = self._host
        host.system.run_on_loop(host.system.facts.subscribe, host.cell, fact_types)

    def stash(self, message: M) -> None:
        """Put the message being handled aside until `unstash`; an ask stays unanswered meanwhile.

        Raises:
            MailboxFullError: as many messages are put aside as the mailbox may hold.
        """
        stash(self._host, message)

    def unstash(self) -> None:
        """Handle what was put aside, in its order, before the mail that waits. A life's end does the same."""
        unstash(self._host)

    def publish(self, fact: object) -> None:
        """Tell a fact to whoever subscribed to its type."""
        host = self._host
        host.system.run_on_loop(host.system.facts.publish, fact)


class Children(Mapping[str, Ref[Any]]):
    """A live view of children by name."""

    __slots__ = ("_cells",)

    def __init__(self, cells: Mapping[str, Cell]) -> None:
        self._cells = cells

    def __getitem__(self, name: str) -> Ref[Any]:
        return self._cells[name].ref

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._cells))

    def __len__(self) -> int:
        return len(self._cells)

"""The door for plain pykka: what its own refs put into an actor, in the words of the kit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pykka.messages import _ActorStop  # pyright: ignore[reportPrivateUsage] # what pykka's ActorRef.stop sends

from openengine_sidecar.messages.signals import Cause, Stop
from openengine_sidecar.supervision._future import AskFuture

if TYPE_CHECKING:
    from openengine_sidecar.supervision._cell import Cell


class PykkaEnvelope(Protocol):
    """What pykka's refs put into an inbox."""

    message: Any
    reply_to: AskFuture[Any] | None


class PykkaInbox:
    """The `actor_inbox` of pykka's refs. Their messages travel like any other, under the same bounds and protocol."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def put(self, envelope: PykkaEnvelope) -> None:
        """Take a message in; a stop overtakes the others here."""
        reply = envelope.reply_to
        if not isinstance(envelope.message, _ActorStop):
            if reply is not None:
                reply.message = envelope.message
            self._cell.put(envelope.message if reply is None else reply)
            return
        self._cell.post(Stop())
        if reply is not None:
            self._cell.system.run_on_loop(self._cell.when_gone, partial(_confirm, reply))

    def get(self) -> Any:
        """Nobody but the actor itself reads its mail."""
        raise NotImplementedError

    def empty(self) -> bool:
        """Whether no mail waits."""
        return not self._cell.mail


def _confirm(reply: AskFuture[Any], _cause: Cause) -> None:
    reply.answer(None)

"""One adapter: what it is, what it answers, and in which order things happen to it. Decides only; see `steps.py`.

Operations on one adapter run one after another, in the order in which they were asked for. Who asks for the operation
that is under way joins it: any number of loads is one call of the engine. An unload that finds the adapter still being
fetched cancels that. The operations themselves are in `operations.py`.
"""

from __future__ import annotations

from collections import deque
from typing import Self

from openengine_sidecar.actors.lora.operations import Operation, Operations
from openengine_sidecar.actors.lora.steps import (
    EVENTS,
    Answer,
    Ask,
    AwaitEngine,
    CancelFetch,
    Effect,
    EngineBack,
    Event,
    Fetch,
    Hold,
    Load,
    Order,
    Phase,
    Unload,
)
from openengine_sidecar.messages.dynamo.lora import LoraAnswer, lora_error
from openengine_sidecar.messages.engine.lora import LoraAdapter
from openengine_sidecar.messages.errors import SidecarError

MAX_WAITING = 256


class IllegalEventError(SidecarError, RuntimeError):
    """An event came that nothing was waiting for: a fault of this worker."""


class AdapterMachine:
    """The state of one adapter, and its turns.

    Every method returns what has to be done now, in order.
    """

    def __init__(self, name: str, *, max_waiting: int = MAX_WAITING) -> None:
        self.name = name
        self._max_waiting = max_waiting
        self._outbox: list[Effect] = []
        self._operations = Operations(name, self._outbox.append, self._answer)
        self._operation: Operation | None = None
        self._order: Order | None = None
        self._under_way: Ask | None = None
        self._callers: list[object] = []
        self._queue: deque[Ask] = deque()

    @classmethod
    def adopt(cls, adapter: LoraAdapter, *, max_waiting: int = MAX_WAITING) -> tuple[Self, list[Effect]]:
        """Make the machine of an adapter that an engine holds already, and show it."""
        machine = cls(adapter.name, max_waiting=max_waiting)
        machine._outbox.append(Hold(adapter))
        machine._run(machine._operations.adopt(adapter))
        return machine, machine._effects()

    @property
    def phase(self) -> Phase:
        """Where the adapter stands."""
        return self._operations.phase

    @property
    def uri(self) -> str | None:
        """Where the adapter came from; None where that is not known."""
        return self._operations.uri

    @property
    def adapter(self) -> LoraAdapter | None:
        """What the engine holds, or may hold; None for nothing."""
        return self._operations.adapter

    @property
    def problem(self) -> str:
        """Why it is FAILED, else empty."""
        return self._operations.problem

    @property
    def forgettable(self) -> bool:
        """Whether there is nothing to remember."""
        return self.phase is Phase.ABSENT and self._operation is None

    def ask(self, ask: Ask) -> list[Effect]:
        """Take an operation on; its caller is answered now or later, once."""
        if self._operation is None:
            self._begin(ask)
        elif not self._queue and self._joins(ask):
            self._callers.append(ask.caller)
        elif not self._queue and isinstance(ask, Unload) and self._operations.phase is Phase.FETCHING:
            self._abandon(ask)
        elif len(self._queue) < self._max_waiting:
            self._queue.append(ask)
        else:
            self._outbox.append(Answer(ask.caller, lora_error("too many operations wait for this adapter", self.name)))
        return self._effects()

    def hear(self, event: Event) -> list[Effect]:
        """Go on after an order was carried out, or was not.

        Raises:
            IllegalEventError: it is not what was waited for.
        """
        if self._operation is None or self._order is None or not isinstance(event, EVENTS[type(self._order)]):
            problem = f"adapter {self.name}: {event} while waiting for {self._order}"
            raise IllegalEventError(problem)
        self._advance(self._operation, event)
        return self._effects()

    def engine_lost(self) -> list[Effect]:
        """The engine is gone, and all that it held with it; what was live comes back when it does."""
        was_live = self.phase is Phase.LIVE
        self._operations.engine_lost()
        self._refuse_waiting("the engine was lost; nothing was changed")
        if was_live and self._operation is None:
            self._restore()
        return self._effects()

    def engine_back(self) -> list[Effect]:
        """An engine answers, which may hold what the last one held, or nothing."""
        self._operations.engine_back()
        if isinstance(self._order, AwaitEngine):
            return self.hear(EngineBack())
        if self._operation is None and self.phase is Phase.FAILED and self._operations.wanted:
            self._restore()
        return self._effects()

    def reconcile(self, *, listed: bool) -> list[Effect]:
        """Compare a failed adapter that nobody wants with what the engine says that it holds."""
        if self._operation is None and self.phase is Phase.FAILED and not self._operations.wanted:
            self._run(self._operations.settle(listed=listed))
        return self._effects()

    def close(self, reason: str) -> list[Effect]:
        """Begin nothing more: what waits is refused, a fetch is cancelled, the rest ends as it will."""
        self._refuse_waiting(reason)
        if isinstance(self._order, Fetch):
            self._outbox.append(CancelFetch(self.name, reason))
        if isinstance(self._order, AwaitEngine):
            self._answer(lora_error(reason, self.name))
        return self._effects()

    def _begin(self, ask: Ask) -> None:
        self._under_way, self._callers = ask, [ask.caller]
        self._run(self._operations.load(ask.uri) if isinstance(ask, Load) else self._operations.unload())

    def _restore(self) -> None:
        """Begin to restore it; who asks for the same load, or still waits for it, is answered at the end of that."""
        if self.adapter is not None:
            self._under_way = None if self.uri is None else Load(None, self.uri)
            self._run(self._operations.restore(self.adapter))

    def _run(self, operation: Operation) -> None:
        self._operation = operation
        self._advance(operation, None)

    def _advance(self, operation: Operation, event: Event | None) -> None:
        try:
            self._order = next(operation) if event is None else operation.send(event)
        except StopIteration:
            self._operation = self._order = self._under_way = None
            if self._operations.stale:
                self._restore()
            else:
                self._begin_next()
        else:
            if not isinstance(self._order, AwaitEngine):
                self._outbox.append(self._order)

    def _begin_next(self) -> None:
        if self._queue:
            self._begin(self._queue.popleft())
        while self._queue and self._joins(self._queue[0]):
            self._callers.append(self._queue.popleft().caller)

    def _abandon(self, ask: Unload) -> None:
        self._answer(lora_error("cancelled: it was unloaded before it was live", self.name))
        self._under_way, self._callers = ask, [ask.caller]
        self._operations.abandon()
        self._outbox.append(CancelFetch(self.name, "unloaded"))

    def _joins(self, ask: Ask) -> bool:
        if self._operations.doomed:
            return False
        match self._under_way, ask:
            case Load(uri=under_way), Load(uri=asked):
                return under_way == asked
            case Unload(), Unload():
                return True
            case _:
                return False

    def _answer(self, answer: LoraAnswer) -> None:
        callers, self._callers = self._callers, []
        self._outbox.extend(Answer(caller, answer) for caller in callers)

    def _refuse_waiting(self, reason: str) -> None:
        waiting, self._queue = self._queue, deque()
        self._outbox.extend(Answer(ask.caller, lora_error(reason, self.name)) for ask in waiting)

    def _effects(self) -> list[Effect]:
        effects = self._outbox[:]
        self._outbox.clear()
        return effects

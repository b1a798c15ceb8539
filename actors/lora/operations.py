"""What happens to one adapter, operation by operation.

Each operation is a generator: it yields one order at a time and is sent the event that answers it, so that every way
through it, with its way back, reads from top to bottom. Nothing here waits, calls or writes.

A card stands only while the engine holds the adapter: published after the load, withdrawn before the unload. Where one
half fails the other is undone; an order of which nobody knows what came of it is undone too, or given again.

The engine may go and come back. An *epoch* tells what an engine answered before it was lost from what the present one
answered.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from openengine_sidecar.actors.lora.ids import lora_name_to_id
from openengine_sidecar.actors.lora.steps import (
    AwaitEngine,
    Effect,
    EngineFailed,
    EngineLoaded,
    EngineRefused,
    EngineUnloaded,
    Event,
    Fetch,
    Fetched,
    FetchFailed,
    LoadEngine,
    Order,
    Phase,
    Publish,
    PublishFailed,
    Quiesce,
    Release,
    Report,
    UnloadEngine,
    Withdraw,
    WithdrawFailed,
)
from openengine_sidecar.messages.dynamo.lora import LoraAnswer, lora_error, lora_success
from openengine_sidecar.messages.engine.lora import LoraAdapter

Operation = Generator[Order, Event, None]

_CARD_MAY_STAND = "its card may stand, and nobody can use it"


class Operations:
    """One adapter's state, and the operations that change it; one of them runs at a time.

    Attributes:
        phase: where the adapter stands.
        uri: where it came from; None where that is not known.
        adapter: what the engine holds, or may hold; None for nothing.
        problem: why it is FAILED, else empty.
        wanted: it was live, and shall be again.
        doomed: the operation under way goes back, and will end in an error.
        stale: the operation that just ended would have made it live, had the engine not been lost: restore it.
    """

    def __init__(self, name: str, emit: Callable[[Effect], None], answer: Callable[[LoraAnswer], None]) -> None:
        self.phase = Phase.ABSENT
        self.uri: str | None = None
        self.adapter: LoraAdapter | None = None
        self.problem = ""
        self.wanted = False
        self.doomed = False
        self.stale = False
        self._name = name
        self._emit = emit
        self._answer = answer
        self._card = False  # it may stand
        self._abandoned = False
        self._attached = True
        self._epoch = self._loaded_epoch = 0

    def engine_lost(self) -> None:
        """What was loaded until now is gone."""
        self._attached = False
        self._epoch += 1
        if self.phase is Phase.LIVE:
            self.phase = Phase.LOADING

    def engine_back(self) -> None:
        """Loads may succeed again."""
        self._attached = True

    def abandon(self) -> None:
        """The fetch under way has no purpose any more."""
        self._abandoned, self.phase = True, Phase.UNLOADING

    def load(self, uri: str) -> Operation:
        """Make it live from an address."""
        self.doomed = False
        if self.adapter is not None and self.phase is Phase.LIVE:
            yield from self._load_again(self.adapter, uri)
            return
        if self.phase is Phase.FAILED:
            match (yield UnloadEngine(self._name)):
                case EngineRefused(problem=problem) | EngineFailed(problem=problem):
                    self._answer(lora_error(problem, self._name))
                    return
                case _:
                    self._forget()
        yield from self._fetch_and_load(uri)

    def unload(self) -> Operation:
        """Make it go, whoever loaded it."""
        self.doomed = False
        if self.adapter is None or self.phase is not Phase.LIVE:
            yield from self._purge()
            return
        self.phase = Phase.UNLOADING
        if problem := (yield from self._withdraw()):
            yield from self._show_again(self.adapter, problem)
            return
        yield Quiesce(self._name)
        match (yield UnloadEngine(self._name)):
            case EngineUnloaded(found=found):
                self._unloaded(found=found)
            case EngineRefused(problem=problem):
                yield from self._show_again(self.adapter, problem)
            case EngineFailed(problem=problem):
                yield from self._load_back(self.adapter, problem)
            case _:
                pass

    def adopt(self, adapter: LoraAdapter) -> Operation:
        """Show what the engine holds already; where that fails it is still not ours to unload."""
        self.adapter, self.phase = adapter, Phase.LOADING
        if problem := (yield from self._publish(adapter)):
            self._emit(Report(self._name, f"not adopted: {problem}"))
            yield from self._retract()
            self._gone()
        else:
            self._live(lora_success("loaded", self._name, adapter.id))

    def restore(self, adapter: LoraAdapter) -> Operation:
        """Make what was live so again, after the engine was lost."""
        self.phase, self.wanted, self.doomed, self.stale = Phase.LOADING, True, False, False
        yield from self._retract()
        while True:
            if not self._attached:
                yield AwaitEngine(self._name)
            match (yield from self._load_engine(adapter)):
                case EngineFailed() if not self._attached:
                    continue
                case EngineRefused(problem=problem) | EngineFailed(problem=problem):
                    yield from self._retract()
                    self._failed(problem)
                    return
                case _:
                    yield from self._show(adapter)
                    return

    def settle(self, *, listed: bool) -> Operation:
        """Make the engine and us agree that a failed adapter is gone."""
        yield from self._retract()
        if listed and self.adapter is not None:
            yield from self._clean(self.problem)
        else:
            self._gone()

    def _load_again(self, adapter: LoraAdapter, uri: str) -> Operation:
        """It is live. Whether an adopted one is meant, only its address can tell."""
        answer = lora_success("already loaded", self._name, adapter.id)
        if self.uri is None:
            match (yield Fetch(self._name, uri)):
                case Fetched(path=path) if path == adapter.path:
                    self.uri = uri
                case Fetched(path=path):
                    self._emit(Release(self._name, path))
                    answer = self._conflict(adapter.path)
                case FetchFailed(problem=problem):
                    answer = lora_error(problem, self._name)
                case _:
                    pass
        elif self.uri != uri:
            answer = self._conflict(self.uri)
        self._live(answer)

    def _conflict(self, origin: str) -> LoraAnswer:
        return lora_error(f"conflict: it is loaded from {origin}; unload it first", self._name)

    def _fetch_and_load(self, uri: str) -> Operation:
        self.phase = Phase.FETCHING
        fetched = yield Fetch(self._name, uri)
        if self._abandoned:
            self._abandoned = False
            if isinstance(fetched, Fetched):
                self._emit(Release(self._name, fetched.path))
            self._gone(lora_success("its fetch was cancelled", self._name))
        elif isinstance(fetched, FetchFailed):
            self._gone(lora_error(fetched.problem, self._name))
        elif isinstance(fetched, Fetched):
            self.uri = uri
            self.adapter = LoraAdapter(name=self._name, id=lora_name_to_id(self._name), path=fetched.path)
            yield from self._load_new(self.adapter)

    def _load_new(self, adapter: LoraAdapter) -> Operation:
        self.phase = Phase.LOADING
        if not self._attached:
            self._gone(lora_error("the engine was lost while the adapter was being fetched", self._name))
            return
        match (yield from self._load_engine(adapter)):
            case EngineRefused(problem=problem):
                self._gone(lora_error(problem, self._name))
            case EngineFailed(problem=problem):
                yield from self._clean(problem)
            case _:
                yield from self._show(adapter)

    def _load_engine(self, adapter: LoraAdapter) -> Generator[Order, Event, Event]:
        epoch = self._epoch
        event = yield LoadEngine(adapter)
        if isinstance(event, EngineLoaded):
            self._loaded_epoch = epoch
        return event

    def _show(self, adapter: LoraAdapter) -> Operation:
        if problem := (yield from self._publish(adapter)):
            yield from self._clean(problem)
        else:
            self._live(lora_success("loaded", self._name, adapter.id))

    def _publish(self, adapter: LoraAdapter) -> Generator[Order, Event, str]:
        """Returns what went wrong, if anything."""
        self._card = True
        event = yield Publish(adapter)
        return event.problem if isinstance(event, PublishFailed) else ""

    def _withdraw(self) -> Generator[Order, Event, str]:
        """Returns what went wrong, if anything."""
        event = yield Withdraw(self._name)
        self._card = isinstance(event, WithdrawFailed)
        return event.problem if isinstance(event, WithdrawFailed) else ""

    def _retract(self) -> Operation:
        """No card may promise what cannot be used."""
        if self._card and (problem := (yield from self._withdraw())):
            self._emit(Report(self._name, f"{_CARD_MAY_STAND}: {problem}"))

    def _live(self, answer: LoraAnswer) -> None:
        """It is live, unless the engine that held it was lost since; then a success has to wait."""
        self.stale = self._loaded_epoch != self._epoch
        if not self.stale:
            self.phase, self.problem, self.wanted = Phase.LIVE, "", False
        if not (self.stale and answer.ok):
            self._answer(answer)

    def _load_back(self, adapter: LoraAdapter, problem: str) -> Operation:
        """An unload failed, and nobody knows how far it came."""
        self.doomed = True
        match (yield from self._load_engine(adapter)):
            case EngineRefused(problem=second) | EngineFailed(problem=second):
                self._failed(f"{problem}; then it could not be loaded again: {second}")
            case _:
                yield from self._show_again(adapter, problem)

    def _show_again(self, adapter: LoraAdapter, problem: str) -> Operation:
        """An unload failed, and the engine still holds the adapter."""
        self.doomed = True
        if second := (yield from self._publish(adapter)):
            yield from self._clean(f"{problem}; then its card could not be published again: {second}")
        else:
            self._live(lora_error(problem, self._name))

    def _clean(self, problem: str) -> Operation:
        """The engine must not keep what cannot be shown, or what it may or may not have loaded."""
        self.doomed = True
        yield from self._retract()
        match (yield UnloadEngine(self._name)):
            case EngineRefused(problem=second) | EngineFailed(problem=second):
                self._failed(f"{problem}; then the engine could not be cleaned: {second}")
            case _ if self.wanted:
                self._failed(problem)
            case _:
                self._gone(lora_error(problem, self._name))

    def _purge(self) -> Operation:
        """Unload what failed, or what somebody else loaded."""
        before, self.phase = self.phase, Phase.UNLOADING
        yield from self._retract()
        match (yield UnloadEngine(self._name)):
            case EngineUnloaded(found=found):
                self._unloaded(found=found)
            case EngineRefused(problem=problem) | EngineFailed(problem=problem):
                self.phase = before
                self._answer(lora_error(problem, self._name))
            case _:
                pass

    def _unloaded(self, *, found: bool) -> None:
        if found:
            self._gone(lora_success("unloaded", self._name))
        else:
            self._gone(lora_error("not found: the engine does not hold it", self._name))

    def _failed(self, problem: str) -> None:
        self.phase, self.problem = Phase.FAILED, problem
        self._emit(Report(self._name, problem))
        self._answer(lora_error(problem, self._name))

    def _gone(self, answer: LoraAnswer | None = None) -> None:
        self._forget()
        self.phase, self.problem = (Phase.FAILED, _CARD_MAY_STAND) if self._card else (Phase.ABSENT, "")
        if answer is not None:
            self._answer(answer)

    def _forget(self) -> None:
        adapter, self.adapter = self.adapter, None
        self.uri, self.problem, self.wanted = None, "", False
        if adapter is not None:
            self._emit(Release(adapter.name, adapter.path))

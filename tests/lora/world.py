"""Everything around a table of adapters, reduced to what is true: who holds what, which cards stand, who was told."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from openengine_sidecar.actors.lora.ids import lora_name_to_id
from openengine_sidecar.actors.lora.steps import (
    EVENTS,
    Answer,
    CancelFetch,
    Effect,
    EngineFailed,
    EngineLoaded,
    EngineRefused,
    EngineUnloaded,
    Event,
    Fetch,
    Fetched,
    FetchFailed,
    Hold,
    LoadEngine,
    Publish,
    Published,
    PublishFailed,
    Quiesce,
    Quiet,
    Release,
    Report,
    Task,
    UnloadEngine,
    Withdraw,
    WithdrawFailed,
    Withdrawn,
)
from openengine_sidecar.actors.lora.table import LoraTable
from openengine_sidecar.messages.dynamo.lora import LoraAnswer
from openengine_sidecar.messages.engine.lora import LoraAdapter

PATHS = "/cache/"


def adapter(name: str, uri: str | None = None) -> LoraAdapter:
    return LoraAdapter(name=name, id=lora_name_to_id(name), path=path_of(uri or f"s3://b/{name}"))


def path_of(uri: str) -> str:
    return PATHS + uri.rpartition("/")[2]


def name_of(order: Task) -> str:
    return order.adapter.name if isinstance(order, LoadEngine | Publish) else order.name


@dataclass
class World:
    """Carries orders out when it is told to, well or badly.

    Attributes:
        log: the orders that were given, in order, as `kind name`.
        orders: those that were not answered yet, one for each adapter at most.
        told: callers and their answers.
    """

    table: LoraTable = field(default_factory=LoraTable)
    engine: dict[str, LoraAdapter] = field(default_factory=dict)
    cards: set[str] = field(default_factory=set)
    leases: set[tuple[str, str]] = field(default_factory=set)
    orders: dict[str, Task] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    log: list[str] = field(default_factory=list)
    told: dict[int, LoraAnswer] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    connected: bool = False
    callers: count[int] = field(default_factory=lambda: count(1))

    def up(self, **options: Any) -> World:
        """An engine answers, and says what it holds."""
        self.connected = True
        self.take(self.table.engine_back(options.get("listed", list(self.engine.values())), {"base"}))
        return self

    def down(self, *, restarts: bool = True) -> None:
        """The engine is lost; what it held is lost with it where it restarts."""
        self.connected = False
        if restarts:
            self.engine.clear()
        self.take(self.table.engine_lost())

    def load(self, name: str, uri: str | None = None) -> int:
        caller = next(self.callers)
        self.take(self.table.load(caller, name, uri or f"s3://b/{name}"))
        return caller

    def unload(self, name: str) -> int:
        caller = next(self.callers)
        self.take(self.table.unload(caller, name))
        return caller

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answer(caller, answer):
                    assert isinstance(caller, int)
                    assert caller not in self.told, "answered twice"
                    self.told[caller] = answer
                    self.check_truth(answer)
                case Report():
                    self.reports.append(effect)
                case CancelFetch(name):
                    assert isinstance(self.orders.get(name), Fetch)
                    self.cancelled.add(name)
                case Hold(held):
                    self.leases.add((held.name, held.path))
                case Release(name, path):
                    self.leases.discard((name, path))
                case _:
                    name = name_of(effect)
                    assert name not in self.orders, "two orders at a time"
                    self.orders[name] = effect
                    self.log.append(f"{type(effect).__name__} {name}")

    def check_truth(self, answer: LoraAnswer) -> None:
        """Who is told of a success finds it so, unless the operator was told of a card that could not be withdrawn."""
        if answer.ok and answer.message == "unloaded":
            assert answer.lora_name not in self.engine
            assert answer.lora_name not in self.cards or any(it.name == answer.lora_name for it in self.reports)
        if answer.ok and answer.message in {"loaded", "already loaded"}:
            assert answer.lora_name in self.engine
            assert answer.lora_name in self.cards

    def answer(self, name: str, event: Event) -> None:
        """Answer the order under way with an event of the test's own."""
        order = self.orders.pop(name)
        assert isinstance(event, EVENTS[type(order)])
        self.take(self.table.hear(name, event))

    def step(self, name: str, *, ok: bool = True, happens: bool = False, sure: bool = False) -> None:
        """Carry the order under way out.

        Args:
            name: of the adapter.
            ok: whether it goes well.
            happens: where it does not: whether it is done all the same.
            sure: where it does not: whether the engine says that it did nothing.
        """
        order = self.orders[name]
        del self.orders[name]
        event = self._well(order) if ok else self._badly(order, happens=happens, sure=sure)
        self.cancelled.discard(name)
        self.take(self.table.hear(name, event))

    def settle(self) -> None:
        """Carry everything out, well."""
        waiting = deque(self.orders)
        while waiting:
            name = waiting.popleft()
            if name in self.orders:
                self.step(name)
                waiting.append(name)

    def calls(self, kind: type[Task], name: str) -> int:
        return self.log.count(f"{kind.__name__} {name}")

    def _well(self, order: Task) -> Event:
        match order:
            case Fetch(name, uri):
                return self._fetch(name, uri)
            case LoadEngine() | UnloadEngine() if not self.connected:
                return EngineFailed(f"no engine for {name_of(order)}")
            case LoadEngine(wanted):
                held = self.engine.setdefault(wanted.name, wanted)
                return EngineLoaded() if held == wanted else EngineRefused("conflict")
            case UnloadEngine(name):
                return EngineUnloaded(found=self.engine.pop(name, None) is not None)
            case _:
                return self._show(order)

    def _fetch(self, name: str, uri: str) -> Event:
        if name in self.cancelled:
            return FetchFailed("cancelled")
        self.leases.add((name, path_of(uri)))
        return Fetched(path_of(uri))

    def _show(self, order: Publish | Withdraw | Quiesce) -> Event:
        match order:
            case Publish(wanted):
                self.cards.add(wanted.name)
                return Published()
            case Withdraw(name):
                self.cards.discard(name)
                return Withdrawn()
            case Quiesce():
                return Quiet()

    def _badly(self, order: Task, *, happens: bool, sure: bool) -> Event:
        if happens and not (sure and isinstance(order, LoadEngine | UnloadEngine)) and not isinstance(order, Fetch):
            self._well(order)
        match order:
            case Fetch():
                return FetchFailed("fetch failed")
            case LoadEngine() | UnloadEngine():
                return EngineRefused("engine refused") if sure else EngineFailed("engine failed")
            case Publish():
                return PublishFailed("publish failed")
            case Withdraw():
                return WithdrawFailed("withdraw failed")
            case _:
                return self._well(order)

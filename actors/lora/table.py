"""All adapters of a worker: who may have which name, whether anything may be asked now, and what the engine says."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from openengine_sidecar.actors.lora.ids import check_id, lora_name_to_id
from openengine_sidecar.actors.lora.machine import MAX_WAITING, AdapterMachine
from openengine_sidecar.actors.lora.names import check_free, check_name, shown
from openengine_sidecar.actors.lora.steps import (
    Answer,
    Ask,
    Effect,
    EngineRefused,
    Event,
    Load,
    Phase,
    Report,
    Unload,
)
from openengine_sidecar.messages.dynamo.lora import LoraAnswer, lora_error, lora_listing
from openengine_sidecar.messages.engine.lora import LoraAdapter
from openengine_sidecar.messages.errors import LoraRefusedError

NOT_CONNECTED = "no engine is connected; nothing was changed"


class AdapterView(msgspec.Struct, frozen=True):
    """One adapter, as people are told."""

    name: str
    phase: Phase
    uri: str | None
    adapter: LoraAdapter | None
    problem: str = ""


class LoraTable:
    """Decides for all adapters; every method returns what has to be done, in order.

    Begins without an engine: nothing is asked of it before `engine_back`.

    Args:
        adopt: whether adapters that the engine holds already are shown.
        max_waiting: operations that may wait for one adapter's turn.
    """

    def __init__(self, *, adopt: bool = True, max_waiting: int = MAX_WAITING) -> None:
        self._reserved: Collection[str] = ()
        self._adopt = adopt
        self._max_waiting = max_waiting
        self._machines: dict[str, AdapterMachine] = {}
        self._refusal = NOT_CONNECTED
        self._closed = ""

    def load(self, caller: object, name: str, uri: str) -> list[Effect]:
        """Take a load on; the caller is answered once."""
        return self._ask(name, Load(caller, uri), self._name_problem(name))

    def unload(self, caller: object, name: str) -> list[Effect]:
        """Take an unload on; the caller is answered once."""
        return self._ask(name, Unload(caller), "" if name in self._machines else _spelling_problem(name))

    def hear(self, name: str, event: Event) -> list[Effect]:
        """Go on with one adapter.

        Raises:
            IllegalEventError: it is not what its machine waits for.
            KeyError: there is no such adapter.
        """
        if isinstance(event, EngineRefused) and event.featureless:
            self._refusal = f"the engine has no adapters: {event.problem}"
        return self._forgetting(self._machines[name].hear(event))

    def is_live(self, name: str) -> bool:
        """Whether requests may use an adapter."""
        machine = self._machines.get(name)
        return machine is not None and machine.phase is Phase.LIVE

    def listing(self) -> LoraAnswer:
        """Answer a list: the adapters that requests may use."""
        live = (machine.adapter for machine in self._machines.values() if machine.phase is Phase.LIVE)
        return lora_listing({adapter.name: adapter.id for adapter in live if adapter is not None})

    def views(self) -> tuple[AdapterView, ...]:
        """All adapters that there is something to say about."""
        return tuple(AdapterView(it.name, it.phase, it.uri, it.adapter, it.problem) for it in self._machines.values())

    def engine_lost(self) -> list[Effect]:
        """The engine is gone: refuse everything until it is back, and suspend what is live."""
        self._refusal = NOT_CONNECTED
        return self._forgetting(self._all(machine.engine_lost() for machine in self._each()))

    def engine_back(self, listed: Iterable[LoraAdapter] | None, reserved: Collection[str]) -> list[Effect]:
        """An engine answers: load again what was live, adopt what it holds already, report the rest.

        Args:
            listed: what it says that it holds; None where it would not say.
            reserved: names of its base model.
        """
        self._refusal, self._reserved = "", reserved
        effects = self._all(machine.engine_back() for machine in self._each())
        if listed is not None:
            held = {adapter.name: adapter for adapter in listed}
            effects += self._all(machine.reconcile(listed=machine.name in held) for machine in self._each())
            effects += self._all(self._adopted(it) for it in held.values() if it.name not in self._machines)
        return self._forgetting(effects)

    def retry(self) -> list[Effect]:
        """Try what was live, and failed, once more; nothing without an engine."""
        if self._refusal or self._closed:
            return []
        return self._forgetting(self._all(machine.engine_back() for machine in self._each()))

    def close(self, reason: str) -> list[Effect]:
        """Refuse everything from now on, cancel fetches, let what is under way end."""
        self._closed = reason
        return self._forgetting(self._all(machine.close(reason) for machine in self._each()))

    def _ask(self, name: str, ask: Ask, problem: str) -> list[Effect]:
        if refusal := problem or self._closed or self._refusal:
            return [Answer(ask.caller, lora_error(refusal, name if name in self._machines else None))]
        machine = self._machines.get(name) or AdapterMachine(name, max_waiting=self._max_waiting)
        self._machines[name] = machine
        return self._forgetting(machine.ask(ask))

    def _adopted(self, adapter: LoraAdapter) -> list[Effect]:
        problem = self._foreign_problem(adapter)
        if problem:
            return [Report(shown(adapter.name), f"the engine holds it, and it is not adopted: {problem}")]
        machine, effects = AdapterMachine.adopt(adapter, max_waiting=self._max_waiting)
        self._machines[adapter.name] = machine
        return effects

    def _foreign_problem(self, adapter: LoraAdapter) -> str:
        if not self._adopt:
            return "adoption is off"
        if problem := self._name_problem(adapter.name):
            return problem
        expected = lora_name_to_id(adapter.name)
        return "" if adapter.id == expected else f"its id is {adapter.id}, other workers expect {expected}"

    def _name_problem(self, name: str) -> str:
        if problem := _spelling_problem(name):
            return problem
        try:
            check_free(name, self._machines, self._reserved)
            check_id(name, self._machines)
        except LoraRefusedError as error:
            return str(error)
        return ""

    def _each(self) -> tuple[AdapterMachine, ...]:
        return tuple(self._machines.values())

    def _all(self, parts: Iterable[list[Effect]]) -> list[Effect]:
        return [effect for part in parts for effect in part]

    def _forgetting(self, effects: list[Effect]) -> list[Effect]:
        for machine in self._each():
            if machine.forgettable:
                del self._machines[machine.name]
        return effects


def _spelling_problem(name: str) -> str:
    try:
        check_name(name)
    except LoraRefusedError as error:
        return str(error)
    return ""

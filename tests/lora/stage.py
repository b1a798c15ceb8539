from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from openengine_sidecar.actors.config import ModelConfig, WorkerIdentity
from openengine_sidecar.actors.lora.config import LoraConfig
from openengine_sidecar.actors.lora.controller import LoraContext, LoraController
from openengine_sidecar.actors.lora.engine import AdapterEngine
from openengine_sidecar.actors.lora.table import NOT_CONNECTED
from openengine_sidecar.actors.lora.uses import AdapterUses
from openengine_sidecar.actors.records import PublishRecord, WithdrawRecord
from openengine_sidecar.actors.requests.protocol import ControlRequest, Expose
from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.messages.dynamo.lora import LIST_LORAS, LOAD_LORA, UNLOAD_LORA, LoraAnswer
from openengine_sidecar.messages.facts import Registered, Withdrawn
from openengine_sidecar.supervision import Actor, ChildSpec, Ref, Restart
from tests.lora.adapters import write_adapter
from tests.support.backstage import Backstage
from tests.support.cards import toy_card


@dataclass
class Books:
    """What stands in discovery, and what is in the way of writing there."""

    records: dict[str, bytes] = field(default_factory=dict)
    exposed: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    refusals: dict[type, str] = field(default_factory=dict)

    @property
    def cards(self) -> set[str]:
        return {key.rpartition("/")[2] for key in self.records if key.startswith("v1/mdc")}


class Office(Actor[PublishRecord | WithdrawRecord | Expose]):
    """Registrar and gate at once."""

    def __init__(self, books: Books) -> None:
        super().__init__()
        self._books = books

    async def on_message(self, message: PublishRecord | WithdrawRecord | Expose) -> str | None:
        books = self._books
        if isinstance(message, Expose):
            books.exposed.append(message.endpoint)
            return None
        books.log.append(f"{type(message).__name__} {message.key.rpartition('/')[2]}")
        if refusal := books.refusals.get(type(message)):
            return refusal
        if isinstance(message, PublishRecord):
            books.records[message.key] = message.value
        else:
            books.records.pop(message.key, None)
        return None


@dataclass
class Scene:
    backstage: Backstage
    engine: ReferenceEngine
    books: Books
    uses: AdapterUses
    directory: Path
    controller: Ref[Any]
    context: LoraContext

    @classmethod
    async def set_up(cls, backstage: Backstage, engine: ReferenceEngine, directory: Path, **changes: Any) -> Scene:
        books, uses = Books(), AdapterUses()
        office = await backstage.stage.spawn(ChildSpec(name="office", factory=lambda: Office(books)))
        config = LoraConfig(**{"enabled": True, "cache": directory / "cache", "load_timeout": 5.0, **changes})
        context = LoraContext(
            config=config,
            model=ModelConfig(path=directory),
            identity=WorkerIdentity(instance_id=7),
            engine=AdapterEngine(backstage.client, config.load_timeout),
            uses=uses,
            registrar=office,
            gate=office,
        )
        controller = await backstage.stage.spawn(_spec(context))
        return cls(backstage, engine, books, uses, directory, controller, context)

    async def again(self) -> Scene:
        """The same, in the controller's next life."""
        return replace(self, controller=await self.backstage.stage.spawn(_spec(self.context)))

    def register(self) -> None:
        self.backstage.stage.system.facts.publish(Registered(model="toy", instance_id=7, card=toy_card()))

    def withdraw(self) -> None:
        self.books.records.clear()
        self.backstage.stage.system.facts.publish(Withdrawn(cause="by the test"))

    async def load(self, name: str, uri: str | None = None) -> LoraAnswer:
        address = uri or write_adapter(self.directory / name).as_uri()
        return await self._ask(LOAD_LORA, {"lora_name": name, "source": {"uri": address}})

    async def unload(self, name: str) -> LoraAnswer:
        return await self._ask(UNLOAD_LORA, {"lora_name": name})

    async def connected(self) -> bool:
        """Whether the controller and its engine know of each other."""
        return (await self.unload("nobody")).message != NOT_CONNECTED

    async def listed(self) -> set[str]:
        loras = (await self._ask(LIST_LORAS, {})).loras
        assert isinstance(loras, dict)
        return set(loras)

    @property
    def held(self) -> set[str]:
        """What the engine holds."""
        return {adapter.lora_name for adapter in self.engine.core.adapters.listed()}

    async def _ask(self, endpoint: str, body: object) -> LoraAnswer:
        answer: LoraAnswer = await self.controller.ask(ControlRequest(endpoint=endpoint, body=body), timeout=30.0)
        return answer


def _spec(context: LoraContext) -> ChildSpec:
    return ChildSpec(name="lora", factory=lambda: LoraController(context), restart=Restart.TEMPORARY)

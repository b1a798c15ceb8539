"""What the frontend sees of adapters: their cards, and the endpoints that load, unload and list them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from msgspec import UnsetType

from openengine_sidecar.actors.config import WorkerIdentity
from openengine_sidecar.actors.records import NOT_REGISTERED, PublishRecord, WithdrawRecord
from openengine_sidecar.actors.requests.protocol import ControlRequest, Expose
from openengine_sidecar.messages.dynamo.cards import ModelCard, card_record
from openengine_sidecar.messages.dynamo.lora import LIST_LORAS, LOAD_LORA, UNLOAD_LORA, adapter_card
from openengine_sidecar.messages.dynamo.naming import EndpointId, card_key, instance_key, slugify
from openengine_sidecar.messages.dynamo.records import encode_record, instance_record, nats_transport
from openengine_sidecar.messages.engine.lora import LoraAdapter
from openengine_sidecar.supervision import Ref, SupervisionError

TIMEOUT = 30.0
ENDPOINTS = (LOAD_LORA, UNLOAD_LORA, LIST_LORAS)

M = TypeVar("M")

MakeRecord = Callable[[ModelCard], bytes]
"""From the base model's card to the value of a record."""


class Shelf:
    """Records that stand in discovery whenever the worker's own do.

    The Registrar takes them out with the worker, and forgets them; here they are remembered. One that is put while
    the worker is not registered stands as soon as it is.

    Args:
        identity: of the worker.
        registrar: who writes records.
        gate: who listens at endpoints.
    """

    def __init__(
        self, identity: WorkerIdentity, registrar: Ref[PublishRecord | WithdrawRecord], gate: Ref[Expose]
    ) -> None:
        self._id = identity.instance_id
        self._endpoint = EndpointId(identity.namespace, identity.component, identity.endpoint)
        self._registrar = registrar
        self._gate = gate
        self._records: dict[str, MakeRecord] = dict(map(self._control, ENDPOINTS))
        self._base: ModelCard | None = None

    def registered(self, base: ModelCard) -> None:
        """The worker is registered, with this card; see `announce`."""
        self._base = base

    def withdrawn(self) -> None:
        """The worker is not registered any more, and all records went with it."""
        self._base = None

    async def announce(self, handler: Ref[ControlRequest]) -> str:
        """Open the control endpoints, then let every record stand; returns what was in the way, empty for nothing."""
        problems = [await self._ask(self._gate, Expose(endpoint=name, handler=handler)) for name in ENDPOINTS]
        if not any(problems):
            problems = [await self._publish(key) for key in tuple(self._records)]
        return "; ".join(filter(None, problems))

    async def put(self, adapter: LoraAdapter) -> str:
        """Let an adapter's card stand; returns what was in the way, empty for nothing."""
        key, make = self._card_key(adapter.name), partial(self._card, adapter)
        self._records[key] = make
        problem = await self._publish(key)
        if problem and self._records.get(key) is make:
            del self._records[key]
        return problem

    async def take(self, name: str) -> str:
        """Let an adapter's card stand no more; returns what was in the way, empty for nothing."""
        key = self._card_key(name)
        self._records.pop(key, None)
        return "" if self._base is None else await self._ask(self._registrar, WithdrawRecord(key=key))

    def abandon(self) -> None:
        """Let no record stand any more, without waiting for that."""
        for key in self._records if self._base is not None else ():
            self._registrar.tell(WithdrawRecord(key=key))
        self._records.clear()

    async def _publish(self, key: str) -> str:
        make = self._records.get(key)
        if self._base is None or make is None:
            return ""
        problem = await self._ask(self._registrar, PublishRecord(key=key, value=make(self._base)))
        return "" if problem == NOT_REGISTERED else problem

    async def _ask(self, whom: Ref[M], what: M) -> str:
        try:
            problem: str | None = await whom.ask(what, timeout=TIMEOUT)
        except SupervisionError as error:
            return f"{whom.path} does not answer: {error}"
        return problem or ""

    def _card_key(self, name: str) -> str:
        return card_key(self._endpoint, self._id, slugify(name))

    def _card(self, adapter: LoraAdapter, base: ModelCard) -> bytes:
        most = base.runtime_config.max_gpu_lora_count
        card = adapter_card(base, adapter.name, adapter.id, max_loras=None if isinstance(most, UnsetType) else most)
        return encode_record(card_record(self._endpoint, self._id, card))

    def _control(self, name: str) -> tuple[str, MakeRecord]:
        endpoint = self._endpoint.sibling(name)
        value = encode_record(instance_record(endpoint, self._id, nats_transport(endpoint, self._id)))
        return instance_key(endpoint, self._id), lambda _: value

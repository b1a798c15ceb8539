"""Registrar: the only writer of discovery. What stands in the store is what this worker can serve now."""

from __future__ import annotations

import asyncio

import msgspec

from openengine_sidecar.actors.config import ModelConfig, WorkerIdentity
from openengine_sidecar.actors.discovery.model_card import build_card
from openengine_sidecar.actors.discovery.store import DiscoveryStore
from openengine_sidecar.actors.records import NOT_REGISTERED, PublishRecord, WithdrawRecord
from openengine_sidecar.actors.requests.protocol import Settle
from openengine_sidecar.messages.dynamo.naming import CARDS, EndpointId, card_key, instance_key
from openengine_sidecar.messages.dynamo.records import encode_record, instance_record, nats_transport
from openengine_sidecar.messages.errors import StoreError
from openengine_sidecar.messages.facts import EngineDown, EngineUp, PlaneState, Registered, Withdrawn
from openengine_sidecar.messages.signals import Cause, Drain
from openengine_sidecar.supervision import Actor, ActorGoneError, AskTimeoutError, MailboxFullError, Ref

SETTLE_TIMEOUT = 10.0
RETRY = 1.0
CARD_PAUSE = 1.0
"""Frontends take no notice of a card that changes in place, nor of one that is gone for a moment only."""


class Reconcile(msgspec.Struct, frozen=True):
    """To oneself: try again what the store refused."""


RegistrarMail = EngineUp | EngineDown | PlaneState | PublishRecord | WithdrawRecord | Reconcile


class Registrar(Actor[RegistrarMail]):
    """Publishes instance, then card, while the engine serves and the request plane is connected; else withdraws them.

    Withdrawal goes card, then instance, and the instance only once every acknowledged request has dialled: the
    frontend fails those that have not.
    """

    def __init__(self, identity: WorkerIdentity, model: ModelConfig, store: DiscoveryStore, gate: Ref[Settle]) -> None:
        super().__init__()
        self._identity = identity
        self._endpoint = EndpointId(identity.namespace, identity.component, identity.endpoint)
        self._model = model
        self._store = store
        self._gate = gate
        self._engine: EngineUp | None = None
        self._plane_up = False
        self._draining = False
        self._published: EngineUp | None = None
        self._card: bytes | None = None
        self._extra: set[str] = set()
        self._whole = True
        self._turn = asyncio.Lock()

    async def on_start(self) -> None:
        """Open the store; the records follow the facts."""
        await self._store.open()
        self.subscribe(EngineUp, EngineDown, PlaneState)

    async def on_message(self, message: RegistrarMail) -> str | None:
        """Take a fact in and bring the store in line with it, or serve what others ask for."""
        cause = ""
        match message:
            case PublishRecord():
                return await self._keep(message)
            case WithdrawRecord():
                return await self._drop(message.key)
            case EngineUp():
                self._engine = message
            case EngineDown():
                self._engine, cause = None, f"engine: {message.cause}"
            case PlaneState():
                self._plane_up, cause = message.connected, message.detail
            case Reconcile():
                pass
        await self._reconcile(cause)
        return None

    async def on_drain(self, drain: Drain) -> None:
        """Withdraw for good."""
        self._draining = True
        await self._reconcile(f"draining: {drain.reason}")

    async def on_stop(self, cause: Cause) -> None:
        """Leave no record behind."""
        await self._store.close()
        if self._published is not None:
            self.publish(Withdrawn(cause=f"the registrar ended: {cause}"))

    async def _reconcile(self, cause: str) -> None:
        async with self._turn:
            wanted = self._engine if self._plane_up and not self._draining else None
            if wanted == self._published and self._whole:
                return
            self._whole = False  # half of it must be undone, or done again
            try:
                if wanted is None:
                    await self._withdraw(cause)
                else:
                    await self._publish(wanted)
            except StoreError as error:
                self.log.error("{}; next try in {} s", error, RETRY)
                self.schedule("reconcile", RETRY, Reconcile())
            else:
                self._whole = True

    async def _publish(self, engine: EngineUp) -> None:
        identity, endpoint = self._identity, self._endpoint
        card = await build_card(self._model, engine.discovery, engine.role, identity)
        instance = instance_record(endpoint, identity.instance_id, nats_transport(endpoint, identity.instance_id))
        key, value = card_key(endpoint, identity.instance_id), encode_record(card)
        if self._card not in {None, value}:
            await self._withdraw("the model's card changes")
            await self.clock.sleep(CARD_PAUSE)
        await self._store.publish(instance_key(endpoint, identity.instance_id), encode_record(instance))
        await self._store.publish(key, value)
        self._published, self._card = engine, value
        self.log.info("registered {} as instance {:x} of {}", card.name, identity.instance_id, endpoint)
        self.publish(Registered(model=card.name, instance_id=identity.instance_id, card=card.card_json))

    async def _withdraw(self, cause: str) -> None:
        identity, endpoint = self._identity, self._endpoint
        cards = [key for key in self._extra if key.startswith(CARDS)]
        for key in (*cards, card_key(endpoint, identity.instance_id)):
            await self._store.withdraw(key)
        await self._settle()
        for key in self._extra.difference(cards):
            await self._store.withdraw(key)
        self._extra.clear()
        await self._store.withdraw(instance_key(endpoint, identity.instance_id))
        self._published = self._card = None
        self.log.info("withdrawn: {}", cause)
        self.publish(Withdrawn(cause=cause))

    async def _keep(self, record: PublishRecord) -> str | None:
        async with self._turn:
            if self._published is None:
                return NOT_REGISTERED
            self._extra.add(record.key)
            try:
                await self._store.publish(record.key, record.value)
            except StoreError as error:
                return str(error)
        return None

    async def _drop(self, key: str) -> str | None:
        async with self._turn:
            self._extra.discard(key)
            try:
                await self._store.withdraw(key)
            except StoreError as error:
                return str(error)
        return None

    async def _settle(self) -> None:
        """Wait until every acknowledged request has dialled; not for a gate that cannot say so."""
        try:
            await self._gate.ask(Settle(), timeout=SETTLE_TIMEOUT)
        except (AskTimeoutError, ActorGoneError, MailboxFullError) as error:
            self.log.warning("withdrawing while an acknowledged request may not have dialled its frontend: {}", error)

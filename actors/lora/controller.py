"""LoraController: does what the table of adapters decides, and tells it what came of that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast

import msgspec

from openengine_sidecar.actors.config import ModelConfig, WorkerIdentity
from openengine_sidecar.actors.discovery.model_card import served_name
from openengine_sidecar.actors.lora.cache import AdapterCache
from openengine_sidecar.actors.lora.config import LoraConfig
from openengine_sidecar.actors.lora.engine import AdapterEngine
from openengine_sidecar.actors.lora.errands import Errands
from openengine_sidecar.actors.lora.fetch import Fetcher
from openengine_sidecar.actors.lora.leases import Leases
from openengine_sidecar.actors.lora.shelf import Shelf
from openengine_sidecar.actors.lora.steps import (
    Answer,
    CancelFetch,
    Effect,
    Event,
    Fetch,
    Hold,
    LoadEngine,
    Phase,
    Publish,
    PublishFailed,
    Quiesce,
    Quiet,
    Release,
    Report,
    Task,
    UnloadEngine,
    Withdraw,
    WithdrawFailed,
)
from openengine_sidecar.actors.lora.steps import Published as CardPublished
from openengine_sidecar.actors.lora.steps import Withdrawn as CardWithdrawn
from openengine_sidecar.actors.lora.table import LoraTable
from openengine_sidecar.actors.lora.uses import AdapterUses
from openengine_sidecar.actors.records import PublishRecord, WithdrawRecord
from openengine_sidecar.actors.requests.protocol import ControlRequest, Expose
from openengine_sidecar.messages.dynamo.lora import (
    LIST_LORAS,
    LOAD_LORA,
    LoraAnswer,
    lora_error,
    read_load,
    read_unload,
)
from openengine_sidecar.messages.errors import ConfigurationError, LoraCacheError, WireError
from openengine_sidecar.messages.facts import EngineDown, EngineUp, Registered, Withdrawn
from openengine_sidecar.messages.signals import Cause, Drain
from openengine_sidecar.supervision import Actor, Ref

OPTION = "--lora-path (DYN_LORA_PATH)"


class Retry(msgspec.Struct, frozen=True):
    """To oneself: adapters that failed and are wanted shall be tried again."""


class Announce(msgspec.Struct, frozen=True):
    """To oneself: not every record stands; try again."""


LoraMail = ControlRequest | EngineUp | EngineDown | Registered | Withdrawn | Retry | Announce


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraContext:
    """What the controller works with, in all its lives.

    Attributes:
        engine: the engine's calls.
        uses: what requests may use.
        registrar: who writes records.
        gate: who listens at endpoints.
    """

    config: LoraConfig
    model: ModelConfig
    identity: WorkerIdentity
    engine: AdapterEngine
    uses: AdapterUses
    registrar: Ref[PublishRecord | WithdrawRecord]
    gate: Ref[Expose]


class LoraController(Actor[LoraMail]):
    """The only one who loads and unloads adapters, says which of them requests may use, and shows them as models.

    Answers ControlRequest for the three control endpoints with a LoraAnswer. Nothing here waits for a call: each runs
    beside the mailbox, with a timeout of its own, and the table goes on with what came of it.
    """

    def __init__(self, context: LoraContext) -> None:
        super().__init__()
        config = context.config
        self._context = context
        self._cache = None if config.cache is None else AdapterCache(config.cache, config.cache_bytes)
        self._errands = Errands(self, Fetcher(config, self._cache), config.fetch_timeout)
        self._table = LoraTable(adopt=config.adopt, max_waiting=config.max_waiting)
        self._leases = Leases()
        self._shelf = Shelf(context.identity, context.registrar, context.gate)
        self._engine: EngineUp | None = None
        self._working: set[asyncio.Task[None]] = set()
        self._retrying = False

    async def on_start(self) -> None:
        """Open the cache, then follow the facts.

        Raises:
            ConfigurationError: the cache's directory cannot be used.
        """
        if self._cache is not None:
            try:
                await asyncio.to_thread(self._cache.open)
            except LoraCacheError as error:
                raise ConfigurationError(OPTION, str(error)) from error
        self._show()
        self.subscribe(EngineUp, EngineDown, Registered, Withdrawn)

    async def on_message(self, message: LoraMail) -> LoraAnswer | asyncio.Future[LoraAnswer] | None:
        """Take an operation on, or a fact in."""
        match message:
            case ControlRequest():
                return self._control(message)
            case EngineUp():
                self._engine_up(message)
            case EngineDown():
                self._engine_down(message)
            case Registered():
                self._shelf.registered(message.card)
                self._announce()
            case Withdrawn():
                self._shelf.withdrawn()
            case Announce():
                self._announce()
            case Retry():
                self._retrying = False
                self._carry_out(self._table.retry())
        return None

    async def on_drain(self, drain: Drain) -> None:
        """Refuse everything, cancel fetches, wait for what the engine was asked to do. It keeps its adapters."""
        self._carry_out(self._table.close(f"the worker drains: {drain.reason}"))
        while self._working:
            await asyncio.wait(tuple(self._working))

    async def on_stop(self, cause: Cause) -> None:
        """Show nothing that nobody looks after; the next life finds out what the engine holds."""
        self._errands.cancel_all(f"the controller ends: {cause}")
        self._shelf.abandon()
        self._context.uses.show({})
        self._leases.release_all()

    def _control(self, request: ControlRequest) -> LoraAnswer | asyncio.Future[LoraAnswer]:
        if request.endpoint == LIST_LORAS:
            return self._table.listing()
        caller: asyncio.Future[LoraAnswer] = asyncio.get_running_loop().create_future()
        try:
            if request.endpoint == LOAD_LORA:
                load = read_load(request.body)
                self.log.info("asked to load {!r} from {!r}", load.lora_name, load.source.uri)
                self._carry_out(self._table.load(caller, load.lora_name, load.source.uri))
            else:
                unload = read_unload(request.body)
                self.log.info("asked to unload {!r}", unload.lora_name)
                self._carry_out(self._table.unload(caller, unload.lora_name))
        except WireError as error:
            return lora_error(str(error))
        return caller

    def _engine_up(self, up: EngineUp) -> None:
        if self._engine is not None and self._engine.discovery.instance_id == up.discovery.instance_id:
            return
        self._engine_lost()
        self._engine = up
        self.background(self._reconcile(up), name="reconcile")

    def _engine_down(self, down: EngineDown) -> None:
        if down.lost:
            self._engine_lost()

    def _engine_lost(self) -> None:
        if self._engine is not None:
            self._engine = None
            self._carry_out(self._table.engine_lost())

    async def _reconcile(self, up: EngineUp) -> None:
        listed = await self._context.engine.listed()
        if self._engine is up:
            names = {served_name(self._context.model, up.discovery), *self._context.model.aliases}
            self._carry_out(self._table.engine_back(listed, names))

    def _announce(self) -> None:
        self.background(self._announced(), name="announce")

    async def _announced(self) -> None:
        if problem := await self._shelf.announce(self.ref):
            self.log.error("{}; next try in {} s", problem, self._context.config.retry_interval)
            self.schedule("announce", self._context.config.retry_interval, Announce())

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answer(caller, answer):
                    self._answer(caller, answer)
                case Report(name, problem):
                    self.log.error("adapter {}: {}", name, problem)
                case CancelFetch(name, reason):
                    self._errands.cancel(name, reason)
                case Hold(adapter):
                    self._leases.await_(adapter.name, adapter.path, self._errands.hold(self._cache, adapter.path))
                case Release(name, path):
                    self._leases.release(name, path)
                case _:
                    self._begin(effect)
        self._show()

    def _begin(self, order: Task) -> None:
        name = order.adapter.name if isinstance(order, LoadEngine | Publish) else order.name
        if isinstance(order, Fetch):
            self._errands.expect(name, order.uri)
        task = self.background(self._work(name, order), name=f"{type(order).__name__} {name}")
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _work(self, name: str, order: Task) -> None:
        event = await self._event(order)
        self.log.debug("adapter {}: {} -> {}", name, type(order).__name__, event)
        self._carry_out(self._table.hear(name, event))

    async def _event(self, order: Task) -> Event:
        context = self._context
        match order:
            case Fetch(name, uri):
                return await self._errands.fetch(name, uri, self._leases)
            case LoadEngine(adapter):
                return await context.engine.load(adapter)
            case UnloadEngine(name):
                return await context.engine.unload(name)
            case Publish(adapter):
                problem = await self._shelf.put(adapter)
                return PublishFailed(problem) if problem else CardPublished()
            case Withdraw(name):
                problem = await self._shelf.take(name)
                return WithdrawFailed(problem) if problem else CardWithdrawn()
            case Quiesce(name):
                return await self._quiet(name)

    async def _quiet(self, name: str) -> Quiet:
        uses, limit = self._context.uses, self._context.config.idle_timeout
        try:
            async with asyncio.timeout(limit):
                await uses.quiet(name)
        except TimeoutError:
            self.log.warning("unloading {} while {} requests still use it after {} s", name, uses.running(name), limit)
        return Quiet()

    def _answer(self, caller: object, answer: LoraAnswer) -> None:
        waiting = cast("asyncio.Future[LoraAnswer]", caller)
        if not waiting.done():
            waiting.set_result(answer)

    def _show(self) -> None:
        """Let requests know where every adapter stands, and come back to those that failed."""
        phases = {view.name: view.phase for view in self._table.views()}
        self._context.uses.show(phases)
        if Phase.FAILED in phases.values() and not self._retrying:
            self._retrying = True
            self.schedule("retry", self._context.config.retry_interval, Retry())

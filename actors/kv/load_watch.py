"""LoadWatch: polls the engine's load, for routers and for people."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Never

import grpc

from openengine_sidecar.actors.config import LoadConfig
from openengine_sidecar.actors.kv.announcement import channel_record
from openengine_sidecar.actors.kv.announcer import Announcer, replaced
from openengine_sidecar.actors.kv.load import Gauges, LoadBook, LoadReport
from openengine_sidecar.actors.kv.telling import Telling
from openengine_sidecar.messages.dynamo.events import LOAD_TOPIC, ActiveLoad, encode_load
from openengine_sidecar.messages.engine.control import RankLoad
from openengine_sidecar.messages.errors import EngineLostError
from openengine_sidecar.messages.facts import EngineUp, LoadSample, Registered, Withdrawn
from openengine_sidecar.messages.signals import Cause
from openengine_sidecar.proto.dialect import EngineCallError
from openengine_sidecar.supervision import Actor

REFRESH_EVERY: Final = 10
"""Polls after which routers are told again what has not changed: one may have come later."""


class LoadWatch(Actor[EngineUp | Registered | Withdrawn]):
    """Tells routers of used KV blocks on change, and people of everything, as LoadSample. Ready at once."""

    def __init__(self, telling: Telling, config: LoadConfig) -> None:
        super().__init__()
        self._telling = telling
        self._config = config
        self._outlet = telling.plane.outlet(telling.endpoint, LOAD_TOPIC, _encode, lambda _: 1, alone=True)
        self._announcer: Announcer
        self._announcing: asyncio.Task[None] | None = None
        self._ranks: range | None = None
        self._book: LoadBook | None = None
        self._offered = True
        self._complained: set[str] = set()
        self._said: tuple[RankLoad, ...] = ()

    async def on_start(self) -> None:
        """Begin to poll, once there is an engine."""
        record = channel_record(self._telling.endpoint, LOAD_TOPIC, self._outlet.id)
        self._announcer = Announcer(self._telling.offices, [record], self.clock)
        self.subscribe(EngineUp, Registered, Withdrawn)
        self.background(self._watch(), name="watch")

    async def on_message(self, message: EngineUp | Registered | Withdrawn) -> None:
        """Poll the engine that came; keep the record while the worker is registered."""
        match message:
            case EngineUp():
                self._engine_came(message.discovery.parallelism.ranks)
            case Registered():
                replaced(self._announcing)
                self._announcing = self.background(self._announcer.announce(), name="announce")
            case Withdrawn():
                replaced(self._announcing)

    async def on_stop(self, cause: Cause) -> None:
        """Leave no record behind."""
        del cause
        self._announcer.withdraw()

    def _engine_came(self, ranks: range) -> None:
        self._offered = True
        self._complained.clear()
        if ranks != self._ranks:
            self._ranks = ranks
            self._book = LoadBook(
                self._telling.identity.instance_id,
                ranks,
                age_limit=self._config.age_limit,
                monotonic=self.clock.monotonic,
            )

    async def _watch(self) -> Never:
        polls = 0
        while True:
            await self.clock.sleep(self._config.interval)
            book = self._book
            if book is None:
                continue
            polls += 1
            report = await self._poll(book)
            self._outlet.tell(report.publish)
            if polls % REFRESH_EVERY == 0:
                self._outlet.tell(book.standing)
            self._say(book.gauges)

    async def _poll(self, book: LoadBook) -> LoadReport:
        if not self._offered:
            return book.missed()
        try:
            load = await self._telling.client.load(timeout=self._config.timeout)
        except EngineLostError:
            return book.missed()
        except EngineCallError as error:
            self._offered = error.status is not grpc.StatusCode.UNIMPLEMENTED
            self._complain(error.status.name, str(error))
            return book.missed()
        report = book.sampled(load)
        for fault in report.faults:
            self._complain(fault.value, f"the engine's load is not all usable: {fault.value}")
        return report

    def _complain(self, kind: str, problem: str) -> None:
        """Say what is wrong, each kind once for each engine."""
        if kind not in self._complained:
            self._complained.add(kind)
            self.log.warning("load: {}", problem)

    def _say(self, gauges: Mapping[int, Gauges]) -> None:
        sample = tuple(_sample(gauges))
        if sample != self._said:
            self._said = sample
            self.publish(LoadSample(ranks=sample))


def _sample(gauges: Mapping[int, Gauges]) -> Iterable[RankLoad]:
    for rank, measured in sorted(gauges.items()):
        yield RankLoad(
            rank=rank,
            running_requests=measured.running_requests,
            queued_requests=measured.queued_requests,
            used_kv_blocks=measured.used_blocks,
            total_kv_blocks=measured.total_blocks,
        )


def _encode(items: Sequence[ActiveLoad]) -> bytes:
    return encode_load(items[0])

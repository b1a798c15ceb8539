from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import msgspec

from openengine_sidecar.actors.config import KvConfig, WorkerIdentity
from openengine_sidecar.actors.events.plane import EventPlane
from openengine_sidecar.actors.kv.publisher import KvPublisher
from openengine_sidecar.actors.kv.telling import Offices, Telling
from openengine_sidecar.actors.requests.protocol import ControlRequest
from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.launch.engine.prefix import Namespace
from openengine_sidecar.messages.dynamo.control import Codec
from openengine_sidecar.messages.dynamo.events import RecoveryAnswer, RecoveryRequest
from openengine_sidecar.messages.facts import KvCounted, Registered
from openengine_sidecar.supervision import ChildSpec, Ref, Restart
from tests.kv.routers import Router
from tests.lora.stage import Books, Office
from tests.support.backstage import Backstage
from tests.support.cards import toy_card

INSTANCE = 7
BLOCK_SIZE = 8
_numbers = itertools.count(1)


@dataclass
class Troupe:
    """A KvPublisher before a real engine; what it says is heard by a router for each publisher."""

    backstage: Backstage
    engine: ReferenceEngine
    books: Books
    plane: EventPlane
    publisher: Ref[Any]
    routers: dict[int, Router] = field(default_factory=lambda: defaultdict(Router))
    ranks: dict[int, int] = field(default_factory=dict)

    @classmethod
    async def set_up(
        cls, backstage: Backstage, engine: ReferenceEngine, *, room: int = 65_536, **changes: Any
    ) -> Troupe:
        books, plane = Books(), EventPlane(room)
        backstage.probe.subscribe(KvCounted)
        office = await backstage.stage.spawn(ChildSpec(name="office", factory=lambda: Office(books)))
        offices = Offices(registrar=office, gate=office)
        identity = WorkerIdentity(instance_id=INSTANCE)
        telling = Telling(identity=identity, client=backstage.client, plane=plane, offices=offices)
        spec = ChildSpec(
            name="kv", factory=lambda: KvPublisher(telling, KvConfig(**changes)), restart=Restart.TEMPORARY
        )
        return cls(backstage, engine, books, plane, await backstage.stage.spawn(spec))

    def path(self, rank: int) -> str:
        return f"{self.publisher.path}/ranks/rank-{rank}"

    def register(self) -> None:
        self.backstage.stage.system.facts.publish(Registered(model="toy", instance_id=INSTANCE, card=toy_card()))

    def cache(self, rank: int = 0, *, blocks: int = 2) -> None:
        """Lets the engine cache a prompt of its own, of so many blocks."""
        start = next(_numbers) * 1_000
        hold = self.engine.core.caches[rank].hold(range(start, start + blocks * BLOCK_SIZE), Namespace())
        hold.release()

    async def listen(self) -> None:
        """Hears what waits; what routers heard before they pass over."""
        while not self.plane.empty:
            outlet, events = await self.plane.next()
            router = self.routers[outlet.id]
            router.hear(event for event in events if event.event.event_id > router.last_id)
            self.ranks[outlet.id] = events[-1].event.dp_rank

    async def believed(self, rank: int = 0) -> int:
        """Blocks that the newest publisher of a rank has told of."""
        await self.listen()
        publishers = [publisher for publisher, its in self.ranks.items() if its == rank]
        return len(self.routers[publishers[-1]].device) if publishers else 0

    async def ask(self, rank: int, *, start: int | None = None, endpoint: str | None = None) -> RecoveryAnswer:
        """A router's question to a rank."""
        asked = endpoint or next(name for name in reversed(self.books.exposed) if name.startswith("worker_kv"))
        request = RecoveryRequest(worker_id=INSTANCE, dp_rank=rank, start_event_id=start)
        body = msgspec.to_builtins(request)
        question = ControlRequest(endpoint=asked, body=body, codec=Codec.JSON)
        raw = await self.backstage.stage.system.ref(self.path(rank)).ask(question, timeout=30.0)
        return msgspec.json.decode(bytes(raw), type=RecoveryAnswer)

    def counted(self, outcome: str) -> int:
        return sum(fact.outcomes.get(outcome, 0) for fact in self.backstage.heard(KvCounted))

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.requests.exchange import Exchange
from openengine_sidecar.actors.requests.protocol import Admitted, CancelReason
from openengine_sidecar.actors.requests.stream import RequestStream, StreamContext
from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.launch.engine.stats import RequestRecord
from openengine_sidecar.messages.dynamo.control import decode_control
from openengine_sidecar.messages.facts import EngineUp, StreamEnded
from openengine_sidecar.supervision import ChildSpec, Ref, Restart
from openengine_sidecar.supervision.testing import Gate
from tests.support.backstage import Backstage, pass_time
from tests.support.waiting import eventually
from tests.support.wire import Caller, CallHomeServer, request_body

CONFIG = RequestConfig(dial_timeout=2.0, abort_timeout=2.0, cancel_timeout=5.0)
PROMPT = list(b"say this again, please")
MAX_TOKENS = 12
_numbers = itertools.count(1)


class HeldExchange(Exchange):
    """An exchange that dials when the test says so."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.gate = Gate()

    async def dial(self, on_gone: Callable[[str], None]) -> None:
        await self.gate.passage()
        await super().dial(on_gone)


@dataclass(slots=True)
class Subject:
    """One request stream and everybody around it."""

    streams: Streams
    caller: Caller
    exchange: Any
    ref: Ref[Any]

    @property
    def path(self) -> str:
        return self.ref.path

    @property
    def record(self) -> RequestRecord | None:
        """What the engine remembers of it, None if it never heard of it."""
        return self.streams.engine.stats.records.get(self.exchange.engine_id)

    @property
    def heard(self) -> RequestRecord:
        record = self.record
        assert record is not None
        return record

    def cancel(self, reason: CancelReason = CancelReason.CLIENT_GONE) -> None:
        self.ref.cancel(reason)

    async def flows(self, tokens: int = 2) -> None:
        await eventually(lambda: len(self.caller.token_ids) >= tokens, "tokens flow")

    async def at_engine(self) -> RequestRecord:
        await eventually(lambda: self.record, "the engine has it")
        return self.heard

    async def ended(self) -> StreamEnded:
        """How it ended; its actor, both its ends, and its place at the engine are gone by then."""
        clock = self.streams.backstage.stage.clock
        mine = self.exchange.request_id
        await pass_time(clock, lambda: not self.ref.is_alive, "end of the actor", leap=1.0)
        await eventually(lambda: self.streams.told(mine), "the end is told")
        await eventually(lambda: self.record is None or self.heard.ended is not None, "end at the engine")
        assert self.exchange.closed
        [told] = self.streams.told(mine)
        return told


@dataclass(slots=True)
class Streams:
    """Request streams side by side, as a gate would open them."""

    backstage: Backstage
    engine: ReferenceEngine
    ears: CallHomeServer
    config: RequestConfig = CONFIG

    def told(self, request_id: str) -> list[StreamEnded]:
        return [fact for fact in self.backstage.heard(StreamEnded) if fact.request_id == request_id]

    async def open(
        self,
        *,
        exchange: type[Exchange] = Exchange,
        config: RequestConfig | None = None,
        fault: str = "",
        header: dict[str, Any] | None = None,
        up: EngineUp | None = None,
        connection: Ref[Any] | None = None,
        **body: Any,
    ) -> Subject:
        caller = self.ears.caller()
        control = decode_control(self.ears.header(caller, **(header or {})))
        if fault:
            body["extra_args"] = {"metadata": {"fault": fault}}
        asked = request_body(body.pop("token_ids", PROMPT), max_tokens=body.pop("max_tokens", MAX_TOKENS), **body)
        stage = self.backstage.stage
        used = config or self.config
        name = f"{control.id}.test-{next(_numbers)}"
        exchanged = exchange(control, name, self.backstage.client, used, stage.clock)
        context = StreamContext(client=self.backstage.client, connection=connection or stage.ref("engine"), config=used)
        admitted = Admitted(
            control=control,
            body=msgspec.msgpack.encode(asked),
            trace={},
            engine=up or self.backstage.heard(EngineUp)[-1],
        )
        spec = ChildSpec(
            name=name,
            factory=lambda: RequestStream(context, admitted, exchanged),
            restart=Restart.TEMPORARY,
            shutdown=15.0,
        )
        return Subject(self, caller, exchanged, await stage.spawn(spec))

    async def serves(self) -> None:
        """Checks that one more request is served in full."""
        subject = await self.open()
        await subject.caller.closed.wait()
        assert (await subject.ended()).outcome == "finished"
        assert subject.caller.ended_once


async def turns(count: int) -> None:
    """Lets the loop make that many turns."""
    for _ in range(count):
        await asyncio.sleep(0)

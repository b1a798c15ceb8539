from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.launch.engine import EngineOptions, ReferenceEngine
from openengine_sidecar.messages.dynamo.handoff import FORMAT
from openengine_sidecar.proto.rev2 import generation_pb2, kv_pb2
from openengine_sidecar.supervision.testing import Stage
from tests.engine.caller import Caller
from tests.requests.streams import CONFIG, PROMPT, Streams, Subject
from tests.support.backstage import Backstage
from tests.support.wire import CallHomeServer

NEVER = 1e9
SLOW = "slow-transfer:3600"


@asynccontextmanager
async def half(
    role: str, ears: CallHomeServer, config: RequestConfig = CONFIG, **options: Any
) -> AsyncIterator[Streams]:
    """The streams of a worker of this role, in front of an engine of its own."""
    async with ReferenceEngine(EngineOptions(role=role, **options)) as engine, Stage() as stage:
        backstage = await Backstage.set_up(stage)
        await backstage.connect(engine.address, health_interval=NEVER)
        yield Streams(backstage, engine, ears, config)


def held(engine: ReferenceEngine) -> dict[str, int]:
    """What became of the sessions of an engine; zeros are left out."""
    return {name: count for name, count in engine.stats.sessions.as_dict().items() if count}


@dataclass(slots=True)
class Pair:
    """A decode worker's streams, and a prefill engine that hands sessions to its engine."""

    streams: Streams
    prefill: ReferenceEngine
    caller: Caller
    _prefilled: int = 0

    async def session(self, fault: str = "") -> kv_pb2.KvSessionRef:
        self._prefilled += 1
        request = generation_pb2.GenerateRequest(
            request_id=f"p-{self._prefilled}",
            token_ids={"ids": PROMPT},
            metadata={"fault": fault} if fault else {},
        )
        answer = await self.caller.generate(request)
        return answer.last.prefill_ready.kv_session

    async def open(self, prefill_fault: str = "", **options: Any) -> Subject:
        """A request of the decode worker, with a session of its own."""
        session = await self.session(prefill_fault)
        return await self.streams.open(prefill_result=result_of(session), **options)

    @property
    def sessions(self) -> dict[str, int]:
        return held(self.prefill)


@asynccontextmanager
async def pair(
    ears: CallHomeServer, config: RequestConfig = CONFIG, *, prefill: dict[str, Any] | None = None, **decode: Any
) -> AsyncIterator[Pair]:
    async with (
        ReferenceEngine(EngineOptions(role="prefill", **(prefill or {}))) as engine,
        Caller(engine.address) as caller,
        half("decode", ears, config, **decode) as streams,
    ):
        yield Pair(streams, engine, caller)


def result_of(session: kv_pb2.KvSessionRef, **details: Any) -> dict[str, Any]:
    wire = base64.b64encode(session.SerializeToString()).decode()
    return {"disaggregated_params": {"format": FORMAT, "session": wire}, **details}


def session_in(params: dict[str, Any]) -> kv_pb2.KvSessionRef:
    return kv_pb2.KvSessionRef.FromString(base64.b64decode(params["session"]))

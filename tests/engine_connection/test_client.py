from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import grpc.aio
import pytest

from openengine_sidecar.actors.engine.client import Attachment, EngineClient
from openengine_sidecar.actors.engine.connection import Suspect
from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.messages.engine.control import AbortOutcome
from openengine_sidecar.messages.engine.generation import GenerateCall, Stopping
from openengine_sidecar.messages.errors import EngineLostError
from openengine_sidecar.messages.facts import EngineUp
from openengine_sidecar.proto.dialect import Dialect
from tests.support.backstage import Backstage
from tests.support.waiting import eventually

STREAMS = 64


def call(number: int, model: str = "m") -> GenerateCall:
    return GenerateCall(request_id=f"r{number}", model=model, token_ids=[1], stopping=Stopping(max_tokens=1))


class Recording:
    """A dialect that notes which channel it was given."""

    def __init__(self, *outcomes: AbortOutcome) -> None:
        self.generated: list[object] = []
        self.aborted: list[object] = []
        self._outcomes = list(outcomes)

    def generate(self, channel: object, _call: GenerateCall) -> None:
        self.generated.append(channel)

    async def abort(self, channel: object, _request_id: str, **_: Any) -> AbortOutcome:
        self.aborted.append(channel)
        return self._outcomes.pop(0)


def attached(dialect: Recording) -> EngineClient:
    client = EngineClient("host:1")
    channels = [cast("grpc.aio.Channel", f"channel {number}") for number in range(8)]
    control = cast("grpc.aio.Channel", "control")
    client.attach(Attachment(cast("Dialect", dialect), channels, control))
    return client


def test_c32_streams_go_round_robin_over_the_pool_and_leave_control_alone() -> None:
    dialect = Recording()
    client = attached(dialect)
    for number in range(STREAMS):
        client.generate(call(number))
    assert Counter(dialect.generated) == {f"channel {number}": STREAMS // 8 for number in range(8)}
    assert len(set(dialect.generated[:8])) == 8


async def test_c62_an_engine_without_abort_is_asked_once() -> None:
    dialect = Recording(AbortOutcome.UNSUPPORTED)
    client = attached(dialect)
    outcomes = [await client.abort(f"r{number}", timeout=1.0, trace={}) for number in range(3)]
    assert outcomes == [AbortOutcome.UNSUPPORTED] * 3
    assert dialect.aborted == ["control"]


async def test_c62_another_engine_is_asked_anew() -> None:
    client = attached(Recording(AbortOutcome.UNSUPPORTED))
    await client.abort("r1", timeout=1.0, trace={})
    another = Recording(AbortOutcome.ABORTED)
    client.attach(Attachment(cast("Dialect", another), [], cast("grpc.aio.Channel", "control")))
    assert await client.abort("r2", timeout=1.0, trace={}) is AbortOutcome.ABORTED


async def test_without_an_engine_nothing_is_called() -> None:
    client = attached(Recording())
    client.detach()
    with pytest.raises(EngineLostError, match="host:1"):
        client.generate(call(1))
    with pytest.raises(EngineLostError, match="host:1"):
        await client.abort("r1", timeout=1.0, trace={})


async def test_c32_control_calls_are_answered_while_every_stream_channel_is_in_use(
    backstage: Backstage, engine: ReferenceEngine
) -> None:
    await backstage.connect(engine.address, connections=8)
    engine.core.faults.play(["silent"])
    model = backstage.heard(EngineUp)[0].discovery.model_id
    streams = [backstage.client.generate(call(number, model)) for number in range(STREAMS)]
    reading = [asyncio.create_task(cast("Any", stream.next_batch())) for stream in streams]
    await eventually(lambda: engine.stats.active == STREAMS, "all streams are open")
    assert await backstage.stage.ref("engine").ask(Suspect("r"), timeout=60.0)
    outcome = await backstage.client.abort("r7", timeout=5.0, trace={})
    assert outcome is AbortOutcome.ABORTED
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    await eventually(lambda: engine.stats.active == 0, "all streams are gone")

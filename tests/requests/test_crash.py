from __future__ import annotations

import asyncio
from typing import Never

import pytest

from openengine_sidecar.actors.engine.connection import Suspect
from openengine_sidecar.actors.requests.exchange import Phase
from openengine_sidecar.messages.facts import Outcome
from openengine_sidecar.supervision import Actor, ActorGoneError, ChildSpec, Ref, Restart
from openengine_sidecar.supervision.testing import crash_now
from tests.requests.streams import HeldExchange, Streams, Subject
from tests.support.waiting import eventually

LONG = 20_000


def crash(subject: Subject) -> None:
    crash_now(subject.streams.backstage.stage.system, subject.path)


async def crashed(subject: Subject, *, aborts: int, error: bool = True) -> None:
    """Checks that it crashes with one end for everybody."""
    told = await subject.ended()
    assert subject.caller.ended_once
    assert len(subject.caller.errors) == error
    assert told.outcome is (Outcome.FAILED if error else Outcome.FINISHED)
    assert told.aborts == aborts == subject.streams.engine.stats.calls["Abort"]
    await subject.streams.serves()


async def test_before_it_dials(streams: Streams) -> None:
    subject = await streams.open()
    crash(subject)
    await crashed(subject, aborts=0)


async def test_while_it_dials(streams: Streams) -> None:
    subject = await streams.open(exchange=HeldExchange)
    await subject.exchange.gate.reached()
    crash(subject)
    await subject.exchange.gate.reached(2)
    subject.exchange.gate.open()
    await crashed(subject, aborts=0)


async def test_while_headers_are_pending(streams: Streams) -> None:
    subject = await streams.open(fault="silent")
    await subject.at_engine()
    crash(subject)
    await crashed(subject, aborts=1)


async def test_while_tokens_flow(streams: Streams) -> None:
    subject = await streams.open(max_tokens=LONG)
    await subject.flows()
    crash(subject)
    await crashed(subject, aborts=1)
    assert subject.heard.aborts == 1


async def test_while_the_reader_is_slow(streams: Streams) -> None:
    subject = await streams.open(max_tokens=LONG, fault="hang:5")
    await subject.flows(5)
    subject.caller.listening.clear()
    crash(subject)
    await eventually(lambda: subject.exchange.phase is Phase.ENDED, "the end is decided")
    subject.caller.listening.set()
    await crashed(subject, aborts=1)


async def test_while_it_aborts(streams: Streams) -> None:
    subject = await streams.open(max_tokens=LONG, fault="wrong-id:3;deaf")
    streams.engine.core.faults.play(["rpc:Abort,delay=1000"])
    await eventually(lambda: streams.engine.stats.calls["Abort"], "the abort")
    crash(subject)
    await crashed(subject, aborts=1)
    assert subject.heard.aborts == 1


async def test_after_the_terminal(streams: Streams) -> None:
    subject = await streams.open()
    subject.caller.listening.clear()
    await eventually(lambda: subject.exchange.phase is Phase.ENDED, "the end is decided")
    crash(subject)
    await streams.backstage.stage.clock.settle()
    subject.caller.listening.set()
    await crashed(subject, aborts=0, error=False)


async def test_while_the_engine_is_asked_how_it_is(streams: Streams) -> None:
    streams.engine.core.faults.play(["rpc:Health,hang@1"])
    asked = streams.engine.stats.calls["Health"]
    subject = await streams.open(fault="status:unavailable,after=3")
    await eventually(lambda: streams.engine.stats.calls["Health"] > asked, "the engine is asked")
    crash(subject)
    await crashed(subject, aborts=1)


@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_at_any_turn(streams: Streams, steps: int) -> None:
    streams.engine.core.faults.play(["slow:0.001"])
    subject = await streams.open()
    for _ in range(steps):
        await asyncio.sleep(0)
    if subject.ref.is_alive:
        crash(subject)
    told = await subject.ended()
    assert subject.caller.ended_once
    assert len(subject.caller.errors) == (told.outcome is Outcome.FAILED)
    assert streams.engine.stats.calls["Abort"] == told.aborts
    assert told.aborts <= 1


@pytest.mark.parametrize("steps", range(0, 30, 3))
async def test_a_frontend_that_is_not_there_changes_nothing(streams: Streams, steps: int) -> None:
    subject = await streams.open(header={"address": "127.0.0.1:1"})
    for _ in range(steps):
        await asyncio.sleep(0)
    if subject.ref.is_alive:
        crash(subject)
    told = await subject.ended()
    assert (told.outcome, told.aborts) == (Outcome.FAILED, 0)
    assert subject.exchange.dialled.done()


class Mute(Actor[Suspect]):
    """An engine connection that crashes over every question."""

    async def on_message(self, message: Suspect) -> Never:
        raise ActorGoneError(self.path, f"asked {message}")


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "crashes"])
async def test_f20_an_engine_connection_without_an_answer_is_a_lost_engine(streams: Streams, gone: bool) -> None:  # noqa: FBT001
    stage = streams.backstage.stage
    connection: Ref[Suspect] = (
        stage.ref("nobody")
        if gone
        else await stage.spawn(ChildSpec(name="mute", factory=Mute, restart=Restart.TEMPORARY))
    )
    subject = await streams.open(fault="status:unavailable,after=3", connection=connection)
    told = await subject.ended()
    assert subject.caller.ended_once
    [error] = subject.caller.errors
    assert error["error_type"] == {"Backend": "EngineShutdown"}
    assert (told.error, told.aborts) == ("EngineLostError", 0)

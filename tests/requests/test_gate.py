from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from openengine_sidecar.actors.engine.connection import Suspect
from openengine_sidecar.actors.requests import gate as gate_module
from openengine_sidecar.actors.requests.protocol import CancelReason
from openengine_sidecar.messages.facts import EngineDown, EngineUp, Outcome, StreamEnded
from openengine_sidecar.supervision import Mailbox
from openengine_sidecar.supervision.testing import Gate
from tests.requests.gates import GateStage, HeldGate
from tests.support.backstage import come_back
from tests.support.waiting import eventually

OVERLOADED = b"Server overloaded:"
ROOM = 8
MALFORMED = b"Server overloaded: malformed request"


@pytest.fixture
async def held(gates: GateStage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GateStage]:
    """A gate with little room that looks at nothing yet."""
    monkeypatch.setattr(gate_module, "ROOM", ROOM)
    HeldGate.held = Gate()
    gates.kind, gates.mailbox = HeldGate, Mailbox(capacity=2 * ROOM)
    await gates.set_up()
    yield gates
    HeldGate.held.open()


async def test_a_request_is_served_and_forgotten(gates: GateStage) -> None:
    await gates.set_up()
    caller = await gates.accepted()
    await caller.closed.wait()
    await gates.at_rest()
    assert caller.ended_once
    [told] = gates.told(caller)
    assert (told.outcome, told.output_tokens) == (Outcome.FINISHED, 12)
    assert gates.planes() == [False, True]


async def test_the_same_id_is_served_as_often_as_it_comes(gates: GateStage) -> None:
    await gates.set_up()
    callers = [await gates.accepted(header={"id": "migrated"}) for _ in range(3)]
    for caller in callers:
        await caller.closed.wait()
    assert all(caller.ended_once and not caller.errors for caller in callers)
    assert len(gates.engine.stats.records) == 3
    await gates.at_rest()


@pytest.mark.parametrize("name", ["with/slash", "../..", "a b", "\u00e9\u4e2d", "x" * 300, "/"])
async def test_an_id_may_be_any_text(gates: GateStage, name: str) -> None:
    await gates.set_up()
    caller = await gates.accepted(header={"id": name})
    await caller.closed.wait()
    assert caller.ended_once
    assert caller.errors == []
    [engine_id] = gates.engine.stats.records
    assert engine_id.startswith(f"{name}.")
    assert gates.incarnation == 1


@pytest.mark.parametrize("payload", [b"", b"x" * 23, b"\0" * 24, b"\xff" * 100])
async def test_what_cannot_be_answered_is_refused_and_counted(gates: GateStage, payload: bytes) -> None:
    await gates.set_up()
    assert await gates.raw.send(gates.subject, payload) == MALFORMED
    [told] = gates.backstage.heard(StreamEnded)
    assert (told.outcome, told.error) == (Outcome.FAILED, "WireError")
    await gates.serves()


async def test_above_the_limit_it_is_overloaded_until_one_ends(gates: GateStage) -> None:
    await gates.set_up(limit=2)
    first, second = await gates.flowing(2)
    acknowledgement, third = await gates.ask()
    assert acknowledgement.startswith(OVERLOADED)
    [told] = gates.told(third)
    assert (told.outcome, told.error) == (Outcome.REFUSED, "OverloadedError")
    first.kill()
    await eventually(lambda: len(gates.streams()) == 1, "one ended")
    await gates.serves()
    second.kill()
    await gates.at_rest()
    assert third.dials == 0


async def test_f53_a_full_mailbox_is_overloaded_and_loses_nothing(held: GateStage) -> None:
    asked = [asyncio.create_task(held.ask()) for _ in range(50)]
    await eventually(lambda: sum(task.done() for task in asked) == 42, "the surplus is answered")
    HeldGate.held.open()
    answers = await asyncio.gather(*asked)
    accepted = [caller for acknowledgement, caller in answers if acknowledgement == b""]
    refused = [acknowledgement for acknowledgement, _ in answers if acknowledgement]
    assert (len(accepted), len(refused)) == (8, 42)
    assert all(acknowledgement.startswith(OVERLOADED) for acknowledgement in refused)
    for caller in accepted:
        await caller.closed.wait()
        assert caller.ended_once
    await held.at_rest()
    await eventually(lambda: len(held.backstage.heard(StreamEnded)) == 50, "every end is told")
    assert [end.outcome for end in held.backstage.heard(StreamEnded)].count(Outcome.REFUSED) == 42


async def test_f53_facts_and_questions_find_room_where_requests_have_none(held: GateStage) -> None:
    asked = [asyncio.create_task(held.ask()) for _ in range(50)]
    await eventually(lambda: sum(task.done() for task in asked) == 42, "no room")
    settled = held.settle()
    held.backstage.stage.system.facts.publish(EngineDown(cause="as if", lost=True))
    HeldGate.held.open()
    await settled
    answers = await asyncio.gather(*asked)
    accepted = [caller for acknowledgement, caller in answers if acknowledgement == b""]
    for caller in accepted:
        await caller.closed.wait()
        assert caller.ended_once
    assert len(accepted) == 8
    assert held.gate._engine is None
    assert list(held.backstage.stage.system.dead_letters) == []
    await held.at_rest()


async def test_settle_waits_for_the_last_to_dial(held: GateStage) -> None:
    asked = asyncio.create_task(held.ask(header={"address": "127.0.0.1:1"}))
    await eventually(lambda: held.gate._arriving, "it arrived")
    settled = held.settle()
    assert not settled.done
    HeldGate.held.open()
    await asked
    await settled
    await held.at_rest()


async def test_f20_a_lost_engine_ends_every_stream_and_refuses_new_ones(gates: GateStage) -> None:
    await gates.set_up()
    callers = await gates.flowing(5)
    options, port = gates.engine.options, gates.engine.port
    await gates.engine.stop()
    await gates.passing(lambda: bool(gates.backstage.heard(EngineDown)), "the loss")
    for caller in callers:
        await caller.closed.wait()
        assert caller.ended_once
        [error] = caller.errors
        assert error["error_type"] == {"Backend": "EngineShutdown"}
    late = await gates.accepted()
    await late.closed.wait()
    assert [error["error_type"] for error in late.errors] == [{"Backend": "EngineShutdown"}]
    gates.engine = await come_back(options, port=port)
    gates.backstage.stage.ref("engine").tell(Suspect("r"))
    await gates.passing(lambda: len(gates.backstage.heard(EngineUp)) == 2, "the return", leap=1e10)
    await gates.serves()
    await gates.at_rest()
    ends = [end for caller in callers for end in gates.told(caller)]
    assert [(end.outcome, end.error) for end in ends] == [(Outcome.FAILED, "EngineLostError")] * 5
    await gates.engine.stop()


async def test_an_engine_that_is_only_not_serving_keeps_its_streams(gates: GateStage) -> None:
    await gates.set_up()
    [caller] = await gates.flowing(1)
    gates.backstage.stage.system.facts.publish(EngineDown(cause="it says draining", lost=False))
    await gates.serves()
    seen = len(caller.token_ids)
    await eventually(lambda: len(caller.token_ids) > seen, "tokens still flow")
    caller.kill()
    await gates.at_rest()
    assert [end.reason for end in gates.told(caller)] == [CancelReason.CLIENT_GONE]

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest
from nats.errors import NoRespondersError

from openengine_sidecar.actors.requests import gate as gate_module
from openengine_sidecar.actors.requests.exchange import Exchange
from openengine_sidecar.messages.facts import EngineUp, Outcome
from openengine_sidecar.supervision.testing import Gate, crash_now
from tests.requests.gates import PROMPT, GateStage, HeldGate
from tests.requests.streams import HeldExchange
from tests.support.waiting import eventually
from tests.support.wire import Caller, frame, request_body

SEEDS = range(10)


def crash(gates: GateStage, path: str = "") -> None:
    crash_now(gates.backstage.stage.system, path or f"/stage/{gates.path}")


async def back(gates: GateStage, incarnation: int = 2) -> None:
    await gates.passing(
        lambda: gates.incarnation == incarnation and gates.planes()[-1], f"life {incarnation}", leap=60.0
    )


async def test_a_stream_that_crashes_is_ended_for_everybody_and_nobody_else_notices(gates: GateStage) -> None:
    await gates.set_up()
    other, victim = await gates.flowing(2)
    [path] = [path for path in gates.streams() if victim.subject in path]
    crash(gates, path)
    await victim.closed.wait()
    assert victim.ended_once
    assert [error["error_type"] for error in victim.errors] == [{"Backend": "Disconnected"}]
    seen = len(other.token_ids)
    await eventually(lambda: len(other.token_ids) > seen, "the other flows")
    assert [end.outcome for end in gates.told(victim)] == [Outcome.FAILED]
    assert gates.incarnation == 1
    other.kill()
    await gates.at_rest()
    assert [record.aborts for record in gates.engine.stats.records.values()] == [1, 1]


async def test_a_stream_that_is_killed_while_it_ends_is_buried_by_the_gate(gates: GateStage) -> None:
    await gates.set_up()
    [caller] = await gates.flowing()
    gates.engine.core.faults.play(["rpc:Abort,delay=500"])
    [path] = gates.streams()
    crash(gates, path)
    await eventually(lambda: gates.engine.stats.calls["Abort"], "it aborts on its way out")
    host = gates.backstage.stage.system.host_at(path)
    assert host is not None
    host.kill()
    await caller.closed.wait()
    await gates.at_rest()
    assert caller.ended_once
    assert len(caller.errors) == 1
    assert [(end.outcome, end.aborts) for end in gates.told(caller)] == [(Outcome.FAILED, 1)]
    assert gates.engine.stats.calls["Abort"] == 1


async def test_what_a_gate_was_burying_when_it_crashed_is_buried_all_the_same(gates: GateStage) -> None:
    await gates.set_up()
    [caller] = await gates.flowing()
    gates.engine.core.faults.play(["rpc:Abort,delay=500"])
    [path] = gates.streams()
    crash(gates, path)
    await eventually(lambda: gates.engine.stats.calls["Abort"], "it aborts on its way out")
    host = gates.backstage.stage.system.host_at(path)
    assert host is not None
    host.kill()
    await eventually(lambda: not gates.streams(), "the stream is gone")
    crash(gates)
    await back(gates)
    await caller.closed.wait()
    assert caller.ended_once
    assert len(caller.errors) == 1
    await eventually(lambda: gates.told(caller), "told")
    assert [(end.outcome, end.aborts) for end in gates.told(caller)] == [(Outcome.FAILED, 1)]


async def test_a_request_acknowledged_in_the_moment_of_a_crash_is_answered(gates: GateStage) -> None:
    await gates.set_up()
    acknowledge, held = gates.gate._plane.acknowledge, Gate()

    async def slowly(*args: Any) -> bool:
        said: bool = await acknowledge(*args)
        await held.passage()
        return said

    gates.gate._plane.acknowledge = slowly
    caller = await gates.accepted()
    await held.reached()
    crash(gates)
    await caller.closed.wait()
    assert caller.ended_once
    assert [error["error_type"] for error in caller.errors] == [{"Backend": "Disconnected"}]
    await back(gates)
    assert [end.outcome for end in gates.told(caller)] == [Outcome.FAILED]


async def test_a_stream_that_cannot_start_is_ended(gates: GateStage, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unable(gate_module.RequestStream):
        async def on_start(self) -> None:
            raise OSError(24, "too many open files")

    await gates.set_up()
    with monkeypatch.context() as patch:
        patch.setattr(gate_module, "RequestStream", Unable)
        caller = await gates.accepted()
        await caller.closed.wait()
    assert caller.ended_once
    assert len(caller.errors) == 1
    await eventually(lambda: gates.told(caller), "told")
    assert [end.outcome for end in gates.told(caller)] == [Outcome.FAILED]
    await gates.serves()
    await gates.at_rest()
    assert gates.incarnation == 1


async def test_a_request_that_cannot_be_ended_does_not_end_the_gate(
    gates: GateStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError("a bug")  # noqa: EM101, TRY003 - stands for any

    await gates.set_up()
    [caller] = await gates.flowing()
    with monkeypatch.context() as patch:
        patch.setattr(Exchange, "conclude", fails)
        [path] = gates.streams()
        crash(gates, path)
        await eventually(lambda: gates.told(caller), "told")
    assert gates.incarnation == 1
    assert not gates.gate._exchanges
    await gates.serves()


async def test_a_gate_that_crashes_ends_its_streams_and_comes_back(gates: GateStage) -> None:
    await gates.set_up()
    callers = await gates.flowing(5)
    crash(gates)
    for caller in callers:
        await caller.closed.wait()
        assert caller.ended_once
        assert [error["error_type"] for error in caller.errors] == [{"Backend": "Disconnected"}]
    await back(gates)
    await gates.serves()
    await gates.at_rest()
    assert all(record.aborts == 1 for record in list(gates.engine.stats.records.values())[:5])
    assert [len(gates.told(caller)) for caller in callers] == [1] * 5
    assert gates.planes() == [False, True, False, True]


async def test_what_waited_through_a_crash_is_acknowledged_and_served_by_the_next_life(gates: GateStage) -> None:
    HeldGate.held = Gate()
    gates.kind = HeldGate
    await gates.set_up()
    asked = [asyncio.create_task(gates.ask()) for _ in range(6)]
    await eventually(lambda: len(gates.gate._arriving) == 6, "they arrived")
    crash(gates)
    HeldGate.held.open()
    await back(gates)
    answers = await asyncio.gather(*asked[1:])
    for acknowledgement, caller in answers:
        assert acknowledgement == b""
        await caller.closed.wait()
        assert caller.ended_once
        assert caller.errors == []
    await gates.at_rest()
    assert not gates.gate._arriving
    asked[0].cancel()


async def test_whoever_waits_for_it_is_let_go(gates: GateStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "Exchange", HeldExchange)
    await gates.set_up()
    caller = await gates.accepted()
    settled = gates.settle()
    await gates.backstage.stage.clock.settle()
    assert not settled.done
    [exchange] = gates.gate._exchanges.values()
    crash(gates)
    exchange.gate.open()
    await settled
    assert gates.backstage.stage.clock.monotonic() == 0.0
    await caller.closed.wait()
    assert caller.ended_once
    await back(gates)


async def test_a_plane_that_closed_for_good_is_opened_anew(gates: GateStage) -> None:
    await gates.set_up()
    client = gates.gate._plane._link.client
    await client._process_err("'Authorization Violation'")
    await back(gates)
    assert gates.gate._plane._link.client is not client
    await gates.serves()


async def test_a_second_life_knows_the_engine_before_the_first_request(gates: GateStage) -> None:
    await gates.set_up()
    crash(gates)
    await back(gates)
    assert gates.gate._engine == gates.backstage.heard(EngineUp)[-1]


@pytest.mark.parametrize("seed", SEEDS)
async def test_crashes_at_random_lose_nobody(gates: GateStage, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - to be had again
    await gates.set_up()
    asked: list[asyncio.Task[object]] = []
    callers = [gates.raw.caller() for _ in range(40)]
    for caller in callers:
        asked.append(asyncio.create_task(_persistent(gates, caller)))
        for _ in range(rng.randrange(30)):
            await asyncio.sleep(0)
        if rng.random() < 0.5 and gates.streams():
            crash(gates, rng.choice(gates.streams()))
        if rng.random() < 0.05 and gates.alive:
            crash(gates)
    await gates.passing(lambda: all(task.done() for task in asked), "every request was acknowledged", leap=60.0)
    for caller in callers:
        await caller.closed.wait()
    await gates.at_rest()
    assert all(caller.ended_once for caller in callers)
    assert all(len(caller.errors) <= 1 for caller in callers)
    await eventually(lambda: all(gates.told(caller) for caller in callers), "every end is told")
    assert all(len(gates.told(caller)) == 1 for caller in callers)
    assert gates.engine.stats.active == 0


async def _persistent(gates: GateStage, caller: Caller) -> None:
    """Sends a request until somebody acknowledges it: while a gate starts, nobody is there."""
    payload = frame(gates.raw.header(caller), msgspec.msgpack.encode(request_body(PROMPT, max_tokens=12)))
    while True:
        try:
            assert await gates.raw.send(gates.subject, payload) == b""
        except NoRespondersError:
            await asyncio.sleep(0)
        else:
            return

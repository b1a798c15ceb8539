from __future__ import annotations

import asyncio

import pytest

from openengine_sidecar.actors.requests.protocol import CancelReason
from openengine_sidecar.messages.facts import Outcome
from openengine_sidecar.messages.signals import Drain
from openengine_sidecar.supervision.testing import Gate
from tests.requests.gates import GateStage, HeldGate
from tests.support.waiting import eventually


async def test_f11_idle_it_is_drained_without_grace(gates: GateStage) -> None:
    await gates.set_up(grace=600.0)
    await gates.drain(900.0).drained
    assert gates.backstage.stage.clock.monotonic() == 0.0


async def test_f07_streams_in_flight_finish(gates: GateStage) -> None:
    await gates.set_up(grace=1.0)
    callers = [await gates.accepted(max_tokens=60, stop_conditions={"ignore_eos": True}) for _ in range(10)]
    await eventually(lambda: all(caller.token_ids for caller in callers), "tokens flow")
    host = gates.drain(60.0)
    await gates.passing(host.drained.done, "drained")
    assert all(caller.ended_once and len(caller.token_ids) == 60 for caller in callers)
    assert gates.backstage.stage.clock.monotonic() == 1.0
    assert gates.engine.stats.calls["Abort"] == 0


async def test_c66_what_arrives_in_the_grace_period_is_served_and_nothing_later(gates: GateStage) -> None:
    await gates.set_up(grace=5.0)
    [running] = await gates.flowing()
    host = gates.drain(60.0)
    clock = gates.backstage.stage.clock
    await clock.settle()
    await gates.serves()
    await clock.advance(5.0)
    await eventually(lambda: not gates.gate._plane._subscriptions, "intake stopped")
    with pytest.raises(Exception, match="no responders"):
        await gates.ask()
    running.kill()
    await host.drained


async def test_c66_at_the_deadline_the_rest_is_aborted_and_told(gates: GateStage) -> None:
    await gates.set_up(grace=0.0)
    callers = await gates.flowing(5)
    host = gates.drain(30.0)
    await gates.passing(host.drained.done, "drained", leap=60.0)
    assert gates.backstage.stage.clock.monotonic() <= 30.0
    for caller in callers:
        await caller.closed.wait()
        assert caller.ended_once
        assert [error["error_type"] for error in caller.errors] == [{"Backend": "EngineShutdown"}]
    await eventually(lambda: all(gates.told(caller) for caller in callers), "every end is told")
    ends = [end for caller in callers for end in gates.told(caller)]
    assert [(end.outcome, end.reason) for end in ends] == [(Outcome.FAILED, CancelReason.DRAIN_DEADLINE)] * 5
    assert gates.engine.stats.aborted == 5


async def test_f11_c67_a_second_drain_shortens_the_first(gates: GateStage) -> None:
    await gates.set_up(grace=600.0)
    callers = await gates.flowing(3)
    serving = gates.backstage.stage.ref(gates.path.partition("/")[0])
    clock = gates.backstage.stage.clock
    serving.drain(clock.monotonic() + 900.0, "first")
    await clock.settle()
    serving.drain(clock.monotonic() + 2.0, "second")
    await gates.passing(lambda: not serving.is_alive or not gates.alive, "the gate ends", leap=3.0)
    assert clock.monotonic() < 5.0
    for caller in callers:
        await caller.closed.wait()
        assert caller.ended_once
        assert len(caller.errors) == 1
    await eventually(lambda: gates.engine.stats.active == 0, "engine at rest")
    assert all(record.aborts == 1 for record in gates.engine.stats.records.values())


async def test_what_was_received_before_the_drain_is_served(gates: GateStage) -> None:
    HeldGate.held = Gate()
    gates.kind = HeldGate
    await gates.set_up()
    asked = [asyncio.create_task(gates.ask()) for _ in range(5)]
    await eventually(lambda: len(gates.gate._arriving) == 5, "they arrived")
    host = gates.drain(60.0)
    HeldGate.held.open()
    answers = await asyncio.gather(*asked)
    await gates.passing(host.drained.done, "drained", leap=10.0)
    assert [acknowledgement for acknowledgement, _ in answers] == [b""] * 5
    assert all(caller.ended_once for _, caller in answers)


async def test_a_drain_has_its_end_also_when_the_plane_goes_down(gates: GateStage) -> None:
    await gates.set_up(grace=0.0)
    [caller] = await gates.flowing()
    plane = gates.gate._plane
    plane._link.client._transport.close()
    host = gates.drain(30.0)
    caller.kill()
    await gates.passing(host.drained.done, "drained", leap=60.0)
    assert gates.backstage.stage.clock.monotonic() <= 30.0
    await eventually(lambda: plane.connected, "it is up again, and can be closed in order")


async def test_a_request_that_opens_while_draining_is_told_to_drain(gates: GateStage) -> None:
    await gates.set_up(grace=5.0)
    [running] = await gates.flowing()
    host = gates.drain(60.0)
    await gates.backstage.stage.clock.settle()
    late = await gates.accepted()
    await late.closed.wait()
    assert late.ended_once
    running.kill()
    await gates.passing(host.drained.done, "drained", leap=10.0)
    assert isinstance(gates.gate.draining, Drain)

from __future__ import annotations

import asyncio
import itertools

import pytest

from openengine_sidecar.messages.engine.discovery import Limits
from openengine_sidecar.messages.facts import EngineDown, EngineUp, PlaneState, Registered, Withdrawn
from openengine_sidecar.supervision.testing import crash_now
from tests.registrar.conftest import CARD, CONNECTED, DISCONNECTED, INSTANCE, PATIENCE, Registry, changed
from tests.reporter.facts import UP
from tests.support.waiting import eventually

LOST = EngineDown(cause="connection refused", lost=True)
NOT_SERVING = EngineDown(cause="it says draining", lost=False)
PUT_UP = [("+", INSTANCE), ("+", CARD)]
TAKEN_DOWN = [("-", CARD), ("-", INSTANCE)]


@pytest.mark.parametrize("facts", list(itertools.permutations([UP, CONNECTED])))
async def test_f17_instance_then_card_once_engine_and_plane_are_there(
    registry: Registry, facts: tuple[EngineUp | PlaneState, ...]
) -> None:
    await registry.start()
    registry.publish(facts[0])
    await registry.clock.settle()
    assert registry.stands() == (0, 0)
    registry.publish(facts[1])
    await eventually(lambda: registry.told(Registered), "registered")
    assert registry.journal.done == PUT_UP
    assert registry.stands() == (1, 1)
    [told] = registry.told(Registered)
    assert (told.model, told.instance_id) == ("toy", 0xABC)


async def test_facts_told_before_it_started_count(registry: Registry) -> None:
    registry.publish(UP, CONNECTED)
    await registry.start()
    await eventually(lambda: registry.told(Registered), "registered")
    assert registry.stands() == (1, 1)


@pytest.mark.parametrize("down", [LOST, NOT_SERVING, DISCONNECTED], ids=["lost", "not-serving", "plane"])
async def test_card_then_instance_when_one_of_them_goes_and_back_when_it_returns(
    registry: Registry, down: EngineDown | PlaneState
) -> None:
    await registry.start()
    await registry.registered()
    registry.publish(down)
    await eventually(lambda: registry.told(Withdrawn), "withdrawn")
    assert registry.journal.done == PUT_UP + TAKEN_DOWN
    assert registry.stands() == (0, 0)
    await registry.registered()
    assert registry.journal.done == PUT_UP + TAKEN_DOWN + PUT_UP
    [told] = registry.told(Withdrawn)
    assert (down.cause if isinstance(down, EngineDown) else down.detail) in told.cause


async def test_the_same_again_changes_nothing(registry: Registry) -> None:
    await registry.start()
    await registry.registered()
    registry.publish(UP, CONNECTED, UP, CONNECTED)
    await registry.clock.settle()
    assert registry.journal.done == PUT_UP


async def test_the_instance_stays_until_every_acknowledged_request_has_dialled(registry: Registry) -> None:
    await registry.start()
    await registry.registered()
    registry.gatekeeper.settled.clear()
    registry.publish(LOST)
    await eventually(lambda: registry.gatekeeper.asked, "the gate is asked")
    assert registry.stands() == (1, 0)
    assert registry.told(Withdrawn) == []
    registry.gatekeeper.settled.set()
    await eventually(lambda: registry.told(Withdrawn), "withdrawn")
    assert registry.stands() == (0, 0)


async def test_but_not_for_ever(registry: Registry) -> None:
    await registry.start()
    await registry.registered()
    registry.gatekeeper.settled.clear()
    registry.publish(LOST)
    await registry.until(lambda: bool(registry.told(Withdrawn)), "withdrawn", leap=PATIENCE)
    assert registry.stands() == (0, 0)
    assert registry.clock.monotonic() == 10.0
    registry.gatekeeper.settled.set()


async def test_a_gate_that_is_gone_holds_nobody_up(registry: Registry) -> None:
    registry.gate = registry.stage.ref("no-gate")
    await registry.start()
    await registry.registered()
    registry.publish(LOST)
    await eventually(lambda: registry.told(Withdrawn), "withdrawn")
    assert registry.stands() == (0, 0)
    assert registry.clock.monotonic() == 0.0
    assert _incarnation(registry) == 1


async def test_an_engine_that_changed_has_its_card_written_anew(registry: Registry) -> None:
    await registry.start()
    await registry.registered()
    before = registry.card()
    await registry.registered(changed(limits=Limits(max_context_length=77), instance_id="engine-2"))
    assert registry.card() != before
    assert registry.stands() == (1, 1)
    assert registry.journal.done[-2:] == PUT_UP
    assert len(registry.told(Registered)) == 2


async def test_an_engine_that_comes_back_changed_is_withdrawn_once(registry: Registry) -> None:
    await registry.start()
    await registry.registered()
    registry.publish(LOST)
    await eventually(lambda: registry.told(Withdrawn), "withdrawn")
    await registry.registered(changed(limits=Limits(max_context_length=77)))
    assert registry.journal.done == PUT_UP + TAKEN_DOWN + PUT_UP
    assert len(registry.told(Withdrawn)) == 1


async def test_another_engine_with_the_same_card_is_no_reason_to_withdraw(registry: Registry) -> None:
    await registry.start()
    await registry.registered()
    await registry.registered(changed(instance_id="engine-2"))
    assert ("-", CARD) not in registry.journal.done
    assert registry.told(Withdrawn) == []


async def test_a_drain_withdraws_for_good(registry: Registry) -> None:
    await registry.start()
    await registry.registered()
    host = registry.stage.system.host_at(registry.path)
    assert host is not None
    registry.stage.ref("serving/registrar").drain(registry.clock.monotonic() + 60.0, "over")
    await host.drained
    assert registry.stands() == (0, 0)
    registry.publish(LOST, UP, CONNECTED)
    await registry.clock.settle()
    assert registry.stands() == (0, 0)
    [told] = registry.told(Withdrawn)
    assert "over" in told.cause


@pytest.mark.parametrize("turns", range(0, 20, 2))
async def test_a_drain_while_it_registers_leaves_nothing(registry: Registry, turns: int) -> None:
    await registry.start()
    host = registry.stage.system.host_at(registry.path)
    assert host is not None
    registry.publish(UP, CONNECTED)
    for _ in range(turns):
        await asyncio.sleep(0)
    registry.stage.ref("serving/registrar").drain(registry.clock.monotonic() + 60.0, "over")
    await host.drained
    await registry.clock.settle()
    assert registry.stands() == (0, 0)


async def test_facts_that_come_while_it_withdraws_are_not_forgotten(registry: Registry) -> None:
    await registry.start()
    await registry.registered()
    registry.gatekeeper.settled.clear()
    registry.publish(LOST)
    await eventually(lambda: registry.gatekeeper.asked, "the gate is asked")
    registry.publish(UP)
    registry.gatekeeper.settled.set()
    await eventually(lambda: len(registry.told(Registered)) == 2, "registered again")
    assert registry.stands() == (1, 1)


@pytest.mark.parametrize("bucket", ["instances", "mdc"])
async def test_what_the_store_refuses_is_tried_again(registry: Registry, bucket: str) -> None:
    await registry.start()
    obstacle = registry.root / "v1" / bucket
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("a file where a directory has to be")
    registry.publish(UP, CONNECTED)
    await registry.until(lambda: registry.clock.monotonic() >= 3.0, "three tries")
    assert registry.told(Registered) == []
    obstacle.unlink()
    await registry.until(lambda: bool(registry.told(Registered)), "registered")
    assert registry.stands() == (1, 1)


async def test_half_a_registration_is_undone(registry: Registry) -> None:
    await registry.start()
    obstacle = registry.root / "v1" / "mdc"
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("a file where a directory has to be")
    registry.publish(UP, CONNECTED)
    await eventually(lambda: registry.stands() == (1, 0), "the instance stands alone")
    registry.publish(LOST)
    await eventually(lambda: registry.stands() == (0, 0), "nothing stands")
    obstacle.unlink()
    await registry.registered()
    assert registry.stands() == (1, 1)


async def test_a_store_that_cannot_be_opened_is_opened_later(registry: Registry) -> None:
    registry.root.write_text("a file where the store has to be")
    registry.publish(UP, CONNECTED)
    with pytest.raises(OSError, match="cannot make"):
        await registry.start()
    registry.root.unlink()
    registry.gate = registry.stage.ref("gate")
    await registry.start()
    await eventually(lambda: registry.told(Registered), "registered")


async def test_a_crash_leaves_no_record_and_the_next_life_puts_them_up_again(registry: Registry) -> None:
    await registry.start()
    await registry.registered()
    crash_now(registry.stage.system, registry.path)
    await eventually(lambda: registry.told(Withdrawn), "withdrawn")
    assert registry.stands() == (0, 0)
    await registry.until(lambda: len(registry.told(Registered)) == 2, "registered again", leap=PATIENCE)
    assert registry.stands() == (1, 1)


@pytest.mark.parametrize("turns", range(0, 40, 2))
async def test_a_crash_at_any_turn_ends_in_what_the_facts_say(registry: Registry, turns: int) -> None:
    await registry.start()
    registry.publish(UP, CONNECTED, LOST, UP)
    for _ in range(turns):
        await asyncio.sleep(0)
    crash_now(registry.stage.system, registry.path)
    await registry.until(lambda: _incarnation(registry) == 2, "a second life", leap=PATIENCE)
    await registry.until(lambda: registry.stands() == (1, 1), "registered")
    registry.publish(LOST)
    await registry.until(lambda: registry.stands() == (0, 0), "withdrawn")


def _incarnation(registry: Registry) -> int:
    host = registry.stage.system.host_at(registry.path)
    return host.incarnation if host is not None and host.ready else 0


async def test_the_gate_is_asked_once_for_each_withdrawal(registry: Registry) -> None:
    await registry.start()
    for count in (1, 2, 3):
        await registry.registered()
        registry.publish(LOST)
        await eventually(lambda count=count: len(registry.told(Withdrawn)) == count, "withdrawn")
    assert registry.gatekeeper.asked == 3

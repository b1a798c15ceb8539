from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from openengine_sidecar.actors.lora.steps import Phase
from openengine_sidecar.actors.lora.uses import AdapterUses
from openengine_sidecar.messages.errors import EngineUnreachableError, InvalidRequestError


@pytest.fixture
def uses() -> AdapterUses:
    uses = AdapterUses()
    uses.show({phase.value: phase for phase in Phase})
    return uses


def test_c52_an_adapter_that_is_not_in_the_table_is_refused_as_the_clients_fault(uses: AdapterUses) -> None:
    with pytest.raises(InvalidRequestError, match="request r: adapter unknown is not loaded"), uses.use("r", "unknown"):
        pass


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.LIVE, Phase.ABSENT}))
def test_c52_an_adapter_that_is_not_live_now_may_be_tried_elsewhere(uses: AdapterUses, phase: Phase) -> None:
    with pytest.raises(EngineUnreachableError, match=f"is {phase}") as refusal, uses.use("r", phase.value):
        pass
    assert refusal.value.retryable


def test_the_base_model_needs_no_adapter(uses: AdapterUses) -> None:
    with uses.use("r", ""):
        assert uses.running("") == 0


def test_a_name_is_shown_safely(uses: AdapterUses) -> None:
    with pytest.raises(InvalidRequestError) as refusal, uses.use("r", "\x1b[31m" + "x" * 500):
        pass
    assert "\x1b" not in str(refusal.value)
    assert len(str(refusal.value)) < 200


async def test_quiet_once_the_last_use_has_ended(uses: AdapterUses) -> None:
    live = Phase.LIVE.value
    with uses.use("r1", live):
        with uses.use("r2", live):
            assert uses.running(live) == 2
            waiting = asyncio.create_task(uses.quiet(live))
            uses.show({live: Phase.UNLOADING})
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 5)
    assert uses.running(live) == 0


def test_a_use_ends_with_its_request_however_that_does(uses: AdapterUses) -> None:
    live = Phase.LIVE.value
    with suppress(ZeroDivisionError), uses.use("r", live):
        assert 1 / uses.running("nobody")
    assert uses.running(live) == 0


async def test_quiet_at_once_where_nobody_uses_it(uses: AdapterUses) -> None:
    await asyncio.wait_for(uses.quiet("unknown"), 5)


async def test_one_who_gave_up_waiting_is_not_in_the_way_of_another(uses: AdapterUses) -> None:
    live = Phase.LIVE.value
    with uses.use("r", live):
        first, second = (asyncio.create_task(uses.quiet(live)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
    await asyncio.wait_for(second, 5)
    assert first.cancelled()

from __future__ import annotations

import asyncio

import pytest

from openengine_sidecar.launch.engine import EngineOptions, ReferenceEngine
from openengine_sidecar.launch.stack.ports import free_port
from openengine_sidecar.messages.engine.discovery import Role
from openengine_sidecar.messages.errors import DiscoveryError
from openengine_sidecar.messages.facts import EngineUp
from tests.support.backstage import Backstage, come_back, log_lines, pass_time


async def connected(backstage: Backstage, address: str, **changes: object) -> None:
    """Starts the connection while virtual time passes."""
    starting = asyncio.create_task(backstage.connect(address, **changes))
    await pass_time(backstage.stage.clock, starting.done, "started")
    await starting


@pytest.mark.parametrize("method", ["GetEngineInfo", "GetModelInfo", "Health"])
async def test_c06_unavailable_is_asked_again_after_each_interval(
    backstage: Backstage, engine: ReferenceEngine, method: str
) -> None:
    engine.core.faults.play([f"rpc:{method},status=unavailable@3"])
    await connected(backstage, engine.address, retry_interval=2.0)
    assert backstage.stage.clock.monotonic() == 6.0
    [up] = backstage.heard(EngineUp)
    assert up.discovery.instance_id == engine.core.instance_id
    assert backstage.client.attached


async def test_c06_no_dialect_switch_because_of_unavailable(backstage: Backstage, engine: ReferenceEngine) -> None:
    engine.core.faults.play(["rpc:GetEngineInfo,status=unavailable@2"])
    await connected(backstage, engine.address)
    [up] = backstage.heard(EngineUp)
    assert up.discovery.dialect == "rev2"


async def test_c05_unimplemented_everywhere_is_refused_at_once(backstage: Backstage, engine: ReferenceEngine) -> None:
    engine.core.faults.play(["rpc:GetEngineInfo,status=unimplemented"])
    with pytest.raises(DiscoveryError, match="no known OpenEngine service"):
        await backstage.connect(engine.address)
    assert backstage.stage.clock.monotonic() == 0.0


async def test_an_engine_that_never_comes_is_given_up_at_the_deadline(backstage: Backstage) -> None:
    address = f"127.0.0.1:{free_port()}"
    with log_lines("WARNING") as lines, pytest.raises(DiscoveryError) as failure:
        await connected(backstage, address, startup_deadline=10.0, retry_interval=2.5)
    assert address in str(failure.value)
    assert "10 s" in str(failure.value)
    assert backstage.stage.clock.monotonic() <= 10.0
    assert sum("waiting for the engine" in line and address in line for line in lines) == 4
    assert not backstage.client.attached


async def test_an_engine_that_comes_late_is_found(backstage: Backstage) -> None:
    port = free_port()
    starting = asyncio.create_task(backstage.connect(f"127.0.0.1:{port}"))
    await pass_time(backstage.stage.clock, lambda: backstage.stage.clock.monotonic() >= 3.0, "three seconds")
    async with ReferenceEngine(EngineOptions(port=port)):
        await pass_time(backstage.stage.clock, starting.done, "started")
        await starting
    assert len(backstage.heard(EngineUp)) == 1


@pytest.mark.parametrize("state", ["starting", "not_ready", "draining", "unspecified", "77"])
async def test_c59_an_engine_that_is_not_ready_is_waited_for(
    backstage: Backstage, engine: ReferenceEngine, state: str
) -> None:
    engine.core.health.play(f"{state}*2,ready")
    await connected(backstage, engine.address, retry_interval=1.0)
    assert backstage.stage.clock.monotonic() == 2.0
    assert engine.stats.calls["Health"] == 3


async def test_c59_through_every_state_to_ready(backstage: Backstage, engine: ReferenceEngine) -> None:
    engine.core.health.play("starting,not_ready,degraded,ready")
    await connected(backstage, engine.address, degraded_is_ready=False)
    assert backstage.stage.clock.monotonic() == 3.0


async def test_c59_degraded_is_ready_by_default(backstage: Backstage, engine: ReferenceEngine) -> None:
    engine.core.health.play("starting,not_ready,degraded")
    await connected(backstage, engine.address)
    assert backstage.stage.clock.monotonic() == 2.0


async def test_what_an_engine_is_not_ready_for_is_said_at_the_deadline(
    backstage: Backstage, engine: ReferenceEngine
) -> None:
    engine.core.health.play("draining")
    with pytest.raises(DiscoveryError, match="draining"):
        await connected(backstage, engine.address, startup_deadline=5.0)


async def test_f11_a_stop_ends_the_wait(backstage: Backstage) -> None:
    starting = asyncio.create_task(backstage.connect(f"127.0.0.1:{free_port()}"))
    clock = backstage.stage.clock
    await pass_time(clock, lambda: clock.monotonic() >= 2.0, "two seconds")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await backstage.stage.ref("engine").stopped()


async def test_a_hanging_discovery_costs_one_attempt(backstage: Backstage, engine: ReferenceEngine) -> None:
    engine.core.faults.play(["rpc:GetEngineInfo,hang@1"])
    await connected(backstage, engine.address, connect_attempt_timeout=0.2)
    assert engine.stats.calls["GetEngineInfo"] >= 2


async def test_c12_a_contradicting_role_is_refused(backstage: Backstage, engine: ReferenceEngine) -> None:
    with pytest.raises(DiscoveryError, match="configured as prefill"):
        await backstage.connect(engine.address, role=Role.PREFILL)


async def test_a_second_life_finds_the_engine_again(backstage: Backstage, engine: ReferenceEngine) -> None:
    await backstage.connect(engine.address)
    options = engine.options
    port = engine.port
    await engine.stop()
    backstage.stage.ref("engine").cancel("over")
    await backstage.stage.ref("engine").stopped()
    again = await come_back(options, port=port)
    await connected(backstage, again.address)
    assert backstage.heard(EngineUp)[-1].discovery.instance_id == again.core.instance_id
    await again.stop()


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
async def test_the_role_is_what_the_engine_says(backstage: Backstage, role: Role) -> None:
    async with ReferenceEngine(EngineOptions(role=role.value)) as engine:
        await backstage.connect(engine.address)
        assert [up.role for up in backstage.heard(EngineUp)] == [role]


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
async def test_c11_the_role_is_what_was_configured_where_the_engine_does_not_say(
    backstage: Backstage, role: Role
) -> None:
    silent = EngineOptions(role=role.value, answers=('GetEngineInfo={"role": 0}',))
    async with ReferenceEngine(silent) as engine:
        await backstage.connect(engine.address, role=role)
        assert [up.role for up in backstage.heard(EngineUp)] == [role]


@pytest.mark.parametrize(
    ("said", "wanted"), [("prefill", Role.DECODE), ("decode", Role.AGGREGATED), ("aggregated", Role.PREFILL)]
)
async def test_two_roles_that_contradict_each_other_are_refused(backstage: Backstage, said: str, wanted: Role) -> None:
    async with ReferenceEngine(EngineOptions(role=said)) as engine:
        with pytest.raises(DiscoveryError, match=f"configured as {wanted}"):
            await backstage.connect(engine.address, role=wanted)


async def test_half_a_request_needs_a_connector(backstage: Backstage) -> None:
    off = ('GetKvConnectorInfo={"enabled": false}',)
    async with ReferenceEngine(EngineOptions(role="decode", answers=off)) as engine:
        with pytest.raises(DiscoveryError, match="connector is off"):
            await backstage.connect(engine.address)

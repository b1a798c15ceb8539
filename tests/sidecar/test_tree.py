from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

from openengine_sidecar.actors.config import ReporterConfig
from openengine_sidecar.actors.sidecar import Sidecar
from openengine_sidecar.launch.engine import EngineOptions
from openengine_sidecar.messages.errors import ConfigurationError, DiscoveryError
from openengine_sidecar.messages.facts import StreamEnded, Withdrawn
from openengine_sidecar.messages.signals import Cause, CauseKind
from openengine_sidecar.supervision import EscalationError, RestartBudget
from openengine_sidecar.supervision.testing import InjectedError, crash_now
from tests.sidecar.conftest import Embedded
from tests.support.backstage import come_back
from tests.support.waiting import eventually

SERVING = "/sidecar/serving"
GATE = f"{SERVING}/gate"
FIXED = [f"{SERVING}/engine", f"{SERVING}/gate", f"{SERVING}/registrar", "/sidecar/reporter"]


def origin(cause: Cause) -> BaseException | None:
    assert isinstance(cause.error, EscalationError)
    return cause.error.origin.error


async def test_an_embedded_worker_serves_and_leaves_nothing(embedded: Embedded) -> None:
    sidecar = await embedded.start()
    await embedded.serves()
    await sidecar.drain("the test is over")
    assert (await sidecar.terminated()).kind is CauseKind.STOPPED
    assert embedded.stands() == (0, 0)
    assert embedded.actors() == {}
    assert embedded.engine.stats.calls["Drain"] == 0


async def test_the_context_drains(embedded: Embedded) -> None:
    sidecar = await embedded.start()
    [caller] = await embedded.flowing()
    leaving = asyncio.create_task(sidecar.__aexit__(None, None, None))
    await eventually(lambda: embedded.stands() == (0, 0), "withdrawn")
    assert not leaving.done()
    caller.kill()
    await leaving
    assert embedded.actors() == {}


@pytest.mark.parametrize("path", FIXED)
async def test_a_crash_of_any_actor_is_mended(embedded: Embedded, path: str) -> None:
    await embedded.start()
    callers = await embedded.flowing(3)
    before = embedded.actors()
    crash_now(embedded.sidecar.system, path)
    await eventually(lambda: embedded.actors().get(path, 0) > before[path], "a next life")
    await embedded.registered()
    await eventually(lambda: set(embedded.actors()) >= set(FIXED), "all run")
    await embedded.serves()
    touched = path in FIXED[:2]
    for caller in callers:
        if touched:
            await caller.closed.wait()
            assert caller.ended_once
            assert len(caller.errors) == 1
        else:
            assert not caller.closed.is_set()
            caller.kill()
    await embedded.idle()
    after = embedded.actors()
    below = FIXED[FIXED.index(path) : 3] if path in FIXED[:3] else [path]
    assert {path for path in FIXED if after[path] > before[path]} == set(below)


async def test_a_spent_budget_ends_the_worker_and_takes_its_records_down(embedded: Embedded) -> None:
    embedded.restarts = RestartBudget(max_restarts=1, window=3600.0)
    sidecar = await embedded.start()
    for life in range(1, 5):
        if sidecar.system.host_at("/sidecar") is None:
            break
        await eventually(lambda: GATE in embedded.actors() or not embedded.actors(), f"life {life}")
        if GATE in embedded.actors():
            crash_now(sidecar.system, GATE)
            await asyncio.sleep(0)
    cause = await sidecar.terminated()
    assert isinstance(origin(cause), InjectedError)
    assert embedded.stands() == (0, 0)


async def test_c12_an_engine_that_comes_back_with_another_model_ends_the_worker(
    embedded: Embedded, tmp_path: Path
) -> None:
    sidecar = await embedded.start()
    options, port = embedded.engine.options, embedded.engine.port
    another = tmp_path / "another"
    copytree(options.model_path, another)
    await embedded.engine.stop()
    await eventually(lambda: embedded.stands() == (0, 0), "withdrawn")
    other = await come_back(options, port=port, model_path=another)
    cause = await sidecar.terminated()
    error = origin(cause)
    await other.stop()
    assert isinstance(error, DiscoveryError)
    assert "model_id" in str(error)
    assert embedded.stands() == (0, 0)


async def test_an_engine_that_is_refused_at_the_start_is_the_starts_error(embedded: Embedded) -> None:
    refused = await come_back(EngineOptions(schema_release="main"))
    embedded.reconfigure(engine=replace(embedded.config.engine, endpoint=refused.address))
    with pytest.raises(DiscoveryError, match="main"):
        await embedded.start()
    assert embedded.actors() == {}
    await refused.stop()


async def test_an_unusable_model_directory_ends_the_worker(embedded: Embedded, tmp_path: Path) -> None:
    embedded.reconfigure(model=replace(embedded.config.model, path=tmp_path / "missing"))
    sidecar = Sidecar(embedded.config)
    await sidecar.start()
    cause = await sidecar.terminated()
    assert isinstance(origin(cause), ConfigurationError)


async def test_f20_the_engine_dies_and_returns_without_a_restart_of_anybody(embedded: Embedded) -> None:
    await embedded.start()
    before = embedded.actors()
    callers = await embedded.flowing(5)
    options, port = embedded.engine.options, embedded.engine.port
    await embedded.engine.stop()
    for caller in callers:
        await caller.closed.wait()
        assert caller.ended_once
        assert [error["error_type"] for error in caller.errors] == [{"Backend": "EngineShutdown"}]
    await eventually(lambda: embedded.stands() == (0, 0), "withdrawn")
    embedded.engine = await come_back(options, port=port)
    await embedded.registered()
    await embedded.serves()
    await embedded.idle()
    assert {path: embedded.actors()[path] for path in FIXED} == {path: before[path] for path in FIXED}
    await embedded.engine.stop()


async def test_f07_withdrawn_first_then_served_to_the_end(embedded: Embedded) -> None:
    await embedded.start()
    told = embedded.every_fact()
    callers = [await embedded.accepted(max_tokens=60, stop_conditions={"ignore_eos": True}) for _ in range(5)]
    await eventually(lambda: all(caller.token_ids for caller in callers), "tokens flow")
    await embedded.sidecar.drain("the test is over")
    assert all(caller.ended_once and len(caller.token_ids) == 60 for caller in callers)
    kinds = [type(fact) for fact in told if isinstance(fact, Withdrawn | StreamEnded)]
    assert kinds == [Withdrawn] + [StreamEnded] * 5


async def test_a_start_can_be_given_up(embedded: Embedded) -> None:
    embedded.reconfigure(engine=replace(embedded.config.engine, endpoint="127.0.0.1:1"))
    starting = asyncio.create_task(embedded.start())
    await eventually(lambda: embedded.running and embedded.sidecar.system.host_at(f"{SERVING}/engine"), "it waits")
    await embedded.sidecar.drain("never mind", timeout=5.0)
    with pytest.raises(Exception, match="did not start"):
        await starting
    assert embedded.stands() == (0, 0)


async def test_the_reporter_knows_of_a_crash_until_it_is_mended(embedded: Embedded) -> None:
    embedded.reconfigure(reporter=ReporterConfig(port=0))
    await embedded.start()
    host = embedded.sidecar.system.host_at("/sidecar/reporter")
    assert host is not None
    reporter = host.actor
    await eventually(lambda: reporter.ready, "ready")
    for path in FIXED[:3]:
        crash_now(embedded.sidecar.system, path)
        await eventually(lambda: not reporter.ready, f"not ready without {path}")
        await eventually(lambda: reporter.ready, f"ready with {path}")

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest

from openengine_sidecar.launch.engine import EngineOptions, ReferenceEngine
from openengine_sidecar.messages.errors import DiscoveryError
from openengine_sidecar.messages.facts import EngineDown, EngineUp
from openengine_sidecar.messages.signals import Cause
from openengine_sidecar.supervision import INFINITY, ChildSpec, EscalationError, Restart, Strategy, Supervisor
from openengine_sidecar.supervision.testing import InjectedError, crash_now
from tests.support.backstage import Backstage, come_back, connection_spec, engine_config, pass_time


async def supervised(backstage: Backstage, address: str, **changes: object) -> None:
    child = connection_spec(engine_config(address, **changes), backstage.client)
    await backstage.stage.spawn(
        ChildSpec(
            name="serving",
            factory=lambda: Supervisor(strategy=Strategy.REST_FOR_ONE, children=(child,), fatal=(DiscoveryError,)),
            ready_timeout=INFINITY,
            restart=Restart.TEMPORARY,
        )
    )


def origin(cause: Cause) -> BaseException | None:
    assert isinstance(cause.error, EscalationError)
    return cause.error.origin.error


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schema_release": "v9.9.9"}, "schema_release"),
        ({"schema_release": "main"}, "schema release"),
        ({"minimum_client_revision": 99}, "revision 99"),
    ],
    ids=["release", "moving-release", "too-new"],
)
async def test_c12_an_engine_that_comes_back_as_another_one_is_no_matter_of_restarts(
    backstage: Backstage, engine: ReferenceEngine, changes: dict[str, object], field: str
) -> None:
    error = await refused_on_return(backstage, engine, **changes)
    assert field in str(error)


async def test_c12_an_engine_that_comes_back_with_another_model_is_no_matter_of_restarts(
    backstage: Backstage, engine: ReferenceEngine, tmp_path: Path
) -> None:
    another = tmp_path / "another"
    copytree(engine.options.model_path, another)
    error = await refused_on_return(backstage, engine, model_path=another)
    assert "model_id" in str(error)
    assert str(another) in str(error)


async def refused_on_return(backstage: Backstage, engine: ReferenceEngine, **changes: object) -> DiscoveryError:
    await supervised(backstage, engine.address, health_misses=2)
    await engine.stop()
    await backstage.fact(EngineDown)
    other = await come_back(engine.options, port=engine.port, **changes)
    serving = backstage.stage.ref("serving")
    await pass_time(backstage.stage.clock, lambda: not serving.is_alive, "escalation")
    error = origin(await serving.stopped())
    await other.stop()
    assert len(backstage.heard(EngineUp)) == 1
    assert not backstage.client.attached
    assert isinstance(error, DiscoveryError)
    return error


async def test_an_outage_is_no_incident(backstage: Backstage, engine: ReferenceEngine) -> None:
    await supervised(backstage, engine.address, health_misses=1)
    options: EngineOptions = engine.options
    port = engine.port
    for outage in range(1, 8):
        await engine.stop()
        await backstage.fact(EngineDown, outage)
        engine = await come_back(options, port=port)
        await backstage.fact(EngineUp, outage + 1)
    [status] = [status for status in backstage.stage.system.snapshot() if status.path.endswith("/engine")]
    assert status.incarnation == 1
    await engine.stop()


async def test_a_crash_is_told_as_a_loss_until_the_next_life_is_up(
    backstage: Backstage, engine: ReferenceEngine
) -> None:
    await supervised(backstage, engine.address)
    crash_now(backstage.stage.system, "/stage/serving/engine")
    await backstage.fact(EngineUp, 2)
    ups_and_downs = [type(fact) for fact in backstage.probe.heard if isinstance(fact, EngineUp | EngineDown)]
    assert ups_and_downs == [EngineUp, EngineDown, EngineUp]
    [down] = backstage.heard(EngineDown)
    assert down.lost
    assert InjectedError.__name__ in down.cause
    assert backstage.client.attached

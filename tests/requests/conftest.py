from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from openengine_sidecar.actors.config import NatsConfig
from openengine_sidecar.launch.engine import EngineOptions, ReferenceEngine
from openengine_sidecar.messages.facts import PlaneState
from tests.requests.gates import GateStage
from tests.requests.streams import Streams
from tests.support.backstage import Backstage
from tests.support.site import Site
from tests.support.wire import CallHomeServer, RawFrontend

PACE = 0.005
NEVER = 1e9


@pytest.fixture
async def engine() -> AsyncIterator[ReferenceEngine]:
    async with ReferenceEngine(EngineOptions(token_delay=PACE)) as engine:
        yield engine


@pytest.fixture
async def ears() -> AsyncIterator[CallHomeServer]:
    async with CallHomeServer() as ears:
        yield ears


@pytest.fixture
async def streams(engine: ReferenceEngine, ears: CallHomeServer) -> AsyncIterator[Streams]:
    async with Backstage.opened() as backstage:
        await backstage.connect(engine.address, health_interval=NEVER)
        yield Streams(backstage, engine, ears)


@pytest.fixture
async def raw(site: Site) -> AsyncIterator[RawFrontend]:
    async with RawFrontend(site.planes.nats_url) as raw:
        yield raw


@pytest.fixture
async def gates(engine: ReferenceEngine, raw: RawFrontend, site: Site) -> AsyncIterator[GateStage]:
    """A gate that is not set up yet."""
    async with Backstage.opened() as backstage:
        backstage.probe.subscribe(PlaneState)
        await backstage.connect(engine.address, health_interval=NEVER)
        yield GateStage(backstage, engine, raw, NatsConfig(servers=(site.planes.nats_url,), reconnect_wait=0.05))

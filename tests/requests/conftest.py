from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from openengine_sidecar.launch.engine import EngineOptions, ReferenceEngine
from openengine_sidecar.supervision.testing import Stage
from tests.requests.streams import Streams
from tests.support.backstage import Backstage
from tests.support.wire import CallHomeServer

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
    async with Stage() as stage:
        backstage = await Backstage.set_up(stage)
        await backstage.connect(engine.address, health_interval=NEVER)
        yield Streams(backstage, engine, ears)

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from openengine_sidecar.launch.engine import ReferenceEngine
from tests.engine.caller import Caller


@pytest.fixture
async def engine() -> AsyncIterator[ReferenceEngine]:
    async with ReferenceEngine() as engine:
        yield engine


@pytest.fixture
async def caller(engine: ReferenceEngine) -> AsyncIterator[Caller]:
    async with Caller(engine.address) as caller:
        yield caller

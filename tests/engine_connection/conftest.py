from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.backstage import Backstage

from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.supervision.testing import Stage


@pytest.fixture
async def engine() -> AsyncIterator[ReferenceEngine]:
    async with ReferenceEngine() as engine:
        yield engine


@pytest.fixture
async def backstage() -> AsyncIterator[Backstage]:
    async with Stage() as stage:
        yield await Backstage.set_up(stage)

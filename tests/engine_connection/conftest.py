from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from openengine_sidecar.launch.engine import ReferenceEngine
from tests.support.backstage import Backstage


@pytest.fixture
async def engine() -> AsyncIterator[ReferenceEngine]:
    async with ReferenceEngine() as engine:
        yield engine


@pytest.fixture
async def backstage() -> AsyncIterator[Backstage]:
    async with Backstage.opened() as backstage:
        yield backstage

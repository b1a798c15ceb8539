from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from loguru import logger

from openengine_sidecar.supervision.testing import Probe, Stage
from tests.supervision.cast import Cast


@pytest.fixture(params=["loop", "thread"])
def cast(request: pytest.FixtureRequest) -> Cast:
    return Cast(request.param)


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    async with Stage() as stage:
        yield stage


@pytest_asyncio.fixture
async def probe(stage: Stage) -> Probe:
    return await stage.probe()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger.disable("openengine_sidecar.supervision")
    yield
    logger.enable("openengine_sidecar.supervision")

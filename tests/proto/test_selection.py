from __future__ import annotations

from typing import Any

import grpc
import pytest

from openengine_sidecar.messages.errors import DiscoveryError
from openengine_sidecar.proto.dialect import EngineCallError
from openengine_sidecar.proto.rev2_dialect import Method, Revision2
from openengine_sidecar.proto.selection import DIALECTS, select_dialect
from tests.proto.engine import answering, connected, engine_info, refusing


class Foreign(Revision2):
    """Another schema: its discovery method is one that the engine under test may or may not have."""

    name = "foreign"

    async def speaks(self, channel: Any, *, timeout: float) -> bool:
        try:
            await self.load(channel, per_rank=False, timeout=timeout)
        except EngineCallError as error:
            if error.status is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            return False
        return True


async def test_c01_an_engine_with_the_one_service_speaks_revision_2() -> None:
    async with connected({Method.GET_ENGINE_INFO: answering(engine_info())}) as (_, channel):
        assert (await select_dialect(channel, endpoint="here", timeout=5)).name == "rev2"


async def test_c01_unimplemented_moves_on_to_the_next_schema() -> None:
    async with connected({Method.GET_ENGINE_INFO: answering(engine_info())}) as (engine, channel):
        dialects = (Foreign(), Revision2())
        assert await select_dialect(channel, endpoint="here", timeout=5, dialects=dialects) is dialects[1]
        assert engine.methods == [Method.GET_ENGINE_INFO]


async def test_the_first_schema_that_answers_is_taken() -> None:
    async with connected({Method.GET_ENGINE_INFO: answering(engine_info())}) as (_, channel):
        dialects = (Revision2(), Foreign())
        assert await select_dialect(channel, endpoint="here", timeout=5, dialects=dialects) is dialects[0]


@pytest.mark.parametrize("dialects", [DIALECTS, (Foreign(), Revision2())])
async def test_c05_nothing_known_answers(dialects: Any) -> None:
    async with connected({}) as (_, channel):
        with pytest.raises(DiscoveryError, match="here: no known OpenEngine service answered") as refusal:
            await select_dialect(channel, endpoint="here", timeout=5, dialects=dialects)
        assert all(dialect.name in refusal.value.problem for dialect in dialects)


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.name not in {"OK", "UNIMPLEMENTED"}])
async def test_c06_any_other_failure_says_nothing_about_the_schema(code: grpc.StatusCode) -> None:
    handlers = {Method.GET_LOAD: refusing(code), Method.GET_ENGINE_INFO: answering(engine_info())}
    async with connected(handlers) as (engine, channel):
        with pytest.raises(EngineCallError) as failure:
            await select_dialect(channel, endpoint="here", timeout=5, dialects=(Foreign(), Revision2()))
        assert failure.value.status is code
        assert engine.methods == [Method.GET_LOAD]


async def test_c06_an_engine_that_answers_at_last_is_selected() -> None:
    answers = iter([grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, None])

    async def handler(_request: Any, context: Any) -> Any:
        code = next(answers)
        if code is not None:
            await context.abort(code, "nodes are still joining")
        return engine_info()

    async with connected({Method.GET_ENGINE_INFO: handler}) as (_, channel):
        for _ in range(2):
            with pytest.raises(EngineCallError, match="nodes are still joining"):
                await select_dialect(channel, endpoint="here", timeout=5)
        assert (await select_dialect(channel, endpoint="here", timeout=5)).name == "rev2"

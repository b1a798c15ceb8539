from __future__ import annotations

import grpc
import pytest

from openengine_sidecar.actors.lora.outcomes import failed, loaded, unloaded
from openengine_sidecar.actors.lora.steps import EngineFailed, EngineLoaded, EngineRefused, EngineUnloaded
from openengine_sidecar.messages.engine.lora import LoraOutcome, LoraStatus
from openengine_sidecar.proto.dialect import EngineCallError, Oversized

CERTAIN = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


@pytest.mark.parametrize("status", [LoraStatus.DONE, LoraStatus.ALREADY_LOADED])
def test_c48_loaded_or_loaded_before_is_loaded(status: LoraStatus) -> None:
    assert loaded(LoraOutcome(status)) == EngineLoaded()


@pytest.mark.parametrize("status", [LoraStatus.CONFLICT, LoraStatus.DISABLED, LoraStatus.UNSUPPORTED])
def test_c48_refusals_say_why_and_whether_to_ask_again(status: LoraStatus) -> None:
    event = loaded(LoraOutcome(status, "because"))
    assert isinstance(event, EngineRefused)
    assert event.problem.endswith(": because")
    assert event.featureless is (status is LoraStatus.UNSUPPORTED)


def test_c50_not_found_is_unloaded() -> None:
    assert unloaded(LoraOutcome(LoraStatus.DONE)) == EngineUnloaded(found=True)
    assert unloaded(LoraOutcome(LoraStatus.NOT_FOUND)) == EngineUnloaded(found=False)
    assert isinstance(unloaded(LoraOutcome(LoraStatus.DISABLED)), EngineRefused)


@pytest.mark.parametrize("status", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_c51_after_most_errors_nobody_knows_what_the_engine_did(status: grpc.StatusCode) -> None:
    event = failed(EngineCallError("/LoadLora", status, "why"))
    assert isinstance(event, EngineRefused) is (status in CERTAIN)
    assert isinstance(event, EngineRefused | EngineFailed)
    assert "why" in event.problem


@pytest.mark.parametrize(("side", "certain"), [(Oversized.REQUEST, True), (Oversized.RESPONSE, False)])
def test_an_answer_that_was_too_large_is_no_refusal(*, side: Oversized, certain: bool) -> None:
    error = EngineCallError("/LoadLora", grpc.StatusCode.RESOURCE_EXHAUSTED, "too large", oversized=side)
    assert isinstance(failed(error), EngineRefused) is certain

"""What the engine's answers and failures mean to an adapter's machine."""

from __future__ import annotations

import grpc

from openengine_sidecar.actors.lora.steps import EngineEvent, EngineFailed, EngineLoaded, EngineRefused, EngineUnloaded
from openengine_sidecar.messages.engine.lora import LoraOutcome, LoraStatus
from openengine_sidecar.proto.dialect import EngineCallError, Oversized

REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
"""Statuses that an engine answers with instead of doing anything; after any other one nobody knows what it did."""

_WORDS = {
    LoraStatus.CONFLICT: "conflict: the engine holds another adapter of this name or id",
    LoraStatus.DISABLED: "adapters are switched off at the engine",
    LoraStatus.UNSUPPORTED: "the engine has no adapters",
}


def loaded(outcome: LoraOutcome) -> EngineEvent:
    """What came of a load."""
    if outcome.status in {LoraStatus.DONE, LoraStatus.ALREADY_LOADED}:
        return EngineLoaded()
    return _refused(outcome)


def unloaded(outcome: LoraOutcome) -> EngineEvent:
    """What came of an unload."""
    if outcome.status in {LoraStatus.DONE, LoraStatus.NOT_FOUND}:
        return EngineUnloaded(found=outcome.status is LoraStatus.DONE)
    return _refused(outcome)


def failed(error: EngineCallError) -> EngineEvent:
    """What came of a call that ended in an error."""
    if error.status in REFUSALS and error.oversized is not Oversized.RESPONSE:
        return EngineRefused(str(error))
    return EngineFailed(str(error))


def _refused(outcome: LoraOutcome) -> EngineRefused:
    words = _WORDS.get(outcome.status, outcome.status.value)
    problem = f"{words}: {outcome.detail}" if outcome.detail else words
    return EngineRefused(problem, featureless=outcome.status is LoraStatus.UNSUPPORTED)

"""Enum numbers of revision 2 in the sidecar's words. A number that is not in a table reads as the zero value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from openengine_sidecar.messages.engine.control import AbortOutcome, HealthState
from openengine_sidecar.messages.engine.discovery import CandidateMode, Role
from openengine_sidecar.messages.engine.generation import FaultCode, FinishReason, GuideMode, MediaSource, Modality
from openengine_sidecar.messages.engine.kv import Medium
from openengine_sidecar.proto.rev2 import (
    engine_pb2,
    error_pb2,
    generation_pb2,
    input_pb2,
    kv_pb2,
    lifecycle_pb2,
    model_pb2,
)

Word = TypeVar("Word")

ROLES: Mapping[int, Role] = {
    engine_pb2.ENGINE_ROLE_AGGREGATED: Role.AGGREGATED,
    engine_pb2.ENGINE_ROLE_PREFILL: Role.PREFILL,
    engine_pb2.ENGINE_ROLE_DECODE: Role.DECODE,
}

FINISH_REASONS: Mapping[int, FinishReason] = {
    generation_pb2.FINISH_REASON_STOP: FinishReason.STOP,
    generation_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
    generation_pb2.FINISH_REASON_CANCELLED: FinishReason.CANCELLED,
}

FAULT_CODES: Mapping[int, FaultCode] = {
    error_pb2.ERROR_CODE_INVALID_ARGUMENT: FaultCode.INVALID_ARGUMENT,
    error_pb2.ERROR_CODE_UNSUPPORTED_FEATURE: FaultCode.UNSUPPORTED_FEATURE,
    error_pb2.ERROR_CODE_ROLE_MISMATCH: FaultCode.ROLE_MISMATCH,
    error_pb2.ERROR_CODE_MODEL_NOT_FOUND: FaultCode.MODEL_NOT_FOUND,
    error_pb2.ERROR_CODE_OVERLOADED: FaultCode.OVERLOADED,
    error_pb2.ERROR_CODE_REQUEST_NOT_FOUND: FaultCode.REQUEST_NOT_FOUND,
    error_pb2.ERROR_CODE_DUPLICATE_REQUEST: FaultCode.DUPLICATE_REQUEST,
    error_pb2.ERROR_CODE_KV_SESSION_NOT_FOUND: FaultCode.KV_SESSION_NOT_FOUND,
    error_pb2.ERROR_CODE_KV_TRANSFER_FAILED: FaultCode.KV_TRANSFER_FAILED,
    error_pb2.ERROR_CODE_CANCELLED: FaultCode.CANCELLED,
    error_pb2.ERROR_CODE_DRAINING: FaultCode.DRAINING,
    error_pb2.ERROR_CODE_INTERNAL: FaultCode.INTERNAL,
}

HEALTH_STATES: Mapping[int, HealthState] = {
    lifecycle_pb2.HEALTH_STATE_STARTING: HealthState.STARTING,
    lifecycle_pb2.HEALTH_STATE_READY: HealthState.READY,
    lifecycle_pb2.HEALTH_STATE_DEGRADED: HealthState.DEGRADED,
    lifecycle_pb2.HEALTH_STATE_DRAINING: HealthState.DRAINING,
    lifecycle_pb2.HEALTH_STATE_NOT_READY: HealthState.NOT_READY,
}

ABORT_OUTCOMES: Mapping[int, AbortOutcome] = {
    lifecycle_pb2.ABORT_STATUS_ABORTED: AbortOutcome.ABORTED,
    lifecycle_pb2.ABORT_STATUS_ALREADY_FINISHED: AbortOutcome.GONE,
}

CANDIDATE_MODES: Mapping[int, CandidateMode] = {
    model_pb2.CANDIDATE_TOKEN_SELECTION_MODE_TOP_N: CandidateMode.TOP_N,
    model_pb2.CANDIDATE_TOKEN_SELECTION_MODE_TOKEN_IDS: CandidateMode.TOKEN_IDS,
    model_pb2.CANDIDATE_TOKEN_SELECTION_MODE_ALL: CandidateMode.ALL,
}

GUIDE_MODES: Mapping[int, GuideMode] = {
    model_pb2.GUIDED_DECODING_MODE_JSON_SCHEMA: GuideMode.JSON_SCHEMA,
    model_pb2.GUIDED_DECODING_MODE_REGEX: GuideMode.REGEX,
    model_pb2.GUIDED_DECODING_MODE_EBNF_GRAMMAR: GuideMode.EBNF_GRAMMAR,
    model_pb2.GUIDED_DECODING_MODE_STRUCTURAL_TAG: GuideMode.STRUCTURAL_TAG,
    model_pb2.GUIDED_DECODING_MODE_CHOICE: GuideMode.CHOICE,
    model_pb2.GUIDED_DECODING_MODE_JSON_OBJECT: GuideMode.JSON_OBJECT,
}

MODALITIES: Mapping[int, Modality] = {
    input_pb2.MODALITY_IMAGE: Modality.IMAGE,
    input_pb2.MODALITY_VIDEO: Modality.VIDEO,
    input_pb2.MODALITY_AUDIO: Modality.AUDIO,
}
MODALITY_NUMBERS = {
    Modality.IMAGE: input_pb2.MODALITY_IMAGE,
    Modality.VIDEO: input_pb2.MODALITY_VIDEO,
    Modality.AUDIO: input_pb2.MODALITY_AUDIO,
}

MEDIA_SOURCES: Mapping[int, MediaSource] = {
    input_pb2.MEDIA_SOURCE_TYPE_URL: MediaSource.URL,
    input_pb2.MEDIA_SOURCE_TYPE_DATA_URI: MediaSource.DATA_URI,
    input_pb2.MEDIA_SOURCE_TYPE_RAW_BYTES: MediaSource.RAW_BYTES,
}

MEDIA: Mapping[int, Medium] = {
    kv_pb2.STORAGE_MEDIUM_UNSPECIFIED: Medium.GPU,
    kv_pb2.STORAGE_MEDIUM_GPU: Medium.GPU,
    kv_pb2.STORAGE_MEDIUM_CPU_PINNED: Medium.CPU_PINNED,
    kv_pb2.STORAGE_MEDIUM_DISK: Medium.DISK,
    kv_pb2.STORAGE_MEDIUM_EXTERNAL: Medium.EXTERNAL,
}
"""Here, a number that is not in the table is UNKNOWN: zero means the GPU."""


def known(numbers: Iterable[int], words: Mapping[int, Word]) -> tuple[Word, ...]:
    """Translate a list of enum numbers; what this build does not know is left out, as if not advertised."""
    return tuple(words[number] for number in numbers if number in words)

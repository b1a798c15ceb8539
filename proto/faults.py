"""Failures of an engine -> the errors of requests, as two tables.

What each class means to a client and to the router stands in `messages/errors.py`. Every gRPC status and every fault
code has its row; one that is missing fails a test, not a request.
"""

from __future__ import annotations

from collections.abc import Mapping

import grpc

from openengine_sidecar.messages.engine.generation import Fault, FaultCode
from openengine_sidecar.messages.errors import (
    EngineCancelledError,
    EngineFailureError,
    EngineLostError,
    EngineProtocolError,
    EngineTimeoutError,
    EngineUnreachableError,
    InvalidRequestError,
    OverloadedError,
    RequestError,
    StreamBrokenError,
    UnsupportedFeatureError,
)
from openengine_sidecar.proto.dialect import EngineCallError, Oversized, UndecodableError

STATUS_ERRORS: Mapping[grpc.StatusCode, type[RequestError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.NOT_FOUND: InvalidRequestError,
    grpc.StatusCode.ALREADY_EXISTS: InvalidRequestError,
    grpc.StatusCode.FAILED_PRECONDITION: InvalidRequestError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequestError,
    grpc.StatusCode.UNIMPLEMENTED: UnsupportedFeatureError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: OverloadedError,
    grpc.StatusCode.UNAVAILABLE: EngineUnreachableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: EngineTimeoutError,
    grpc.StatusCode.CANCELLED: EngineCancelledError,
    grpc.StatusCode.UNKNOWN: EngineFailureError,
    grpc.StatusCode.INTERNAL: EngineFailureError,
    grpc.StatusCode.DATA_LOSS: EngineFailureError,
    grpc.StatusCode.ABORTED: EngineFailureError,
    grpc.StatusCode.PERMISSION_DENIED: EngineFailureError,
    grpc.StatusCode.UNAUTHENTICATED: EngineFailureError,
}
"""Every status but OK."""

FAULT_ERRORS: Mapping[FaultCode, type[RequestError]] = {
    FaultCode.INVALID_ARGUMENT: InvalidRequestError,
    FaultCode.UNSUPPORTED_FEATURE: UnsupportedFeatureError,
    FaultCode.MODEL_NOT_FOUND: InvalidRequestError,
    FaultCode.OVERLOADED: OverloadedError,
    FaultCode.KV_TRANSFER_FAILED: StreamBrokenError,
    FaultCode.CANCELLED: EngineCancelledError,
    FaultCode.DRAINING: EngineLostError,
    FaultCode.ROLE_MISMATCH: EngineFailureError,
    FaultCode.REQUEST_NOT_FOUND: EngineFailureError,
    FaultCode.DUPLICATE_REQUEST: EngineFailureError,
    FaultCode.KV_SESSION_NOT_FOUND: EngineFailureError,
    FaultCode.INTERNAL: EngineFailureError,
    FaultCode.UNSPECIFIED: EngineFailureError,
}
"""Every code; where the engine says `retryable`, StreamBrokenError stands in for EngineFailureError."""


def error_from_status(request_id: str, error: EngineCallError, *, release: str | None = None) -> RequestError:
    """Turn the failed call of a request into its error.

    Args:
        request_id: the request that ends.
        error: how its call ended.
        release: the engine's schema release, where known, named when its messages do not decode.
    """
    if isinstance(error, UndecodableError):
        spoken = f" (engine's schema release: {release})" if release else ""
        return EngineProtocolError(request_id, "undecodable", f"{error}{spoken}")
    if error.oversized is not None:
        return _size_error(request_id, error, error.oversized)
    kind = STATUS_ERRORS[error.status]
    return kind(request_id, str(error), public=_public(kind, error.detail, error.status.name))


def error_from_fault(request_id: str, fault: Fault) -> RequestError:
    """Turn the application failure that ended a stream into the error of its request.

    `retryable` has no presence on the wire: False leaves the class's own default standing.
    """
    kind = FAULT_ERRORS[fault.code]
    if fault.retryable and kind is EngineFailureError:
        kind = StreamBrokenError
    details = f" {fault.details}" if fault.details else ""
    return kind(
        request_id,
        f"the engine reported {fault.code.value}: {fault.message}{details}",
        public=_public(kind, fault.message, fault.code.value),
        retryable=True if fault.retryable else None,
        retry_after_ms=fault.retry_after_ms,
    )


def _public(kind: type[RequestError], message: str, code: str) -> str | None:
    if not kind.client_fault:
        return None
    return message or f"the engine refused the request: {code.lower()}"


def _size_error(request_id: str, error: EngineCallError, side: Oversized) -> RequestError:
    if side is Oversized.REQUEST:
        return InvalidRequestError(request_id, str(error), public="the request is larger than the engine accepts")
    return EngineFailureError(request_id, f"{error}; raise the limit for received messages")

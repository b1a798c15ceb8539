from __future__ import annotations

import grpc
import pytest

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
from openengine_sidecar.proto.faults import FAULT_ERRORS, STATUS_ERRORS, error_from_fault, error_from_status
from openengine_sidecar.proto.rev2.error_pb2 import ErrorCode
from openengine_sidecar.proto.rev2_dialect.enums import FAULT_CODES

METHOD = "/openengine.v1.OpenEngine/Generate"


def _status_error(status: grpc.StatusCode, detail: str = "it said so") -> RequestError:
    return error_from_status("r.1", EngineCallError(METHOD, status, detail))


def test_every_grpc_status_but_ok_has_a_row() -> None:
    assert set(STATUS_ERRORS) == set(grpc.StatusCode) - {grpc.StatusCode.OK}


def test_every_fault_code_has_a_row() -> None:
    assert set(FAULT_ERRORS) == set(FaultCode)


def test_every_error_code_of_the_schema_has_a_fault_code() -> None:
    assert set(FAULT_CODES) == set(ErrorCode.values()) - {0}
    assert set(FAULT_CODES.values()) == set(FaultCode) - {FaultCode.UNSPECIFIED}


@pytest.mark.parametrize(
    ("status", "kind", "http"),
    [
        ("INVALID_ARGUMENT", InvalidRequestError, 400),
        ("NOT_FOUND", InvalidRequestError, 400),
        ("ALREADY_EXISTS", InvalidRequestError, 400),
        ("FAILED_PRECONDITION", InvalidRequestError, 400),
        ("OUT_OF_RANGE", InvalidRequestError, 400),
        ("UNIMPLEMENTED", UnsupportedFeatureError, 400),
        ("RESOURCE_EXHAUSTED", OverloadedError, 529),
        ("UNAVAILABLE", EngineUnreachableError, 503),
        ("DEADLINE_EXCEEDED", EngineTimeoutError, 504),
        ("CANCELLED", EngineCancelledError, 499),
        ("UNKNOWN", EngineFailureError, 500),
        ("INTERNAL", EngineFailureError, 500),
        ("DATA_LOSS", EngineFailureError, 500),
        ("ABORTED", EngineFailureError, 500),
        ("PERMISSION_DENIED", EngineFailureError, 500),
        ("UNAUTHENTICATED", EngineFailureError, 500),
    ],
)
def test_c24_statuses(status: str, kind: type[RequestError], http: int) -> None:
    error = _status_error(grpc.StatusCode[status])
    assert type(error) is kind
    assert (error.status, error.request_id) == (http, "r.1")
    assert status in error.problem
    assert error.public == ("it said so" if kind.client_fault else None)


def test_c24_a_client_fault_without_a_text_still_says_something() -> None:
    error = _status_error(grpc.StatusCode.NOT_FOUND, "")
    assert error.public == "the engine refused the request: not_found"


@pytest.mark.parametrize(
    ("code", "kind", "retryable_kind"),
    [
        ("invalid_argument", InvalidRequestError, InvalidRequestError),
        ("unsupported_feature", UnsupportedFeatureError, UnsupportedFeatureError),
        ("model_not_found", InvalidRequestError, InvalidRequestError),
        ("overloaded", OverloadedError, OverloadedError),
        ("kv_transfer_failed", StreamBrokenError, StreamBrokenError),
        ("cancelled", EngineCancelledError, EngineCancelledError),
        ("draining", EngineLostError, EngineLostError),
        ("role_mismatch", EngineFailureError, StreamBrokenError),
        ("request_not_found", EngineFailureError, StreamBrokenError),
        ("duplicate_request", EngineFailureError, StreamBrokenError),
        ("kv_session_not_found", EngineFailureError, StreamBrokenError),
        ("internal", EngineFailureError, StreamBrokenError),
        ("unspecified", EngineFailureError, StreamBrokenError),
    ],
)
def test_c23_faults(code: str, kind: type[RequestError], retryable_kind: type[RequestError]) -> None:
    final = error_from_fault("r.1", Fault(code=FaultCode(code), message="boom"))
    transient = error_from_fault("r.1", Fault(code=FaultCode(code), message="boom", retryable=True))
    assert (type(final), type(transient)) == (kind, retryable_kind)
    assert final.retryable is kind.retryable_by_default
    assert transient.retryable is True
    assert final.problem == f"the engine reported {code}: boom"
    assert final.public == ("boom" if kind.client_fault else None)


def test_c23_a_client_fault_without_a_text_still_says_something() -> None:
    error = error_from_fault("r.1", Fault(code=FaultCode.MODEL_NOT_FOUND, message=""))
    assert error.public == "the engine refused the request: model_not_found"


@pytest.mark.parametrize("wish", [None, 0, 1500])
def test_c23_retry_after_is_kept(wish: int | None) -> None:
    fault = Fault(code=FaultCode.OVERLOADED, message="full", retryable=True, retry_after_ms=wish)
    assert error_from_fault("r.1", fault).retry_after_ms == wish


def test_c23_details_are_for_the_operator_only() -> None:
    error = error_from_fault("r.1", Fault(code=FaultCode.INVALID_ARGUMENT, message="bad", details='{"at": 3}'))
    assert error.problem.endswith('bad {"at": 3}')
    assert error.public == "bad"


def test_c72_undecodable_names_dialect_method_and_release() -> None:
    undecodable = UndecodableError(METHOD, grpc.StatusCode.INTERNAL, "not of this schema")
    error = error_from_status("r.1", undecodable, release="v0.1.0")
    assert isinstance(error, EngineProtocolError)
    assert error.rule == "undecodable"
    assert METHOD in error.problem
    assert "v0.1.0" in error.problem
    assert "release" not in error_from_status("r.1", undecodable).__str__()


def test_c31_size_limits_are_not_overload() -> None:
    status = grpc.StatusCode.RESOURCE_EXHAUSTED
    too_large = EngineCallError(METHOD, status, "CLIENT: Received", oversized=Oversized.RESPONSE)
    refused = EngineCallError(METHOD, status, "SERVER: Received", oversized=Oversized.REQUEST)
    assert type(error_from_status("r.1", too_large)) is EngineFailureError
    client_fault = error_from_status("r.1", refused)
    assert type(client_fault) is InvalidRequestError
    assert client_fault.public == "the request is larger than the engine accepts"

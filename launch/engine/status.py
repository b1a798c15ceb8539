"""Calls that end with a gRPC status."""

from __future__ import annotations

import grpc


class StatusError(Exception):
    """A call ends with a status other than OK: a refusal before acceptance, or a scripted fault.

    Attributes:
        status: the gRPC status of the answer.
        reason: its text.
    """

    def __init__(self, status: grpc.StatusCode, reason: str) -> None:
        super().__init__(f"{status.name}: {reason}")
        self.status = status
        self.reason = reason


def invalid(reason: str) -> StatusError:
    """Refuse what no engine could do."""
    return StatusError(grpc.StatusCode.INVALID_ARGUMENT, reason)


def unimplemented(what: str) -> StatusError:
    """Refuse what this engine does not do."""
    return StatusError(grpc.StatusCode.UNIMPLEMENTED, f"{what} is not supported by this engine")


def unknown_model(name: str) -> StatusError:
    """Refuse a model that is not the one served."""
    return StatusError(grpc.StatusCode.NOT_FOUND, f"model {name!r} is not served here")


def unknown_adapter(name: str) -> StatusError:
    """Refuse an adapter that is not loaded."""
    return StatusError(grpc.StatusCode.NOT_FOUND, f"adapter {name!r} is not loaded")


def starting() -> StatusError:
    """Refuse before the engine is ready."""
    return StatusError(grpc.StatusCode.UNAVAILABLE, "the engine is starting")


def draining() -> StatusError:
    """Refuse because a drain stopped the intake."""
    return StatusError(grpc.StatusCode.UNAVAILABLE, "the engine is draining")

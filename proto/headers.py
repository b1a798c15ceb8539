"""gRPC metadata that travels beside a call."""

from __future__ import annotations

import re
from collections.abc import Mapping

from openengine_sidecar.proto.fields import FieldError

TRACE_HEADERS = frozenset({"traceparent", "tracestate"})
RESERVED_PREFIX = "openengine-"

_PRINTABLE_ASCII = re.compile(r"[\x20-\x7e]*")

Metadata = tuple[tuple[str, str], ...]


def trace_headers(trace: Mapping[str, str] | None) -> Metadata:
    """Check the W3C trace headers of a request and put them into the form that gRPC takes.

    gRPC itself refuses a bad value only with a status that looks like the engine's, hence the check.

    Raises:
        FieldError: another header than these two, or a value that is not printable ASCII.
    """
    for name, value in (trace or {}).items():
        field = f"trace.{name}"
        if name not in TRACE_HEADERS:
            raise FieldError(field, "not a trace header")
        if not _PRINTABLE_ASCII.fullmatch(value):
            raise FieldError(field, "not printable ASCII")
    return tuple((trace or {}).items())


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Refuse a caller's metadata that would speak for the sidecar.

    Raises:
        FieldError: a name below the reserved prefix `openengine-`.
    """
    for name in metadata:
        if name.lower().startswith(RESERVED_PREFIX):
            field = f"metadata.{name}"
            raise FieldError(field, f"names that begin with {RESERVED_PREFIX} are reserved")

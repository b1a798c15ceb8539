"""What travels beside a request: its own metadata, and the trace it belongs to.

Nothing else does: annotations, session contexts and foreign headers stay here.
"""

from __future__ import annotations

from collections.abc import Mapping

from openengine_sidecar.actors.generation.extra import ExtraArgs
from openengine_sidecar.actors.generation.terms import Terms
from openengine_sidecar.proto.fields import FieldError
from openengine_sidecar.proto.headers import TRACE_HEADERS, check_metadata, trace_headers


def metadata(extra: ExtraArgs, terms: Terms) -> dict[str, str]:
    """Translates the request's own map of texts.

    Raises:
        InvalidRequestError: a key below the prefix that the schema reserves.
    """
    entries = extra.metadata or {}
    try:
        check_metadata(entries)
    except FieldError as error:
        terms.reject("extra_args.metadata", list(entries), str(error))
    return entries


def trace(headers: Mapping[str, str], terms: Terms) -> dict[str, str]:
    """Picks the W3C trace headers; a tracestate says nothing without a traceparent.

    Raises:
        InvalidRequestError: a value that no header can hold.
    """
    picked = {name: headers[name] for name in TRACE_HEADERS if name in headers} if "traceparent" in headers else {}
    try:
        trace_headers(picked)
    except FieldError as error:
        terms.reject("trace", picked, str(error))
    return picked

from __future__ import annotations

import pytest

from openengine_sidecar.messages.errors import InvalidRequestError
from tests.generation.builders import called, nested

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_c28_both_trace_headers_travel() -> None:
    trace = {"traceparent": PARENT, "tracestate": "a=b,c=d"}
    assert called(trace=trace).trace == trace


def test_c28_no_other_header_travels() -> None:
    headers = {"traceparent": PARENT, "authorization": "secret", "openengine-priority": "9"}
    assert called(trace=headers).trace == {"traceparent": PARENT}


def test_a_state_without_a_parent_says_nothing() -> None:
    assert called(trace={"tracestate": "a=b"}).trace == {}


@pytest.mark.parametrize("value", ["é", "a\nb", "a\x00"])
@pytest.mark.parametrize("header", ["traceparent", "tracestate"])
def test_c28_a_value_no_header_can_hold_is_rejected(header: str, value: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{header}: not printable ASCII"):
        called(trace={"traceparent": PARENT} | {header: value})


@pytest.mark.parametrize("key", ["openengine-foo", "OpenEngine-Priority"])
def test_c28_metadata_that_would_speak_for_us_is_rejected(key: str) -> None:
    with pytest.raises(InvalidRequestError, match="reserved"):
        called(nested("extra_args", {"metadata": {key: "x"}}))


def test_annotations_are_no_metadata() -> None:
    assert called({"annotations": ["openengine-priority:9", "a:b"]}).metadata == {}

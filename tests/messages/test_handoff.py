from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openengine_sidecar.messages.dynamo.handoff import FORMAT, pack_handoff, read_handoff
from openengine_sidecar.messages.errors import WireError


@given(st.binary(max_size=300), st.none() | st.integers(0, 2**32 - 1))
def test_c37_the_bytes_survive_every_hop(wire: bytes, version: int | None) -> None:
    handoff = pack_handoff(wire, schema_version=version, readable={"session_id": "s"})
    through_json = json.loads(msgspec.json.encode(handoff))
    through_msgpack = msgspec.msgpack.decode(msgspec.msgpack.encode(through_json))
    back = read_handoff(through_msgpack)
    assert (back.wire(), back.schema_version) == (wire, version)


def test_its_form() -> None:
    handoff = pack_handoff(b"\x00\xff", schema_version=None, readable={})
    assert json.loads(msgspec.json.encode(handoff)) == {"format": FORMAT, "session": "AP8="}


@pytest.mark.parametrize(
    "value",
    [None, 5, "text", [], {}, {"session": ""}, {"format": FORMAT}, {"format": "other", "session": ""}],
    ids=repr,
)
def test_what_is_no_handoff_is_refused(value: object) -> None:
    with pytest.raises(WireError, match=FORMAT):
        read_handoff(value)


@pytest.mark.parametrize("session", ["A", "AP8", "AP8=\n", "ÄP8=", "AP8=AP8="])
def test_a_session_that_is_no_base64_is_refused(session: str) -> None:
    with pytest.raises(WireError, match="base64"):
        read_handoff({"format": FORMAT, "session": session}).wire()

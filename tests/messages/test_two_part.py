from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openengine_sidecar.messages.dynamo.two_part import PREFIX, Frame, FrameDecoder, decode_frame, encode_frame
from openengine_sidecar.messages.errors import WireError

FRAMES = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40)), max_size=6)


def announcing(header: int, body: int) -> bytes:
    return PREFIX.pack(header, body, 0)


def test_a_frame_is_three_big_endian_lengths_and_two_parts() -> None:
    assert encode_frame(b"ab", b"xyz") == bytes(7) + b"\2" + bytes(7) + b"\3" + bytes(8) + b"abxyz"


def test_a_checksum_is_not_verified() -> None:
    assert decode_frame(PREFIX.pack(1, 1, 77) + b"hb") == Frame(b"h", b"b")


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(encode_frame(b"header", b"body")[:23], id="inside-prefix"),
        pytest.param(encode_frame(b"header", b"body")[:-1], id="inside-body"),
        pytest.param(encode_frame(b"header", b"body") + b"!", id="trailing"),
        pytest.param(announcing(2**64 - 1, 2**64 - 1), id="absurd"),
        pytest.param(encode_frame(bytes(60), bytes(41)), id="oversized"),
    ],
)
def test_a_message_that_is_not_one_frame_is_refused(payload: bytes) -> None:
    with pytest.raises(WireError) as caught:
        decode_frame(payload, limit=100)
    assert caught.value.part == "frame"


def test_a_frame_of_exactly_the_limit_passes() -> None:
    assert decode_frame(encode_frame(bytes(60), bytes(40)), limit=100).body == bytes(40)


@settings(deadline=None)
@given(FRAMES, st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_frames_survive_any_way_of_cutting_the_stream(parts: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    stream = b"".join(encode_frame(header, body) for header, body in parts)
    decoder = FrameDecoder(limit=80)
    seen: list[Frame] = []
    position, turn = 0, 0
    while position < len(stream):
        step = cuts[turn % len(cuts)]
        seen += decoder.feed(stream[position : position + step])
        position, turn = position + step, turn + 1
    decoder.finish()
    assert seen == parts
    assert decoder.pending == 0


def test_an_oversized_frame_is_refused_before_its_bytes_are_held() -> None:
    decoder = FrameDecoder(limit=10)
    with pytest.raises(WireError, match="limit of 10"):
        decoder.feed(announcing(4, 7))


def test_a_stream_that_ends_inside_a_frame_is_told() -> None:
    decoder = FrameDecoder()
    whole = encode_frame(b"h", b"body")
    assert decoder.feed(whole + whole[:26]) == [Frame(b"h", b"body")]
    assert decoder.pending == 26
    with pytest.raises(WireError, match="26 bytes into a frame"):
        decoder.finish()

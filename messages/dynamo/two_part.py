"""The two-part frame of Dynamo's request and response planes.

    u64be header length | u64be body length | u64be checksum | header | body

Dynamo 1.6.1 writes a checksum of 0 and reads none, and so do we.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from openengine_sidecar.messages.dynamo.parsing import Part
from openengine_sidecar.messages.errors import WireError

PREFIX = struct.Struct(">QQQ")
DEFAULT_LIMIT = 64 * 1024 * 1024


class Frame(NamedTuple):
    """One frame's two parts."""

    header: bytes
    body: bytes


def encode_frame(header: bytes, body: bytes = b"") -> bytes:
    """One frame, ready for a single write."""
    return PREFIX.pack(len(header), len(body), 0) + header + body


def decode_frame(payload: bytes, limit: int = DEFAULT_LIMIT) -> Frame:
    """The frame that a whole message consists of.

    Args:
        payload: the message.
        limit: most bytes that header and body may have together.

    Raises:
        WireError: part `frame`: truncated, over the limit, or followed by bytes that belong to no frame.
    """
    end, split = _measure(payload, 0, limit)
    if len(payload) != end:
        verb = "is truncated at" if len(payload) < end else "goes on after its end, to"
        problem = f"a frame of {end} bytes {verb} {len(payload)} bytes"
        raise WireError(Part.FRAME, problem)
    return Frame(payload[PREFIX.size : split], payload[split:end])


class FrameDecoder:
    """Cuts a socket's byte stream into frames.

    A decoder that raised is spent: what follows on its socket cannot be told apart any more.

    Args:
        limit: most bytes that header and body of one frame may have together.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes held of a frame that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """Takes what a read brought and returns the frames completed by it, in order.

        Raises:
            WireError: part `frame`: a prefix announces more bytes than the limit.
        """
        self._buffer += data
        frames: list[Frame] = []
        start = 0
        while len(self._buffer) - start >= PREFIX.size:
            end, split = _measure(self._buffer, start, self._limit)
            if len(self._buffer) < end:
                break
            frames.append(Frame(bytes(self._buffer[start + PREFIX.size : split]), bytes(self._buffer[split:end])))
            start = end
        del self._buffer[:start]
        return frames

    def finish(self) -> None:
        """Tells that the stream ended.

        Raises:
            WireError: part `frame`: it ended inside a frame.
        """
        if self._buffer:
            problem = f"the stream ended {len(self._buffer)} bytes into a frame"
            raise WireError(Part.FRAME, problem)


def _measure(data: bytes | bytearray, start: int, limit: int) -> tuple[int, int]:
    """Offsets of the frame's end and of the border between header and body."""
    if len(data) - start < PREFIX.size:
        problem = f"{len(data) - start} bytes do not hold the {PREFIX.size}-byte prefix"
        raise WireError(Part.FRAME, problem)
    header, body, _checksum = PREFIX.unpack_from(data, start)
    if header + body > limit:
        problem = f"header of {header} and body of {body} bytes exceed the limit of {limit}"
        raise WireError(Part.FRAME, problem)
    split = start + PREFIX.size + header
    return split + body, split

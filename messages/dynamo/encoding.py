"""Response items to call-home frames.

The envelope around an item never changes, so it is spelled once per codec and only the item is encoded. Measured, a
token chunk costs half a microsecond; everything that one wake-up brought leaves in one write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Any, cast

import msgspec

from openengine_sidecar.messages.dynamo.control import SENTINEL, Codec
from openengine_sidecar.messages.dynamo.parsing import Part
from openengine_sidecar.messages.dynamo.response import (
    AnnotatedOutput,
    LLMEngineOutput,
    Refusal,
    error_body,
    error_item,
)
from openengine_sidecar.messages.dynamo.two_part import PREFIX, encode_frame
from openengine_sidecar.messages.errors import InvalidRequestError, RequestError, WireError


class ResponseEncoder:
    """One codec's frames. Holds no state between calls and may be shared; see `ENCODERS`.

    Every method raises `WireError` with part `output` where a value must not, or cannot, be put on the wire: the
    frontend would turn a NaN or an infinity into a JSON null.
    """

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        envelope = _ENVELOPES[codec]
        self._encode = envelope.encode
        self._bare = envelope.bare
        self._item = envelope.item
        self.end = encode_frame(b"", envelope.final) + SENTINEL
        """The last two frames of a complete answer: final marker and sentinel."""

    def outputs(self, outputs: Iterable[LLMEngineOutput]) -> bytes:
        """Frames of token chunks, in order, for a single write; empty for no chunk."""
        head, tail = self._item
        fixed = len(head) + len(tail)
        frames: list[bytes] = []
        for output in outputs:
            item = self._plain(output) if _plainly_finite(output) else self._checked(output)
            frames.append(PREFIX.pack(0, len(item) + fixed, 0) + head + item + tail)
        return b"".join(frames)

    def error(self, error: RequestError) -> bytes:
        """Frame of the error item that ends a request; `end` must follow it."""
        return self.annotated(error_item(error))

    def annotated(self, item: AnnotatedOutput) -> bytes:
        """Frame of a whole annotated item, such as an event."""
        return self.bare(item)

    def value(self, value: Any) -> bytes:
        """Frame of an annotated item of any other endpoint, whose data is `value`."""
        return self._frame(self._item, value)

    def bare(self, value: Any) -> bytes:
        """Frame of an item that is `value` itself, without annotation (KV recovery)."""
        return self._frame(self._bare, value)

    def _frame(self, around: tuple[bytes, bytes], value: Any) -> bytes:
        head, tail = around
        return encode_frame(b"", head + self._checked(value) + tail)

    def _checked(self, value: Any) -> bytes:
        try:
            path = next(_not_finite(value, ""), None)
        except RecursionError as error:
            raise WireError(Part.OUTPUT, str(error)) from error
        if path is not None:
            problem = f"{path or 'the value'} is not a finite number"
            raise WireError(Part.OUTPUT, problem)
        return self._plain(value)

    def _plain(self, value: Any) -> bytes:
        try:
            return self._encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.EncodeError) as error:
            raise WireError(Part.OUTPUT, str(error)) from error


def encode_refusal(error: InvalidRequestError) -> bytes:
    """Prologue, and only frame after the handshake, of a request that the client has to change.

    The frontend answers HTTP 400 with the public text, to streams too, whose status is lost once a prologue was clean.
    This kind alone costs the instance nothing.
    """
    return encode_frame(msgspec.json.encode(Refusal(error.problem, error_body(error))))


class _Envelope(msgspec.Struct, frozen=True):
    """A codec's encoder, and the bytes around a bare item, around an annotated one, and of the final marker."""

    encode: Callable[[Any], bytes]
    bare: tuple[bytes, bytes]
    item: tuple[bytes, bytes]
    final: bytes


_ENVELOPES = {
    Codec.MSGPACK: _Envelope(
        encode=msgspec.msgpack.Encoder().encode,
        bare=(b"\x82\xa4data", b"\xaecomplete_final\xc2"),
        item=(b"\x82\xa4data\x81\xa4data", b"\xaecomplete_final\xc2"),
        final=b"\x81\xaecomplete_final\xc3",
    ),
    Codec.JSON: _Envelope(
        encode=msgspec.json.Encoder().encode,
        bare=(b'{"data":', b',"complete_final":false}'),
        item=(b'{"data":{"data":', b'},"complete_final":false}'),
        final=b'{"complete_final":true}',
    ),
}


def _plainly_finite(output: LLMEngineOutput) -> bool:
    """Whether a chunk is finite for sure. Free-form values, and naming what is not finite, take the slow walk."""
    return (
        output.disaggregated_params is None
        and output.engine_data is None
        and (output.cum_log_probs is None or isfinite(output.cum_log_probs))
        and (output.log_probs is None or all(map(isfinite, output.log_probs)))
        and (
            output.top_logprobs is None
            or all(isfinite(candidate.logprob) for candidates in output.top_logprobs for candidate in candidates)
        )
    )


def _not_finite(value: Any, path: str) -> Iterator[str]:
    """Paths of the floats in a value that JSON cannot spell."""
    match value:
        case float():
            if not isfinite(value):
                yield path
        case dict():
            for key, inner in cast("Mapping[Any, Any]", value).items():
                yield from _not_finite(inner, f"{path}.{key}")
        case list() | tuple():
            for position, inner in enumerate(cast("Sequence[Any]", value)):
                yield from _not_finite(inner, f"{path}[{position}]")
        case msgspec.Struct():
            for field in value.__struct_fields__:
                yield from _not_finite(getattr(value, field), f"{path}.{field}")
        case _:
            pass


ENCODERS: Mapping[Codec, ResponseEncoder] = MappingProxyType({codec: ResponseEncoder(codec) for codec in Codec})

"""Calls over grpc.aio, with its ways of failing translated into one: EngineCallError.

Messages pass as bytes and are decoded here, so that a message of the wrong schema is told apart from a status.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from openengine_sidecar.messages.engine.generation import Event
from openengine_sidecar.proto.dialect import EngineCallError, Oversized, UndecodableError
from openengine_sidecar.proto.headers import Metadata
from openengine_sidecar.proto.text import peer_text

Decoded = TypeVar("Decoded")
Answer = TypeVar("Answer", bound=Message)

# grpc reports size limits, of either side, with the status that engines use for overload; only its text differs.
_SIZE_LIMIT = re.compile(r"(CLIENT|SERVER): (Sent|Received) message larger than max")
_OVERSIZED = {
    ("CLIENT", "Sent"): Oversized.REQUEST,
    ("SERVER", "Received"): Oversized.REQUEST,
    ("SERVER", "Sent"): Oversized.RESPONSE,
    ("CLIENT", "Received"): Oversized.RESPONSE,
}


class _RawCalls(Protocol):
    """The part of grpc.aio.Channel used here, for messages that stay bytes; grpc's own types leave them open."""

    def unary_unary(
        self, method: str, request_serializer: None, response_deserializer: None
    ) -> Callable[..., Awaitable[bytes]]: ...

    def unary_stream(
        self, method: str, request_serializer: None, response_deserializer: None
    ) -> Callable[..., grpc.aio.UnaryStreamCall[bytes, bytes]]: ...


async def ask(
    channel: grpc.aio.Channel,
    method: str,
    request: Message,
    answer: type[Answer],
    *,
    timeout: float,
    metadata: Metadata = (),
) -> Answer:
    """Make a unary call.

    Raises:
        EngineCallError: the call ended with another status than OK.
        UndecodableError: the answer is not of the type `answer`.
    """
    try:
        call = cast("_RawCalls", channel).unary_unary(method, None, None)
        raw = await call(request.SerializeToString(), timeout=timeout, metadata=metadata)
    except (grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
        raise _call_error(method, error) from error
    except asyncio.CancelledError:
        if _task_is_cancelled():
            raise
        raise _channel_closed(method) from None
    return decode(method, answer.FromString, raw)


def decode(method: str, decoder: Callable[[bytes], Decoded], raw: bytes) -> Decoded:
    """Decode one message of a call.

    Raises:
        UndecodableError: the bytes are not of the type that the decoder expects.
    """
    try:
        return decoder(raw)
    except DecodeError as error:
        detail = peer_text(f"a message of {len(raw)} bytes is not of this schema: {error}")
        raise UndecodableError(method, grpc.StatusCode.INTERNAL, detail) from error


class MessageStream:
    """Raw messages of one server-streaming call, which starts at the first `read`.

    Args:
        channel: where to call; not owned.
        method: full method path.
        request: the serialized request.
        timeout: seconds for the whole call, None for no limit.
        metadata: headers beside the call.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        method: str,
        request: bytes,
        *,
        timeout: float | None = None,
        metadata: Metadata = (),
    ) -> None:
        self.method = method
        self._channel = cast("_RawCalls", channel)
        self._request = request
        self._timeout = timeout
        self._metadata = metadata
        self._call: grpc.aio.UnaryStreamCall[bytes, bytes] | None = None
        self._cancelled = False

    async def read(self) -> bytes | None:
        """Wait for the next message; None once the peer closed with OK.

        Raises:
            EngineCallError: the call ended with another status; CANCELLED after `cancel`, UNAVAILABLE where the
                channel was closed underneath.
            asyncio.CancelledError: the waiting task was cancelled, and the call with it.
        """
        if self._cancelled:
            raise self._cut_short()
        try:
            message = await (self._call or self._start()).read()
        except (grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
            raise _call_error(self.method, error) from error
        except asyncio.CancelledError:
            if _task_is_cancelled():
                raise
            raise self._cut_short() from None
        return message if isinstance(message, bytes) else None

    def cancel(self) -> None:
        """Cancel the call; idempotent, never blocks, harmless after the end and before the start."""
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()

    def _start(self) -> grpc.aio.UnaryStreamCall[bytes, bytes]:
        opener = self._channel.unary_stream(self.method, None, None)
        self._call = opener(self._request, timeout=self._timeout, metadata=self._metadata)
        return self._call

    def _cut_short(self) -> EngineCallError:
        if self._cancelled:
            return EngineCallError(self.method, grpc.StatusCode.CANCELLED, "cancelled by this side")
        return _channel_closed(self.method)


class GrpcGenerationStream:
    """A GenerationStream over grpc.aio: each wake-up brings one message."""

    def __init__(self, messages: MessageStream, decoder: Callable[[bytes], Event]) -> None:
        self._messages = messages
        self._decoder = decoder

    async def next_batch(self) -> Sequence[Event]:
        """Wait for the next event; see GenerationStream."""
        raw = await self._messages.read()
        if raw is None:
            return ()
        try:
            return (decode(self._messages.method, self._decoder, raw),)
        except UndecodableError:
            self._messages.cancel()
            raise

    def cancel(self) -> None:
        """Cancel the call; see GenerationStream."""
        self._messages.cancel()


def _call_error(method: str, error: grpc.aio.AioRpcError | grpc.aio.UsageError) -> EngineCallError:
    if isinstance(error, grpc.aio.UsageError):
        return _channel_closed(method)
    text = error.details() or ""
    limit = _SIZE_LIMIT.search(text) if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED else None
    oversized = _OVERSIZED[limit[1], limit[2]] if limit else None
    return EngineCallError(method, error.code(), peer_text(text), oversized=oversized)


def _channel_closed(method: str) -> EngineCallError:
    return EngineCallError(method, grpc.StatusCode.UNAVAILABLE, "the channel was closed on this side")


def _task_is_cancelled() -> bool:
    """Tell a cancelled task from a cancelled call: grpc.aio raises CancelledError for both."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

"""A rank's KV events over ZMQ, in the manner of a subscription over gRPC. Needs the extra `kv`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import grpc
import zmq
import zmq.asyncio

from openengine_sidecar.actors.kv.sources import ZmqAddress
from openengine_sidecar.actors.kv.zmq_wire import (
    END_OF_REPLAY,
    ZmqMessageError,
    decode_batch,
    decode_number,
    encode_number,
)
from openengine_sidecar.messages.engine.kv import KvBatch
from openengine_sidecar.proto.dialect import EngineCallError, UndecodableError

REPLAY_TIMEOUT: Final = 5.0
HIGH_WATER: Final = 100_000
HEARTBEAT_MS: Final = 10_000
AT_ONCE: Final = 256
"""Most messages taken in one wake-up."""

_FRAMES: Final = 3


class ZmqStream:
    """A KvEventStream over a SUB socket; begins with all that the engine can send again, where it offers that.

    A socket hears nothing of its peer's end, and connects again by itself: what was lost shows in the numbers.
    """

    def __init__(self, address: ZmqAddress, rank: int) -> None:
        self._address = address
        self._rank = rank
        self._context = zmq.asyncio.Context()
        self._live: Any = self._context.socket(zmq.SUB)  # the library's stubs leave its asyncio sockets' futures open
        self._open = False
        self._last = -1
        self._cancelled = False

    async def next_batches(self) -> Sequence[KvBatch]:
        """Wait for the batches that one wake-up brought; see KvEventStream."""
        if self._cancelled:
            raise self._failure(grpc.StatusCode.CANCELLED, "cancelled by this side")
        past = [] if self._open else await self._past()
        while not past:
            past = [batch for message in await self._messages() if (batch := self._read(message)) is not None]
        return past

    def cancel(self) -> None:
        """Close the sockets; see KvEventStream."""
        if not self._cancelled:
            self._cancelled = True
            self._context.destroy(linger=0)

    async def _messages(self) -> list[list[bytes]]:
        messages: list[list[bytes]] = [await self._live.recv_multipart()]
        while len(messages) < AT_ONCE and self._live.get(zmq.EVENTS) & zmq.POLLIN:
            messages.append(await self._live.recv_multipart(zmq.NOBLOCK))
        return messages

    async def _past(self) -> list[KvBatch]:
        """Listen, and only then ask for the past: what happens meanwhile is heard twice rather than not at all."""
        self._open = True
        try:
            self._live.subscribe(self._address.topic)
            _connect(self._live, self._address.endpoint)
            return await self._replay() if self._address.replay_endpoint else []
        except zmq.ZMQError as error:
            raise self._failure(grpc.StatusCode.UNAVAILABLE, str(error)) from error

    async def _replay(self) -> list[KvBatch]:
        asking: Any = self._context.socket(zmq.DEALER)
        _connect(asking, self._address.replay_endpoint)
        batches: list[KvBatch] = []
        try:
            async with asyncio.timeout(REPLAY_TIMEOUT):
                await asking.send_multipart([b"", encode_number(0)])
                while True:
                    batch = self._read(await asking.recv_multipart(), replayed=True)
                    if batch is None:
                        break
                    batches.append(batch)
        except TimeoutError as error:
            problem = f"no replay from {self._address.replay_endpoint} within {REPLAY_TIMEOUT:g} s"
            raise self._failure(grpc.StatusCode.DEADLINE_EXCEEDED, problem) from error
        finally:
            asking.close(linger=0)
        self._last = batches[-1].sequence if batches else -1
        return batches

    def _read(self, frames: Sequence[bytes], *, replayed: bool = False) -> KvBatch | None:
        """The batch in a message; None at the end of a replay, and for what a replay has brought already."""
        try:
            _, written, payload = _three(frames)
            number = decode_number(written)
            if replayed and number == END_OF_REPLAY:
                return None
            if number <= self._last and not replayed:
                return None
            self._last = -1
            return decode_batch(payload, number, self._rank)
        except ZmqMessageError as error:
            raise UndecodableError(self._address.endpoint, grpc.StatusCode.INTERNAL, str(error)) from error

    def _failure(self, status: grpc.StatusCode, detail: str) -> EngineCallError:
        return EngineCallError(self._address.endpoint, status, detail)


def _connect(socket: Any, endpoint: str) -> None:
    socket.set_hwm(HIGH_WATER)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.IPV6, 1)
    socket.connect(endpoint)


def _three(frames: Sequence[bytes]) -> Sequence[bytes]:
    if len(frames) != _FRAMES:
        problem = f"a message of {len(frames)} frames, not {_FRAMES}"
        raise ZmqMessageError(problem)
    return frames

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from openengine_sidecar.actors.requests.call_home import HIGH_WATER, CallHomeConnection
from openengine_sidecar.launch.stack.ports import free_port
from openengine_sidecar.messages.dynamo.control import PROLOGUE, CallHome, encode_handshake
from tests.support.waiting import eventually
from tests.support.wire import LOOPBACK, frame

LARGE = bytes(16 * HIGH_WATER)
SOON = 0.05
AMPLE = 10.0


@dataclass
class Ear:
    """The frontend's end of one connection, read only when the test reads."""

    listener: socket.socket
    peer: socket.socket | None = None
    reasons: list[str] = field(default_factory=list)

    @property
    def address(self) -> CallHome:
        host, port = self.listener.getsockname()
        return CallHome(host=host, port=port, subject="s", context="c")

    async def dialled(self) -> CallHomeConnection:
        loop = asyncio.get_running_loop()
        call = await CallHomeConnection.dial(self.address, PROLOGUE, self.reasons.append, timeout=AMPLE)
        self.peer, _ = await loop.sock_accept(self.listener)
        self.peer.settimeout(0)
        opening = encode_handshake(self.address) + PROLOGUE
        assert await self.read(len(opening)) == opening
        return call

    async def read(self, size: int) -> bytes:
        """Reads so many bytes, fewer if the worker ends."""
        assert self.peer is not None
        read = b""
        while len(read) < size and (piece := await asyncio.get_running_loop().sock_recv(self.peer, size - len(read))):
            read += piece
        return read

    async def say(self, data: bytes) -> None:
        assert self.peer is not None
        await asyncio.get_running_loop().sock_sendall(self.peer, data)

    def reset(self) -> None:
        """Closes the connection with a reset."""
        assert self.peer is not None
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.peer.close()

    def close(self) -> None:
        self.listener.close()
        if self.peer is not None:
            self.peer.close()


@pytest.fixture
async def ear() -> AsyncIterator[Ear]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        listener.settimeout(0)
        listener.bind((LOOPBACK, 0))
        listener.listen()
        ear = Ear(listener)
        yield ear
        ear.close()


@pytest.mark.parametrize(
    "said", [frame(b'"kill"'), frame(b'"stop"'), frame(b'"sentinel"'), frame(b'"what"'), b"\xff" * 64]
)
async def test_whatever_the_frontend_says_means_stop(ear: Ear, said: bytes) -> None:
    call = await ear.dialled()
    await ear.say(said + frame(b'"kill"'))
    await eventually(lambda: ear.reasons, "told")
    call.write(b"nobody reads this")
    call.abandon()
    assert await ear.read(1) == b""
    assert len(ear.reasons) == 1
    assert not call.open


async def test_a_control_frame_may_come_in_pieces(ear: Ear) -> None:
    call = await ear.dialled()
    said = frame(b'"kill"')
    for number in range(len(said)):
        assert call.open
        await ear.say(said[number : number + 1])
    await eventually(lambda: ear.reasons, "told")
    call.abandon()


async def test_the_frontends_fin_is_told_once(ear: Ear) -> None:
    call = await ear.dialled()
    assert ear.peer is not None
    ear.peer.close()
    await eventually(lambda: ear.reasons, "told")
    await call.finish(timeout=AMPLE)
    assert len(ear.reasons) == 1


async def test_finish_waits_for_the_fin_and_delivers_all(ear: Ear) -> None:
    call = await ear.dialled()
    call.write(LARGE)
    finishing = asyncio.create_task(call.finish(timeout=AMPLE))
    assert await ear.read(len(LARGE)) == LARGE
    assert not finishing.done()
    assert ear.peer is not None
    ear.peer.shutdown(socket.SHUT_WR)
    assert await finishing
    assert await ear.read(1) == b""
    assert ear.reasons == []


async def test_finish_tells_what_was_said_after_the_frontend_left_from_what_was_not(ear: Ear) -> None:
    call = await ear.dialled()
    call.write(b"the end")
    assert ear.peer is not None
    ear.peer.close()
    await eventually(lambda: ear.reasons, "told")
    assert await call.finish(timeout=AMPLE)
    late = await ear.dialled()
    ear.peer.close()
    await eventually(lambda: len(ear.reasons) == 2, "told")
    late.write(b"the end")
    assert not await late.finish(timeout=AMPLE)


async def test_a_reset_behind_an_end_that_had_left_is_no_loss(ear: Ear) -> None:
    call = await ear.dialled()
    call.write(b"the end")
    finishing = asyncio.create_task(call.finish(timeout=AMPLE))
    await ear.read(3)
    ear.reset()
    assert await finishing


async def test_a_reset_before_the_end_had_left_loses_it(ear: Ear) -> None:
    call = await ear.dialled()
    call.write(LARGE)
    finishing = asyncio.create_task(call.finish(timeout=AMPLE))
    await ear.read(3)
    ear.reset()
    assert not await finishing


async def test_finish_is_patient_with_a_reader_that_makes_progress(ear: Ear) -> None:
    call = await ear.dialled()
    call.write(LARGE)
    finishing = asyncio.create_task(call.finish(timeout=AMPLE / 10))
    read = b""
    while len(read) < len(LARGE):
        read += await ear.read(min(HIGH_WATER, len(LARGE) - len(read)))
        await asyncio.sleep(0)
    await finishing
    assert read == LARGE
    assert await ear.read(1) == b""


async def test_finish_leaves_the_rest_to_the_kernel(ear: Ear) -> None:
    call = await ear.dialled()
    call.write(b"the end")
    await call.finish(timeout=SOON)
    assert await ear.read(100) == b"the end"


async def test_finish_gives_a_reader_up_that_reads_nothing(ear: Ear) -> None:
    call = await ear.dialled()
    call.write(LARGE)
    assert not await call.finish(timeout=SOON)
    await eventually(call._transport.is_closing, "closed")
    assert ear.reasons == []


async def test_flush_holds_a_writer_back_until_the_reader_reads(ear: Ear) -> None:
    call = await ear.dialled()
    call.write(LARGE)
    flushing = asyncio.create_task(call.flush())
    await asyncio.sleep(0)
    assert not flushing.done()
    await ear.read(len(LARGE))
    await flushing
    call.abandon()


@pytest.mark.parametrize("how", ["let_go", "abandon"])
async def test_nobody_is_held_back_at_the_end(ear: Ear, how: str) -> None:
    call = await ear.dialled()
    call.write(LARGE)
    flushing = asyncio.create_task(call.flush())
    await asyncio.sleep(0)
    getattr(call, how)()
    await flushing
    call.abandon()


async def test_nobody_there() -> None:
    address = CallHome(host=LOOPBACK, port=free_port(), subject="s", context="c")
    with pytest.raises(OSError, match="Connect call failed"):
        await CallHomeConnection.dial(address, PROLOGUE, pytest.fail, timeout=AMPLE)


async def test_nobody_takes_the_call(ear: Ear) -> None:
    ear.listener.listen(0)
    fillers = [socket.socket() for _ in range(2)]
    for filler in fillers:
        filler.settimeout(0)
        filler.connect_ex(ear.listener.getsockname())
    with pytest.raises(TimeoutError):
        await CallHomeConnection.dial(ear.address, PROLOGUE, pytest.fail, timeout=SOON)
    for filler in fillers:
        filler.close()

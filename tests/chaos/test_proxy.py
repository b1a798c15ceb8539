from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.proxy import LOOPBACK, Proxy
from tests.support.waiting import eventually


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(100):
            writer.write(piece)
    except ConnectionError:
        return
    finally:
        writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(_echo, LOOPBACK, 0)
    async with server, Proxy(server.sockets[0].getsockname()[1]) as proxy:
        yield proxy


@asynccontextmanager
async def _client(proxy: Proxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_bytes_pass_both_ways_and_so_does_the_end(proxy: Proxy) -> None:
    async with _client(proxy) as (reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.write_eof()
        assert await reader.read() == b""
    await eventually(lambda: proxy.connections == 0, "nothing is left")


async def test_what_is_held_waits_and_then_goes_on(proxy: Proxy) -> None:
    async with _client(proxy) as (reader, writer):
        proxy.hold()
        writer.write(b"hello")
        answer = asyncio.create_task(reader.readexactly(5))
        done, _ = await asyncio.wait([answer], timeout=0.05)
        assert not done
        proxy.release()
        assert await answer == b"hello"


async def test_a_cut_resets_what_stands_and_welcomes_the_next(proxy: Proxy) -> None:
    async with _client(proxy) as (reader, writer):
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        proxy.cut()
        assert await _ended(reader)
    async with _client(proxy) as (reader, writer):
        writer.write(b"b")
        assert await reader.readexactly(1) == b"b"


async def test_slow_bytes_arrive_in_order(proxy: Proxy) -> None:
    proxy.delay = 0.001
    async with _client(proxy) as (reader, writer):
        for number in range(10):
            writer.write(bytes([number]))
            await writer.drain()
        assert await reader.readexactly(10) == bytes(range(10))


async def test_nobody_behind_it_closes_the_connection() -> None:
    server = await asyncio.start_server(_echo, LOOPBACK, 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with Proxy(port) as proxy, _client(proxy) as (reader, _):
        assert await _ended(reader)


async def _ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True

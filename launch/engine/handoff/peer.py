"""The decode engine's end of the connector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from openengine_sidecar.launch.engine.handoff.messages import MAX_LINE, Op, Outcome, Reply, Wish, line_of, read_line
from openengine_sidecar.launch.engine.handoff.reference import PROTOCOL
from openengine_sidecar.proto.rev2 import error_pb2, kv_pb2

CONNECT_SECONDS = 5.0
NO_ENDPOINT = "the session names no endpoint of protocol tcp"


class TransferError(Exception):
    """A session cannot be had.

    Attributes:
        code: the EngineError code of it.
    """

    def __init__(self, code: error_pb2.ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


async def pull(session: kv_pb2.KvSessionRef, digest: int) -> int:
    """Take a session over from the engine that holds it; return how many tokens it holds.

    Raises:
        TransferError: nobody holds it, or the transfer failed.
    """
    async with _connected(session) as (reader, writer):
        reply = await _ask(reader, writer, Wish(op=Op.PULL, session_id=session.session_id, digest=str(digest)))
        if reply.outcome is Outcome.DATA:
            taken = await _ask(reader, writer, Wish(op=Op.TAKEN))
            if taken.outcome is Outcome.FREED:
                return reply.tokens
            reply = taken
    raise _refused(session, reply)


async def release(session: kv_pb2.KvSessionRef) -> Outcome:
    """Free a session at the engine that holds it, without taking it.

    Raises:
        TransferError: that engine does not answer.
    """
    async with _connected(session) as (reader, writer):
        return (await _ask(reader, writer, Wish(op=Op.RELEASE, session_id=session.session_id))).outcome


@asynccontextmanager
async def _connected(
    session: kv_pb2.KvSessionRef,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = _endpoint(session.endpoints)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, limit=MAX_LINE)
    except OSError as error:
        reason = f"the prefill engine at {host}:{port} does not answer: {error}"
        raise _failed(reason) from error
    try:
        yield reader, writer
    except ConnectionError as error:
        reason = f"the prefill engine at {host}:{port} broke off: {error}"
        raise _failed(reason) from error
    finally:
        writer.close()


def _endpoint(endpoints: Sequence[kv_pb2.KvEndpoint]) -> tuple[str, int]:
    for endpoint in endpoints:
        if endpoint.protocol == PROTOCOL:
            return endpoint.host, endpoint.port
    raise _failed(NO_ENDPOINT)


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wish: Wish) -> Reply:
    writer.write(line_of(wish))
    await writer.drain()
    return await read_line(reader, Reply)


def _refused(session: kv_pb2.KvSessionRef, reply: Reply) -> TransferError:
    if reply.outcome is Outcome.REFUSED:
        return _failed(reply.reason)
    reason = f"session {session.session_id!r} is {reply.outcome.value} at its prefill engine"
    return TransferError(error_pb2.ERROR_CODE_KV_SESSION_NOT_FOUND, reason)


def _failed(reason: str) -> TransferError:
    return TransferError(error_pb2.ERROR_CODE_KV_TRANSFER_FAILED, reason)

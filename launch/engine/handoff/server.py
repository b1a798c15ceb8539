"""The prefill engine's end of the connector."""

from __future__ import annotations

import asyncio

from openengine_sidecar.launch.engine.handoff.messages import (
    MAX_LINE,
    BrokenLineError,
    Op,
    Outcome,
    Reply,
    Wish,
    line_of,
    read_line,
)
from openengine_sidecar.launch.engine.handoff.sessions import SessionStore
from openengine_sidecar.messages.errors import ConfigurationError

OPTION = "--kv-port"


class TransferServer:
    """Hands sessions to decode engines that ask for them, one wish a connection."""

    def __init__(self, store: SessionStore, host: str, port: int) -> None:
        self._store = store
        self._host = host
        self._wanted = port
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self.port = 0
        self.broken = 0

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigurationError: the port is taken.
        """
        try:
            self._server = await asyncio.start_server(self._accept, self._host, self._wanted, limit=MAX_LINE)
        except OSError as error:
            raise ConfigurationError(OPTION, f"cannot listen on port {self._wanted}: {error}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop whoever is being served."""
        if self._server is not None:
            self._server.close()
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            wish = await read_line(reader, Wish)
            if wish.op is Op.RELEASE:
                writer.write(line_of(self._release(wish.session_id)))
            else:
                await self._hand_over(wish, reader, writer)
            await writer.drain()
        except ConnectionError:
            self.broken += 1
        finally:
            writer.close()

    def _release(self, session_id: str) -> Reply:
        if self._store.released(session_id):
            return Reply(outcome=Outcome.FREED)
        return self._absent(session_id)

    def _absent(self, session_id: str) -> Reply:
        return Reply(outcome=Outcome.GONE if self._store.over(session_id) else Outcome.UNKNOWN)

    async def _hand_over(self, wish: Wish, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = self._offer(wish)
        session = self._store.find(wish.session_id)
        if answer.outcome is Outcome.DATA and session is not None:
            await self._take_time(session.delay, reader)
        writer.write(line_of(answer))
        await writer.drain()
        if answer.outcome is Outcome.DATA and (await read_line(reader, Wish)).op is Op.TAKEN:
            freed = self._store.taken(wish.session_id)
            writer.write(line_of(Reply(outcome=Outcome.FREED) if freed else self._absent(wish.session_id)))

    def _offer(self, wish: Wish) -> Reply:
        session = self._store.find(wish.session_id)
        if session is None:
            return self._absent(wish.session_id)
        if session.refusal:
            return Reply(outcome=Outcome.REFUSED, reason=session.refusal)
        if wish.digest != str(session.digest):
            return Reply(outcome=Outcome.REFUSED, reason="the session belongs to another prompt")
        return Reply(outcome=Outcome.DATA, tokens=session.tokens)

    async def _take_time(self, delay: float, reader: asyncio.StreamReader) -> None:
        """Wait as long as the transfer takes; a decode engine that hangs up meanwhile ends it."""
        if delay <= 0:
            return
        hung_up = asyncio.ensure_future(reader.read(1))
        try:
            done, _ = await asyncio.wait((hung_up,), timeout=delay)
        finally:
            hung_up.cancel()
            await asyncio.gather(hung_up, return_exceptions=True)
        if done:
            problem = "the decode engine hung up during the transfer"
            raise BrokenLineError(problem)

"""The frontend's side of the wire, by hand: what the stock frontend never does, a test can do here."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
import nats
from nats.aio.client import Client

LOOPBACK = "127.0.0.1"
PREFIX = struct.Struct(">QQQ")
ACK_SECONDS = 10.0
READ_AHEAD = 16 * 1024


def frame(header: bytes, body: bytes = b"") -> bytes:
    return PREFIX.pack(len(header), len(body), 0) + header + body


def request_body(token_ids: list[int], *, model: str = "", max_tokens: int | None = 16, **rest: Any) -> dict[str, Any]:
    """The least a preprocessed request holds, and whatever else is given."""
    return {
        "model": model,
        "token_ids": token_ids,
        "stop_conditions": {"max_tokens": max_tokens, **rest.pop("stop_conditions", {})},
        "sampling_options": {},
        "output_options": {},
        "eos_token_ids": [],
        "mdc_sum": None,
        "annotations": [],
        "router_config_override": None,
        "routing": {},
        **rest,
    }


@dataclass(slots=True)
class Caller:
    """One request's ear: what the worker said on the connections it dialled, of which there should be one."""

    subject: str = field(default_factory=lambda: str(uuid.uuid4()))
    dials: int = 0
    prologue: dict[str, Any] | None = None
    items: list[dict[str, Any]] = field(default_factory=list)
    finals: int = 0
    sentinel: bool = False
    trailing: bytes = b""
    listening: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    writer: asyncio.StreamWriter | None = None
    codec: str = "msgpack"

    def __post_init__(self) -> None:
        self.listening.set()

    @property
    def complete(self) -> bool:
        return self.finals > 0

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [item["error"] for item in self.items if item.get("event") == "error"]

    @property
    def error(self) -> dict[str, Any] | None:
        return next(iter(self.errors), None)

    @property
    def refusal(self) -> dict[str, Any] | None:
        """The typed error of a prologue that is not clean."""
        return None if self.prologue is None else self.prologue.get("typed_error")

    @property
    def ended_once(self) -> bool:
        """Whether it was told in full, by one connection, with one end and nothing behind it."""
        ends = (0, False) if self.refusal is not None else (1, True)
        return (self.dials, (self.finals, self.sentinel), self.trailing) == (1, ends, b"")

    @property
    def token_ids(self) -> list[int]:
        return [token for item in self.items for token in item.get("data", {}).get("token_ids", ())]

    def kill(self) -> None:
        assert self.writer is not None
        self.writer.write(frame(b'"kill"'))
        self.writer.close()


class CallHomeServer:
    """Takes the connections that a worker dials."""

    def __init__(self) -> None:
        self._callers: dict[str, Caller] = {}
        self._server: asyncio.Server
        self._readers: set[asyncio.Task[None]] = set()

    def listening_socket(self) -> socket.socket:
        """Where it will listen."""
        return socket.create_server((LOOPBACK, 0))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, sock=self.listening_socket(), limit=READ_AHEAD)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for caller in self._callers.values():
            caller.listening.set()
            if caller.writer is not None:
                caller.writer.close()
        await asyncio.gather(*self._readers)
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def header(self, caller: Caller, *, address: str | None = None, **changes: Any) -> bytes:
        info = {
            "address": address or self.address,
            "subject": caller.subject,
            "context": caller.subject,
            "stream_type": "response",
        }
        caller.codec = changes.get("payload_codec", caller.codec)
        header = {
            "id": caller.subject,
            "request_type": "single_in",
            "response_type": "many_out",
            "payload_codec": "msgpack",
            "connection_info": {"transport": "tcp_server", "info": json.dumps(info)},
            **changes,
        }
        return json.dumps(header).encode()

    def caller(self) -> Caller:
        caller = Caller()
        self._callers[caller.subject] = caller
        return caller

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._readers.add(task)
        caller = None
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                header, _ = await _read(reader)
                caller = self._callers[json.loads(header)["subject"]]
                caller.dials += 1
                caller.writer = writer
                caller.prologue = json.loads((await _read(reader))[0])
                while not caller.sentinel and caller.refusal is None:
                    await caller.listening.wait()
                    _take(caller, *await _read(reader))
                writer.write_eof()
                caller.trailing = await reader.read()
        finally:
            writer.close()
            if caller is not None:
                caller.closed.set()
            self._readers.discard(task)


class RawFrontend(CallHomeServer):
    """Sends requests to a worker's subject, too."""

    def __init__(self, nats_url: str) -> None:
        super().__init__()
        self._nats_url = nats_url
        self._nats: Client

    async def __aenter__(self) -> Self:
        self._nats = await nats.connect(self._nats_url)
        return await super().__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await self._nats.close()
        await super().__aexit__(*error)

    async def send(self, subject: str, payload: bytes) -> bytes:
        """Sends a whole message and returns the acknowledgement."""
        reply = await self._nats.request(subject, payload, timeout=ACK_SECONDS, headers={"request-id": "raw"})
        return reply.data

    async def ask(self, subject: str, body: dict[str, Any], **changes: Any) -> tuple[bytes, Caller]:
        """Sends a well-formed request; returns the acknowledgement and the one who listens."""
        caller = self.caller()
        payload = frame(self.header(caller, **changes), msgspec.msgpack.encode(body))
        return await self.send(subject, payload), caller


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    header_length, body_length, _ = PREFIX.unpack(await reader.readexactly(PREFIX.size))
    return await reader.readexactly(header_length), await reader.readexactly(body_length)


def _take(caller: Caller, header: bytes, body: bytes) -> None:
    if header == b'"sentinel"':
        caller.sentinel = True
        return
    item = msgspec.json.decode(body) if caller.codec == "json" else msgspec.msgpack.decode(body)
    caller.finals += item["complete_final"]
    if "data" in item:
        caller.items.append(item["data"])

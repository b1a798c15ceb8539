"""What the engine saw: counters, one record a request, and the requests themselves, for tests and people outside."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
from google.protobuf import json_format

from openengine_sidecar.proto.rev2 import generation_pb2

KEPT_RECORDS = 4096


@dataclass(slots=True)
class SessionCounts:
    """KV sessions by what became of them.

    Attributes:
        created: handed out by this prefill engine; then
        taken: by a decode engine,
        released: given up by an abort, here or at the decode engine,
        expired: past the engine's own time-out,
        lost: forgotten by script.
        pulled: taken over by this decode engine from the one that held them.
        given_back: released by this decode engine, untaken.
        failed: that this decode engine could not take over.
    """

    created: int = 0
    taken: int = 0
    released: int = 0
    expired: int = 0
    lost: int = 0
    pulled: int = 0
    given_back: int = 0
    failed: int = 0

    @property
    def live(self) -> int:
        """Number of sessions held now."""
        return self.created - self.taken - self.released - self.expired - self.lost

    def as_dict(self) -> dict[str, int]:
        """Render as JSON-ready values."""
        return {**asdict(self), "live": self.live}


@dataclass(slots=True)
class RequestRecord:
    """One accepted request.

    Attributes:
        ended: None while it runs; then the finish reasons of its outputs joined by a comma, `error:CODE`,
            `status:CODE`, `cancelled` (the client cancelled the call) or `broken` (a fault closed it early).
        cancelled: whether the client cancelled the call before the terminal event was sent; true also when an
            abort had come first.
        aborts: Abort calls that named it while it ran or afterwards.
        session: id of the KV session that it handed out or came with.
    """

    request_id: str
    model: str
    prompt_tokens: int
    rank: int
    priority: int | None = None
    tokens: int = 0
    events: int = 0
    cached_tokens: int = 0
    ended: str | None = None
    cancelled: bool = False
    aborts: int = 0
    session: str | None = None


@dataclass(slots=True)
class Received:
    """One GenerateRequest as it arrived, with the call's ASCII metadata."""

    request: generation_pb2.GenerateRequest
    headers: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Render as JSON-ready values: the request in its proto JSON form with the schema's field names."""
        request = json_format.MessageToDict(self.request, preserving_proto_field_name=True)
        return {"request": request, "headers": dict(self.headers)}


@dataclass(slots=True)
class Stats:
    """Counters of one engine.

    Attributes:
        requests: Generate calls that were accepted.
        active: accepted and not ended, queued ones included.
        finished: outputs ended, by finish reason, and errors.
        refused: Generate calls refused before acceptance, by status.
        cancels: streams cancelled by their client before the terminal event.
        abort_calls: Abort calls by request id.
        abort_outcomes: answers to them, by name.
        aborted: distinct requests that an Abort really stopped.
        session_aborts: answers to Abort calls by KV session, by name.
        sessions: what became of KV sessions.
        tokens: output tokens sent.
        calls: calls by method name.
        faults: faults that took part in a request, by name.
        records: the last requests by id, oldest first.
        received: the last GenerateRequests, refused ones included, oldest first.
    """

    keep_requests: int = 64
    requests: int = 0
    active: int = 0
    finished: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    cancels: int = 0
    abort_calls: int = 0
    abort_outcomes: Counter[str] = field(default_factory=Counter[str])
    aborted: int = 0
    session_aborts: Counter[str] = field(default_factory=Counter[str])
    sessions: SessionCounts = field(default_factory=SessionCounts)
    tokens: int = 0
    calls: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    records: dict[str, RequestRecord] = field(default_factory=dict[str, RequestRecord])
    received: deque[Received] = field(init=False)
    _waiters: list[tuple[Callable[[Stats], bool], asyncio.Future[None]]] = field(
        default_factory=list[tuple[Callable[["Stats"], bool], asyncio.Future[None]]], repr=False
    )

    def __post_init__(self) -> None:
        self.received = deque(maxlen=self.keep_requests)

    def record(self, record: RequestRecord) -> None:
        """Count an accepted request."""
        self.requests += 1
        self.active += 1
        self.records[record.request_id] = record
        if len(self.records) > KEPT_RECORDS:
            del self.records[next(iter(self.records))]
        self.changed()

    @property
    def awaited(self) -> bool:
        """Whether anybody waits for a change."""
        return bool(self._waiters)

    def changed(self) -> None:
        """Wake whoever waits for the counters to look in some way."""
        if not self._waiters:
            return
        for condition, waiter in self._waiters:
            if not waiter.done() and condition(self):
                waiter.set_result(None)
        self._waiters = [entry for entry in self._waiters if not entry[1].done()]

    async def until(self, condition: Callable[[Stats], bool]) -> None:
        """Wait until the counters satisfy `condition`, looked at on every change. Put a timeout around it."""
        if condition(self):
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((condition, waiter))
        await waiter

    def fingerprint(self) -> tuple[int, ...]:
        """Return a few numbers of which one differs once anything has happened."""
        counters = (self.calls, self.refused, self.finished, self.abort_outcomes, self.sessions.as_dict())
        return (self.requests, self.active, self.tokens, self.cancels, *(sum(found.values()) for found in counters))

    def as_dict(self) -> dict[str, Any]:
        """Render every counter and the records as JSON-ready values."""
        return {
            "requests": self.requests,
            "active": self.active,
            "finished": dict(self.finished),
            "refused": dict(self.refused),
            "cancels": self.cancels,
            "aborts": {"calls": self.abort_calls, "logical": self.aborted, "outcomes": dict(self.abort_outcomes)},
            "session_aborts": dict(self.session_aborts),
            "sessions": self.sessions.as_dict(),
            "tokens": self.tokens,
            "calls": dict(self.calls),
            "faults": dict(self.faults),
            "records": msgspec.to_builtins(list(self.records.values())),
        }

    def received_as_dicts(self) -> list[dict[str, Any]]:
        """Render the last requests, oldest first."""
        return [entry.as_dict() for entry in self.received]

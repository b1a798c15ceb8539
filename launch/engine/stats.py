"""What the engine saw: counters, one record a request, and the requests themselves, for tests and people outside."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from google.protobuf import json_format

from openengine_sidecar.proto.rev2 import generation_pb2

KEPT_RECORDS = 4096


@dataclass(slots=True)
class RequestRecord:
    """One accepted request.

    Attributes:
        ended: None while it runs; then the finish reasons of its outputs joined by a comma, `error:CODE`,
            `status:CODE`, `cancelled` (the client cancelled the call) or `broken` (a fault closed it early).
        cancelled: whether the client cancelled the call before the terminal event was sent; true also when an
            abort had come first.
        aborts: Abort calls that named it while it ran or afterwards.
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
        counters = (self.calls, self.refused, self.finished, self.abort_outcomes)
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
            "tokens": self.tokens,
            "calls": dict(self.calls),
            "faults": dict(self.faults),
            "records": msgspec.to_builtins(list(self.records.values())),
        }

    def received_as_dicts(self) -> list[dict[str, Any]]:
        """Render the last requests, oldest first."""
        return [entry.as_dict() for entry in self.received]

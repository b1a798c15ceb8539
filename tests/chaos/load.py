"""Clients at the stock frontend that never stop asking, and what became of each request."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import aiohttp

from tests.support.openai import CHAT, Answer, OpenAIClient

REQUEST_SECONDS: Final = 90.0
REFUSED_PAUSE: Final = 0.1
HANG_UP_SHARE: Final = 0.2
LONG_SHARE: Final = 0.3


class End(StrEnum):
    """How a request ended."""

    ANSWERED = "answered"
    ERROR = "clean error"
    HUNG_UP = "hung up by us"
    BROKEN = "ended without an end"
    TORN = "connection torn"
    SILENT = "never ended"
    WRONG = "wrong answer"


UNAVAILABLE: Final = frozenset({404, 429, 503})
"""Codes that say by themselves why: no worker is listed, or none that can serve."""
VIOLATIONS: Final = frozenset({End.BROKEN, End.TORN, End.SILENT, End.WRONG})


@dataclass(frozen=True, slots=True)
class Request:
    """What one client asks; the engine answers by repeating the prompt, so every answer is known beforehand.

    Attributes:
        limit: most tokens, for a request that runs into them; None for one that is answered in full.
        pieces: pieces of text after which the client hangs up; None for one that listens to the end.
    """

    prompt: str
    limit: int | None = None
    pieces: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Of the body."""
        return {"max_tokens": 2_000} if self.limit is None else {"max_tokens": self.limit, "ignore_eos": True}

    def fault(self, answer: Answer) -> str:
        """What is wrong with a complete answer; empty when nothing is."""
        if self.limit is not None:
            got = (answer.finish_reason, answer.completion_tokens)
            return "" if got == ("length", self.limit) else f"{got} instead of {self.limit} tokens"
        text = f'You said: "{self.prompt}".'
        return "" if (answer.finish_reason, answer.text) == ("stop", text) else f"{answer.text!r} instead of {text!r}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request and its end; times are seconds on the monotonic clock."""

    began: float
    ended: float
    end: End
    detail: str = ""
    tokens: int = 0


@dataclass(slots=True)
class Load:
    """`streams` clients, each with one request at a time."""

    client: OpenAIClient
    streams: int
    seed: int
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    _stopped: bool = False
    _clients: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def start(self) -> None:
        """Begins to ask."""
        self._clients = [asyncio.create_task(self._client(number)) for number in range(self.streams)]

    async def stop(self) -> None:
        """Lets every request that was asked come to its end, and asks no more."""
        self._stopped = True
        await asyncio.gather(*self._clients)

    @property
    def ends(self) -> Counter[End]:
        """Requests by how they ended."""
        return Counter(outcome.end for outcome in self.outcomes)

    @property
    def tokens(self) -> int:
        """Tokens of complete answers."""
        return sum(outcome.tokens for outcome in self.outcomes)

    async def _client(self, number: int) -> None:
        draw = random.Random(self.seed * 10_007 + number)  # noqa: S311 - a load, not a secret
        turn = 0
        while not self._stopped:
            turn += 1
            outcome = await ask(self.client, _request(draw, f"client {number} turn {turn}"))
            self.outcomes.append(outcome)
            if outcome.end is End.ERROR:
                await asyncio.sleep(REFUSED_PAUSE)


def _request(draw: random.Random, name: str) -> Request:
    words = " and so on" * draw.randrange(8)
    long = draw.random() < LONG_SHARE
    limit = draw.randrange(100, 300) if long else None
    pieces = draw.randrange(1, 15) if draw.random() < HANG_UP_SHARE else None
    return Request(f"{name}{words}", limit, pieces)


async def ask(client: OpenAIClient, request: Request, *, timeout: float = REQUEST_SECONDS) -> Outcome:
    """Asks once and says how it ended."""
    began = time.monotonic()
    answer = Answer()
    try:
        async with asyncio.timeout(timeout):
            end, detail = await _follow(client, request, answer)
    except TimeoutError:
        end, detail = End.SILENT, f"{len(answer.pieces)} pieces in {timeout:g} s"
    except aiohttp.ClientError as error:
        end, detail = End.TORN, repr(error)
    tokens = answer.completion_tokens if answer.usage else 0
    name = f"{request.prompt}: " if end in VIOLATIONS else ""
    return Outcome(began, time.monotonic(), end, f"{name}{detail}", tokens)


async def _follow(client: OpenAIClient, request: Request, answer: Answer) -> tuple[End, str]:
    finishes = 0
    async with client.streaming(CHAT, client.chat_body(request.prompt, **request.options)) as events:
        async for event in events:
            answer.take(event)
            finishes += sum(1 for choice in event.get("choices", ()) if choice.get("finish_reason"))
            if request.pieces is not None and len(answer.pieces) >= request.pieces:
                return End.HUNG_UP, ""
    return _judge(request, answer, finishes)


def _judge(request: Request, answer: Answer, finishes: int) -> tuple[End, str]:
    if answer.error is not None:
        return (End.ERROR, _told(answer)) if not finishes else (End.WRONG, f"finished, then {answer.error}")
    if not answer.done or not finishes:
        return End.BROKEN, f"{len(answer.pieces)} pieces, finish reason {answer.finish_reason}, done {answer.done}"
    if finishes > 1:
        return End.WRONG, f"finished {finishes} times"
    fault = request.fault(answer)
    return (End.WRONG, fault) if fault else (End.ANSWERED, "")


def _told(answer: Answer) -> str:
    return str(answer.status) if answer.status in UNAVAILABLE else f"{answer.status} {answer.error}"

"""Many ordinary requests through one worker, every fifth of them cancelled, to see what it keeps of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.arena import Arena
from tests.chaos.load import Outcome, Request, ask
from tests.chaos.verdict import Leak, engine_problems, rested
from tests.support.openai import OpenAIClient

CANCELLED: Final = Request("never to be heard out", limit=2_000, pieces=3)
_EVERY: Final = 5


@dataclass(frozen=True, slots=True)
class Endured:
    """What came of it: every outcome, what the worker held after the warm-up and at the end, and problems."""

    outcomes: list[Outcome]
    leak: Leak
    problems: list[str]


async def endure(directory: Path, *, warm_up: int, requests: int, tokens: int, streams: int) -> Endured:
    """Asks `warm_up` and then `requests` requests, `streams` at a time; those heard out have `tokens` tokens each."""
    async with Arena(directory, token_delay_ms=0.0, health=()) as arena:
        await arena.bring_up(1)
        station = arena.stations[0]
        async with arena.client() as client:
            await _ask_all(client, warm_up, tokens, streams)
            before = await rested(station)
            outcomes = await _ask_all(client, requests, tokens, streams)
        leak = Leak(before, await rested(station))
        return Endured(outcomes, leak, [*leak.problems("worker"), *await engine_problems(station)])


async def _ask_all(client: OpenAIClient, count: int, tokens: int, streams: int) -> list[Outcome]:
    outcomes: list[Outcome] = []
    asked = (_request(number, tokens) for number in range(count))
    await asyncio.gather(*(_client(client, asked, outcomes) for _ in range(streams)))
    return outcomes


def _request(number: int, tokens: int) -> Request:
    return Request(f"request {number}", limit=tokens) if number % _EVERY else CANCELLED


async def _client(client: OpenAIClient, asked: Iterator[Request], outcomes: list[Outcome]) -> None:
    for request in asked:
        outcomes.append(await ask(client, request))  # noqa: PERF401 - shared by all clients, who end at different times

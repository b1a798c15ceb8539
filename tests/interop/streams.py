from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.support.openai import CHAT, Answer, OpenAIClient
from tests.support.waiting import eventually

PACE: Final = ("--token-delay-ms", "20")
FOREVER: Final[dict[str, Any]] = {"max_tokens": 30_000, "ignore_eos": True}


async def begun(
    client: OpenAIClient, count: int, *, prompt: str = "hello", **options: Any
) -> list[tuple[asyncio.Task[Answer], Answer]]:
    """Starts streams and waits until each has brought text; the answers grow while they run."""
    growing = [Answer() for _ in range(count)]
    body = client.chat_body(prompt, **options)
    tasks = [asyncio.create_task(_follow(client, body, answer)) for answer in growing]
    await eventually(lambda: all(answer.pieces for answer in growing), "all streams flow")
    return list(zip(tasks, growing, strict=True))


async def _follow(client: OpenAIClient, body: dict[str, Any], answer: Answer) -> Answer:
    async for event in client.events(CHAT, body):
        answer.take(event)
    return answer

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass(slots=True)
class Answer:
    """One answer, however it came: `status` is HTTP's, or the in-band code of a stream that failed."""

    status: int = 200
    text: str = ""
    pieces: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    done: bool = False

    @property
    def prompt_tokens(self) -> int:
        return self._count("prompt_tokens")

    @property
    def completion_tokens(self) -> int:
        return self._count("completion_tokens")

    @property
    def total_tokens(self) -> int:
        return self._count("total_tokens")

    def _count(self, kind: str) -> int:
        assert self.usage is not None, f"no usage: {self}"
        return int(self.usage[kind])

    def take(self, event: dict[str, Any]) -> None:
        """Adds one event of a stream."""
        if event.get("done"):
            self.done = True
        if error := event.get("error"):
            self.error, self.status = error, error.get("code", 500)
        self.usage = event.get("usage") or self.usage
        for choice in event.get("choices", ()):
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            piece = choice["delta"].get("content") if "delta" in choice else choice.get("text")
            if piece:
                self.pieces.append(piece)
                self.text += piece


class OpenAIClient:
    """An OpenAI client with the manners tests need: it can hang up, and it shows what came when."""

    def __init__(self, url: str, model: str = "") -> None:
        self.url = url
        self.model = model
        self._session = aiohttp.ClientSession(
            url,
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def models(self) -> list[str]:
        async with self._session.get("/v1/models") as reply:
            return [model["id"] for model in (await reply.json())["data"]] if reply.status == 200 else []

    async def lists(self) -> bool:
        return self.model in await self.models()

    def chat_body(self, prompt: str, **options: Any) -> dict[str, Any]:
        return {"model": self.model, "messages": [{"role": "user", "content": prompt}], **options}

    async def chat(self, prompt: str, **options: Any) -> Answer:
        return await self._unary(CHAT, self.chat_body(prompt, **options))

    async def complete(self, prompt: str, **options: Any) -> Answer:
        return await self._unary(COMPLETIONS, {"model": self.model, "prompt": prompt, **options})

    async def stream_chat(self, prompt: str, **options: Any) -> Answer:
        return await self.whole(self.events(CHAT, self.chat_body(prompt, **options)))

    async def stream_completion(self, prompt: str, **options: Any) -> Answer:
        return await self.whole(self.events(COMPLETIONS, {"model": self.model, "prompt": prompt, **options}))

    async def hang_up_after(self, pieces: int, prompt: str, **options: Any) -> Answer:
        """Streams a chat and closes the connection on the given piece of text."""
        answer = Answer()
        async with self.streaming(CHAT, self.chat_body(prompt, **options)) as events:
            async for event in events:
                answer.take(event)
                if len(answer.pieces) >= pieces:
                    break
        return answer

    async def whole(self, events: AsyncIterator[dict[str, Any]]) -> Answer:
        answer = Answer()
        async for event in events:
            answer.take(event)
        return answer

    async def events(self, path: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Every event of a stream; the last of a complete one is `{"done": True}`."""
        async with self.streaming(path, body) as events:
            async for event in events:
                yield event

    @asynccontextmanager
    async def streaming(self, path: str, body: dict[str, Any]) -> AsyncGenerator[AsyncIterator[dict[str, Any]]]:
        """The events of a stream; leaving the context closes the connection."""
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        async with self._session.post(path, json=asked) as reply:
            yield _events(reply)
            reply.close()

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any] | str]:
        async with self._session.post(path, json=body) as reply:
            text = await reply.text()
            return reply.status, json.loads(text) if text.startswith("{") else text

    async def _unary(self, path: str, body: dict[str, Any]) -> Answer:
        status, reply = await self.post(path, body)
        if status != 200 or isinstance(reply, str):
            return Answer(status=status, error=reply if isinstance(reply, dict) else {"message": reply})
        choice = reply["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        return Answer(text=text or "", finish_reason=choice["finish_reason"], usage=reply.get("usage"), done=True)


async def _events(reply: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    if reply.status != 200:
        text = await reply.text()
        yield {"error": {"code": reply.status, "message": text}}
        return
    async for line in reply.content:
        if not line.startswith(b"data: "):
            continue
        payload = line[6:].strip()
        yield {"done": True} if payload == b"[DONE]" else json.loads(payload)

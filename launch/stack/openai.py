"""The few calls a demo makes at an OpenAI endpoint: list the models, stream one chat answer."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec

from openengine_sidecar.launch.stack.errors import ChatError

_PROBE_SECONDS: Final = 2.0
_CHAT_SECONDS: Final = 300.0
_DATA: Final = b"data: "
_DONE: Final = b"[DONE]"


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta
    finish_reason: str | None = None


class _Failure(msgspec.Struct):
    message: str
    code: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: _Failure | None = None


class _Model(msgspec.Struct):
    id: str


class _Listing(msgspec.Struct):
    data: list[_Model]


_decode_chunk: Final = msgspec.json.Decoder(_Chunk).decode
_decode_listing: Final = msgspec.json.Decoder(_Listing).decode


@dataclass(slots=True)
class Summary:
    """What a streamed answer cost. Times are seconds on one monotonic clock.

    Attributes:
        prompt_tokens: as the endpoint counted them; None when it did not say.
        completion_tokens: likewise.
        finish_reason: `stop`, `length`, ...; None when the stream ended without one.
    """

    asked: float = field(default_factory=time.monotonic)
    first: float | None = None
    last: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None

    def __str__(self) -> str:
        if self.first is None or self.last is None:
            return "no token came"
        line = f"{self.completion_tokens or '?'} tokens, first after {(self.first - self.asked) * 1000:.0f} ms"
        if self.completion_tokens and self.last > self.first:
            line += f", then {(self.completion_tokens - 1) / (self.last - self.first):.1f} tokens/s"
        return f"{line} (prompt {self.prompt_tokens or '?'} tokens, finish reason {self.finish_reason})"


@dataclass(frozen=True, slots=True)
class OpenAIEndpoint:
    """A server of the OpenAI API, plain HTTP, no proxy in between."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Where people point their clients."""
        return f"http://{self.host}:{self.port}"

    def is_live(self) -> bool:
        """Whether the HTTP server answers its liveness probe."""
        return self._get("/live") is not None

    def models(self) -> list[str]:
        """The ids at `/v1/models`; empty also when nobody answers."""
        body = self._get("/v1/models")
        return [] if body is None else [model.id for model in _decode_listing(body).data]

    def chat(self, model: str, prompt: str, *, max_tokens: int, summary: Summary) -> Iterator[str]:
        """Yields the pieces of a streamed answer and fills in `summary` on the way.

        Raises:
            ChatError: the endpoint refused, or broke off.
        """
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        for chunk in self._events("/v1/chat/completions", body):
            if chunk.usage is not None:
                summary.prompt_tokens = chunk.usage.prompt_tokens
                summary.completion_tokens = chunk.usage.completion_tokens
            for choice in chunk.choices:
                summary.finish_reason = choice.finish_reason or summary.finish_reason
                if choice.delta.content:
                    summary.last = time.monotonic()
                    summary.first = summary.first or summary.last
                    yield choice.delta.content

    def _get(self, path: str) -> bytes | None:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_PROBE_SECONDS)
        with closing(connection):
            try:
                connection.request("GET", path)
                with connection.getresponse() as answer:
                    return answer.read() if answer.status == HTTPStatus.OK else None
            except (OSError, http.client.HTTPException):
                return None

    def _events(self, path: str, body: dict[str, Any]) -> Iterator[_Chunk]:
        url = self.url + path
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_CHAT_SECONDS)
        with closing(connection):
            try:
                connection.request("POST", path, msgspec.json.encode(body), {"Content-Type": "application/json"})
                with connection.getresponse() as answer:
                    if answer.status != HTTPStatus.OK:
                        refusal = answer.read().decode(errors="replace")
                        raise ChatError(url, f"HTTP {answer.status}: {refusal}", status=answer.status)
                    yield from _parse(answer, url)
            except (OSError, http.client.HTTPException) as error:
                raise ChatError(url, f"the answer broke off: {error!r}") from error


def _parse(lines: http.client.HTTPResponse, url: str) -> Iterator[_Chunk]:
    for line in lines:
        if not line.startswith(_DATA):
            continue
        payload = line[len(_DATA) :].strip()
        if payload == _DONE:
            return
        chunk = _decode_chunk(payload)
        if chunk.error is not None:
            raise ChatError(url, f"the answer broke off: {chunk.error.message}", status=chunk.error.code)
        yield chunk
    raise ChatError(url, "the answer broke off before its end")

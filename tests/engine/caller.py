from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import grpc.aio
from google.protobuf.message import Message

from openengine_sidecar.launch.engine import EngineOptions, ReferenceEngine
from openengine_sidecar.launch.engine.service import METHODS, SERVICE
from openengine_sidecar.proto.rev2 import generation_pb2

Request = generation_pb2.GenerateRequest
Response = generation_pb2.GenerateResponse
BOS, EOS, USER, ASSISTANT, TURN_END, IMAGE = 256, 257, 259, 260, 262, 263


def chat(text: str) -> list[int]:
    return [BOS, USER, *text.encode(), TURN_END, ASSISTANT]


def ask(text: str = "hello", request_id: str = "r", **fields: Any) -> Request:
    return Request(request_id=request_id, token_ids={"ids": chat(text)}, **fields)


@dataclass
class Answer:
    events: list[Response] = field(default_factory=list)
    status: grpc.StatusCode = grpc.StatusCode.OK
    reason: str = ""

    @property
    def kinds(self) -> list[str | None]:
        return [event.WhichOneof("event") for event in self.events]

    def text(self, index: int = 0) -> str:
        return "".join(e.token.text for e in self.events if e.HasField("token") and e.token.output_index == index)

    def infos(self, index: int = 0) -> list[generation_pb2.TokenInfo]:
        mine = [event.token for event in self.events if event.HasField("token") and event.token.output_index == index]
        return [info for token in mine for info in token.tokens]

    def ids(self, index: int = 0) -> list[int]:
        return [info.token_id for info in self.infos(index)]

    def finished(self, index: int = 0) -> generation_pb2.GenerationFinished:
        [found] = [e.finished for e in self.events if e.HasField("finished") and e.finished.output_index == index]
        return found

    @property
    def last(self) -> Response:
        return self.events[-1]


class Caller:
    def __init__(self, address: str) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.aio.insecure_channel(address, options=options)

    async def __aenter__(self) -> Self:
        await self.channel.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.channel.close(None)

    def stream(self, method: str, request: Message, reply: type[Message], **options: Any) -> Any:
        call: Any = self.channel.unary_stream(
            f"/{SERVICE}/{method}",
            request_serializer=METHODS[method].request.SerializeToString,
            response_deserializer=reply.FromString,
        )
        return call(request, **options)

    async def unary(self, method: str, request: Message, reply: type[Any], **options: Any) -> Any:
        call: Any = self.channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=METHODS[method].request.SerializeToString,
            response_deserializer=reply.FromString,
        )
        return await call(request, **options)

    def start(self, request: Request, **options: Any) -> Any:
        return self.stream("Generate", request, Response, **options)

    async def generate(self, request: Request, **options: Any) -> Answer:
        answer = Answer()
        try:
            async for event in self.start(request, **options):
                answer.events.append(event)
        except grpc.aio.AioRpcError as error:
            answer.status, answer.reason = error.code(), error.details() or ""
        return answer


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[ReferenceEngine, Caller]]:
    async with ReferenceEngine(EngineOptions(**options)) as engine, Caller(engine.address) as caller:
        yield engine, caller

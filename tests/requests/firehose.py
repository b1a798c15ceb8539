from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from openengine_sidecar.launch.engine.stats import RequestRecord, Stats
from openengine_sidecar.proto.rev2.generation_pb2 import GenerateResponse, TokenInfo, TokenOutput
from openengine_sidecar.proto.rev2.lifecycle_pb2 import (
    ABORT_STATUS_ABORTED,
    HEALTH_STATE_READY,
    AbortResponse,
    HealthResponse,
)
from openengine_sidecar.proto.rev2.model_pb2 import ModelInfo
from openengine_sidecar.proto.rev2_dialect import Method
from tests.proto.engine import Engine, answering, discoverable, refusing, serving

TOKENS = 1_000
"""Tokens in every event."""


class Firehose:
    """An engine that is faster than any reader: every request gets events without end, as fast as they are taken."""

    def __init__(self) -> None:
        self.stats = Stats()
        self.events = 0
        self._stopped: set[str] = set()
        self._tokens = [TokenInfo(token_id=number) for number in range(TOKENS)]

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Engine]:
        handlers = {
            **discoverable(model=ModelInfo(model_id="m", supports_token_ids_input=True)),
            Method.GET_KV_CONNECTOR_INFO: refusing(grpc.StatusCode.UNIMPLEMENTED),
            Method.HEALTH: answering(HealthResponse(state=HEALTH_STATE_READY)),
            Method.GENERATE: self._generate,
            Method.ABORT: self._abort,
        }
        async with serving(handlers) as engine:
            yield engine

    async def _generate(self, request: Any, _context: Any) -> AsyncIterator[bytes]:
        record = self.stats.records[request.request_id] = RequestRecord(request.request_id, "m", 1, 0)
        token = TokenOutput(output_index=0, tokens=self._tokens)
        event = GenerateResponse(request_id=request.request_id, token=token).SerializeToString()
        try:
            while request.request_id not in self._stopped:
                self.events += 1
                yield event
        finally:
            record.ended = "stopped"

    async def _abort(self, request: Any, _context: Any) -> AbortResponse:
        self.stats.calls["Abort"] += 1
        self._stopped.add(request.request_id)
        return AbortResponse(status=ABORT_STATUS_ABORTED)

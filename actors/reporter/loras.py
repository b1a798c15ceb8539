"""Adapters over HTTP, as Dynamo's workers have it: `/v1/loras` on the system port. Needs the extra `http`."""

from __future__ import annotations

import msgspec
from aiohttp import web

from openengine_sidecar.actors.reporter.http import json_response
from openengine_sidecar.actors.requests.protocol import ControlRequest
from openengine_sidecar.messages.dynamo.lora import LIST_LORAS, LOAD_LORA, UNLOAD_LORA, LoraAnswer, lora_error
from openengine_sidecar.supervision import Ref, SupervisionError

LORAS_PATH = "/v1/loras"
TIMEOUT = 3600.0
"""Seconds until an answer is given up; what was asked for goes on, within the limits of its own."""


class LoraPages:
    """Passes what comes over HTTP to who answers the control endpoints, and its answers back."""

    def __init__(self, controller: Ref[ControlRequest]) -> None:
        self._controller = controller

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return what is served."""
        return (
            web.post(LORAS_PATH, self._load),
            web.get(LORAS_PATH, self._list),
            web.delete(LORAS_PATH + "/{name:.+}", self._unload),
        )

    async def _load(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return json_response(lora_error("expected application/json"), status=415)
        try:
            body = msgspec.json.decode(await request.read())
        except msgspec.DecodeError as error:
            return json_response(lora_error(f"the body is not JSON: {error}"), status=400)
        return await self._ask(LOAD_LORA, body)

    async def _list(self, request: web.Request) -> web.Response:
        del request
        return await self._ask(LIST_LORAS, {})

    async def _unload(self, request: web.Request) -> web.Response:
        return await self._ask(UNLOAD_LORA, {"lora_name": request.match_info["name"]})

    async def _ask(self, endpoint: str, body: object) -> web.Response:
        question = ControlRequest(endpoint=endpoint, body=body)
        try:
            answer: LoraAnswer = await self._controller.ask(question, timeout=TIMEOUT)
        except SupervisionError as error:
            return json_response(lora_error(f"adapters are not served now: {error}"), status=503)
        return json_response(answer, status=200 if answer.ok else 500)

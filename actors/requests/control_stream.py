"""ControlStream: one request for an endpoint other than generation: a question, and one item for an answer."""

from __future__ import annotations

from typing import Never

from openengine_sidecar.actors.requests.exchange import Exchange
from openengine_sidecar.actors.requests.protocol import Admitted, ControlRequest, Expose
from openengine_sidecar.messages.dynamo.control import decode_body
from openengine_sidecar.messages.errors import EngineFailureError, InvalidRequestError, RequestError, WireError
from openengine_sidecar.messages.signals import Cause
from openengine_sidecar.supervision import Actor, SupervisionError

FIN_TIMEOUT = 10.0
ANSWER_TIMEOUT = 600.0


class ControlStream(Actor[Never]):
    """Asks the endpoint's handler and carries its reply to the caller; ends by itself."""

    def __init__(self, exposed: Expose, admitted: Admitted, exchange: Exchange) -> None:
        super().__init__()
        self._exposed = exposed
        self._admitted = admitted
        self._exchange = exchange

    async def on_start(self) -> None:
        """Accept at once."""
        self.log = self.log.bind(request_id=self._admitted.control.id)
        self.background(self._run(), name="run")

    async def on_message(self, message: Never) -> None:
        """No mail is understood."""

    async def on_stop(self, cause: Cause) -> None:
        """Leave nobody without an answer."""
        await self._exchange.conclude(self._failure(f"given up: {cause}"))

    async def _run(self) -> None:
        try:
            await self._exchange.dial(lambda reason: self.log.debug("{}", reason))
            self._exchange.send_value(await self._answer(), annotated=self._exposed.annotated)
        except RequestError as error:
            self._exchange.send_error(error)
        except (SupervisionError, WireError, OSError) as error:
            self.log.warning("{}: {}", self._exposed.endpoint, error)
            self._exchange.send_error(self._failure(str(error)))
        await self._exchange.close(fin_timeout=FIN_TIMEOUT)
        self.stop()

    async def _answer(self) -> object:
        control = self._admitted.control
        try:
            body = decode_body(self._admitted.body, control.codec)
        except WireError as error:
            raise InvalidRequestError(control.id, str(error)) from error
        question = ControlRequest(endpoint=self._exposed.endpoint, body=body, codec=control.codec)
        return await self._exposed.handler.ask(question, timeout=ANSWER_TIMEOUT)

    def _failure(self, problem: str) -> RequestError:
        return EngineFailureError(self._admitted.control.id, f"{self._exposed.endpoint}: {problem}")

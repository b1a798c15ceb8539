"""Both ends of one request: the frontend's socket and the engine's call, each ended exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum

import tenacity
from loguru import logger

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.engine.client import EngineClient
from openengine_sidecar.actors.requests.call_home import CallHomeConnection
from openengine_sidecar.messages.dynamo.control import Codec, ControlHeader
from openengine_sidecar.messages.dynamo.encoding import ENCODERS, ResponseEncoder
from openengine_sidecar.messages.dynamo.response import LLMEngineOutput
from openengine_sidecar.messages.engine.control import AbortOutcome
from openengine_sidecar.messages.errors import EngineLostError, RequestError, WireError
from openengine_sidecar.proto.dialect import EngineCallError, GenerationStream
from openengine_sidecar.supervision import Clock

CONCLUDE_FIN_TIMEOUT = 1.0


class Phase(Enum):
    """How far a request has come."""

    ACCEPTED = "accepted"
    DIALING = "dialing"
    OPENING = "opening"
    STREAMING = "streaming"
    ENDED = "ended"


class Exchange:
    """What must be ended when a request ends, in whatever way it does.

    The frontend gets at most one terminal; the engine gets at most one logical abort, with bounded retries, and its
    call is cancelled on its own terminal or when `cancel_timeout` has passed.
    """

    def __init__(
        self, control: ControlHeader, engine_id: str, client: EngineClient, config: RequestConfig, clock: Clock
    ) -> None:
        self.request_id = control.id
        self.engine_id = engine_id
        self.phase = Phase.ACCEPTED
        self._encoder = _encoder(control)
        self.call_home: CallHomeConnection | None = None
        self.aborts = 0
        self.closed = False
        self._client = client
        self._config = config
        self._clock = clock
        self._call: GenerationStream | None = None
        self._trace: Mapping[str, str] = {}
        self._call_ended = asyncio.Event()
        self._aborting: asyncio.Task[None] | None = None

    def opened(self, call: GenerationStream, trace: Mapping[str, str]) -> None:
        """The engine is about to hear of the request; its abort will carry the same trace headers."""
        self.phase = Phase.OPENING
        self._call = call
        self._trace = trace

    def engine_ended(self) -> None:
        """The engine said its last word: no abort from here on."""
        self._call_ended.set()

    @property
    def engine_busy(self) -> bool:
        """Whether the engine may still be working for this request."""
        return self._call is not None and not self._call_ended.is_set()

    def send(self, outputs: Sequence[LLMEngineOutput], *, last: bool) -> None:
        """Hand chunks to the frontend's socket in one write, with the end behind them when these are the last."""
        self._write(self._encoder.outputs(outputs) + (self._encoder.end if last else b""))
        self.phase = Phase.ENDED if last else Phase.STREAMING

    async def flush(self) -> None:
        """Wait while the frontend reads more slowly than the engine writes."""
        if self.call_home is not None:
            await self.call_home.flush()

    def send_error(self, error: RequestError) -> None:
        """End the frontend's side with a typed error item."""
        self._write(self._encoder.error(error) + self._encoder.end)
        self.phase = Phase.ENDED

    def drop_frontend(self) -> None:
        """End the frontend's side without another frame: nobody reads it."""
        if self.call_home is not None:
            self.call_home.abandon()
        self.phase = Phase.ENDED

    def cancel_call(self) -> None:
        """Cancel the engine's call at once."""
        self._call_ended.set()
        if self._call is not None:
            self._call.cancel()

    def start_abort(self, *, still_read: bool) -> None:
        """Send the one abort, unless the engine never heard of the request or is done with it.

        Args:
            still_read: whether somebody reads the call to its end; it is then given `cancel_timeout` to get there.
        """
        if self.engine_busy and self._aborting is None:
            self.aborts = 1
            patience = self._config.cancel_timeout if still_read else 0.0
            self._aborting = asyncio.create_task(self._abort(patience), name=f"abort {self.engine_id}")

    async def close(self, *, fin_timeout: float) -> None:
        """Wait, within bounds, until both sides have ended in good order."""
        await asyncio.gather(self._settle(), self._hang_up(fin_timeout))
        self.closed = True

    async def conclude(self, error: RequestError) -> None:
        """End what has not ended; harmless after `close`."""
        if self.closed:
            return
        if self.phase is not Phase.ENDED:
            self.send_error(error)
        self.start_abort(still_read=False)
        await self.close(fin_timeout=CONCLUDE_FIN_TIMEOUT)

    def _write(self, frames: bytes) -> None:
        if self.call_home is not None and frames:
            self.call_home.write(frames)

    async def _settle(self) -> None:
        if self._aborting is not None:
            await self._aborting
        self.cancel_call()

    async def _hang_up(self, timeout: float) -> None:
        if self.call_home is not None:
            await self.call_home.finish(timeout=timeout)

    async def _abort(self, patience: float) -> None:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(EngineCallError),
            stop=tenacity.stop_after_attempt(self._config.abort_attempts),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=1.0),
            sleep=self._clock.sleep,
            reraise=True,
        )
        log = logger.bind(request_id=self.request_id)
        try:
            outcome: AbortOutcome = await retrying(
                self._client.abort, self.engine_id, timeout=self._config.abort_timeout, trace=self._trace
            )
        except (EngineCallError, EngineLostError) as error:
            log.warning("abort of {} did not reach the engine: {}", self.engine_id, error)
        else:
            if outcome is AbortOutcome.UNSPECIFIED:
                log.warning("abort of {} was answered without a status", self.engine_id)
        try:
            async with asyncio.timeout(patience):
                await self._call_ended.wait()
        except TimeoutError:
            log.debug("the engine did not end {} after its abort: cancelling the call", self.engine_id)
        self.cancel_call()


def _encoder(control: ControlHeader) -> ResponseEncoder:
    """The codec of the answer: the request's own, or the one we advertise where the frontend named none of ours."""
    try:
        return ENCODERS[control.codec]
    except WireError:
        return ENCODERS[Codec.MSGPACK]

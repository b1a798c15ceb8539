"""Both ends of one request: the frontend's socket and the engine's call, each ended exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import grpc
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

    The frontend gets exactly one terminal, unless it is gone; the engine gets at most one logical abort, with bounded
    retries, and its call is cancelled on its own terminal or when `cancel_timeout` has passed.

    Attributes:
        phase: how far the request has come; ENDED once the frontend's terminal is decided.
        aborts: logical aborts sent: 0 or 1.
        dialled: done once the call-home connection stands, or never will.
        closed: whether both ends have ended.
    """

    def __init__(
        self, control: ControlHeader, engine_id: str, client: EngineClient, config: RequestConfig, clock: Clock
    ) -> None:
        self.request_id = control.id
        self.engine_id = engine_id
        self.phase = Phase.ACCEPTED
        self.aborts = 0
        self.dialled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = False
        self._address = control.call_home
        self._encoder = _encoder(control)
        self._call_home: CallHomeConnection | None = None
        self._unsent = b""
        self._client = client
        self._config = config
        self._clock = clock
        self._call: GenerationStream | None = None
        self._engine_done = False
        self._trace: Mapping[str, str] = {}
        self._call_ended = asyncio.Event()
        self._aborting: asyncio.Task[None] | None = None

    async def dial(self, on_gone: Callable[[str], None]) -> None:
        """Connect to the frontend; what was decided to be said meanwhile is said at once.

        Raises:
            OSError: it does not answer.
        """
        if self.phase is Phase.ACCEPTED:
            self.phase = Phase.DIALING
        try:
            call_home = await CallHomeConnection.dial(self._address, on_gone, timeout=self._config.dial_timeout)
        except OSError:
            self._dialling_is_over()
            raise
        self._call_home = call_home
        self._dialling_is_over()
        if call_home.open:
            call_home.write(self._unsent)
        else:
            call_home.abandon()

    def opened(self, call: GenerationStream, trace: Mapping[str, str]) -> None:
        """The engine is about to hear of the request; its abort will carry the same trace headers."""
        self.phase = Phase.OPENING
        self._call = call
        self._trace = trace

    def call_ended(self, *, by_engine: bool) -> None:
        """Nothing more can come on the call.

        Args:
            by_engine: whether that was the engine's last word: no abort from here on.
        """
        self._engine_done = self._engine_done or by_engine
        self._call_ended.set()

    @property
    def engine_busy(self) -> bool:
        """Whether the engine may still be working for this request."""
        return self._call is not None and not self._engine_done

    def send(self, outputs: Sequence[LLMEngineOutput], *, last: bool) -> None:
        """Hand chunks to the frontend's socket in one write, with the end behind them when these are the last."""
        self._write(self._encoder.outputs(outputs) + (self._encoder.end if last else b""))
        self.phase = Phase.ENDED if last else Phase.STREAMING

    def send_value(self, value: object, *, annotated: bool) -> None:
        """End the frontend's side with the one item of a control endpoint.

        Raises:
            WireError: the value cannot be put on the wire.
        """
        item = self._encoder.value(value) if annotated else self._encoder.bare(value)
        self._write(item + self._encoder.end)
        self.phase = Phase.ENDED

    async def flush(self) -> None:
        """Wait while the frontend reads more slowly than the engine writes; not once an error was said, or it left."""
        if self._call_home is not None:
            await self._call_home.flush()

    def send_error(self, error: RequestError) -> None:
        """End the frontend's side with a typed error item."""
        self._write(self._encoder.error(error) + self._encoder.end)
        self.phase = Phase.ENDED
        if self._call_home is not None:
            self._call_home.let_go()

    def drop_frontend(self) -> None:
        """End the frontend's side without another frame: nobody reads it."""
        self.phase = Phase.ENDED
        if self._call_home is not None:
            self._call_home.abandon()

    def cancel_call(self) -> None:
        """Cancel the engine's call at once."""
        self.call_ended(by_engine=True)
        if self._call is not None:
            self._call.cancel()

    def start_abort(self, *, still_read: bool) -> None:
        """Send the one abort, unless the engine never heard of the request or is done with it.

        Args:
            still_read: whether somebody reads the call to its end; it may then get there by itself.
        """
        if self.engine_busy and self._aborting is None:
            self.aborts = 1
            self._aborting = asyncio.create_task(self._abort(still_read=still_read), name=f"abort {self.engine_id}")

    async def close(self, *, fin_timeout: float) -> None:
        """Wait, within bounds, until both sides have ended in good order; cancelled, it can be called again."""
        await asyncio.gather(self._settle(), self._hang_up(fin_timeout))
        self.closed = True

    async def conclude(self, error: RequestError) -> None:
        """End what has not ended, with this error unless the frontend's terminal was decided before.

        Harmless after `close`. A frontend that was never dialled is dialled now: it waits for an answer.
        """
        if self.closed:
            return
        if self.phase is not Phase.ENDED:
            self.send_error(error)
        self.start_abort(still_read=False)
        if not self.dialled.done():
            await self._dial_once()
        await self.close(fin_timeout=CONCLUDE_FIN_TIMEOUT)

    def _write(self, frames: bytes) -> None:
        if self._call_home is None:
            self._unsent += frames
        elif frames:
            self._call_home.write(frames)

    def _dialling_is_over(self) -> None:
        if not self.dialled.done():
            self.dialled.set_result(None)

    async def _dial_once(self) -> None:
        try:
            await self.dial(_nobody_minds)
        except OSError as error:
            logger.bind(request_id=self.request_id).warning("its frontend does not answer: {}", error)

    async def _settle(self) -> None:
        if self._aborting is not None:
            await asyncio.wait((self._aborting,))  # which outlives whoever waits
        self.cancel_call()

    async def _hang_up(self, timeout: float) -> None:
        if self._call_home is not None:
            await self._call_home.finish(timeout=timeout)

    async def _abort(self, *, still_read: bool) -> None:
        """Tell the engine; cancel the call on its terminal, on time-out, or when telling was in vain."""
        timer = self._clock.call_at(self._clock.monotonic() + self._config.cancel_timeout, self.cancel_call)
        try:
            if await self._tell_engine() and still_read:
                await self._call_ended.wait()
        finally:
            timer.cancel()
            self.cancel_call()

    async def _tell_engine(self) -> bool:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_unreached),
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
            return False
        if outcome is AbortOutcome.UNSPECIFIED:
            log.warning("abort of {} was answered without a status", self.engine_id)
        return outcome is not AbortOutcome.UNSUPPORTED


def _unreached(error: BaseException) -> bool:
    return isinstance(error, EngineCallError) and error.status is grpc.StatusCode.UNAVAILABLE


def _nobody_minds(reason: str) -> None:
    del reason


def _encoder(control: ControlHeader) -> ResponseEncoder:
    """The codec of the answer: the request's own, or the one we advertise where the frontend named none of ours."""
    try:
        return ENCODERS[control.codec]
    except WireError:
        return ENCODERS[Codec.MSGPACK]

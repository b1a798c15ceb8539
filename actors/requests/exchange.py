"""Both ends of one request: the frontend's socket and the engine's call, each ended exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from loguru import logger

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.engine.client import EngineClient
from openengine_sidecar.actors.requests.call_home import CallHomeConnection
from openengine_sidecar.actors.requests.engine_side import EngineSide
from openengine_sidecar.messages.dynamo.control import PROLOGUE, Codec, ControlHeader
from openengine_sidecar.messages.dynamo.encoding import ENCODERS, ResponseEncoder, encode_refusal
from openengine_sidecar.messages.dynamo.response import LLMEngineOutput
from openengine_sidecar.messages.errors import InvalidRequestError, RequestError, WireError
from openengine_sidecar.proto.dialect import GenerationStream
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

    The frontend gets exactly one terminal, unless it is gone; the engine gets at most one logical abort, and is told to
    let a KV session go that nobody else answers for.

    Attributes:
        engine: the engine's end.
        phase: how far the request has come; ENDED once the frontend's terminal is decided.
        dialled: done once the call-home connection stands, or never will.
        closed: whether both ends have ended.
    """

    def __init__(
        self, control: ControlHeader, engine_id: str, client: EngineClient, config: RequestConfig, clock: Clock
    ) -> None:
        self.request_id = control.id
        self.engine = EngineSide(control.id, engine_id, client, config, clock)
        self.phase = Phase.ACCEPTED
        self.dialled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = False
        self._address = control.call_home
        self._encoder = _encoder(control)
        self._call_home: CallHomeConnection | None = None
        self._prologue = PROLOGUE
        self._unsent = b""
        self._dropped = False
        self._config = config
        self._answered = False

    @property
    def engine_id(self) -> str:
        """The request's id at the engine."""
        return self.engine.engine_id

    @property
    def aborts(self) -> int:
        """Logical aborts by request id sent: 0 or 1."""
        return self.engine.aborts

    async def dial(self, on_gone: Callable[[str], None]) -> None:
        """Connect to the frontend; what was decided to be said meanwhile is said at once.

        Raises:
            OSError: it does not answer.
        """
        if self.phase is Phase.ACCEPTED:
            self.phase = Phase.DIALING
        try:
            call_home = await CallHomeConnection.dial(
                self._address, self._prologue, on_gone, timeout=self._config.dial_timeout
            )
        except OSError:
            self._dialling_is_over()
            raise
        self._call_home = call_home
        self._dialling_is_over()
        if self._dropped or not call_home.open:
            call_home.abandon()
        else:
            call_home.write(self._unsent)

    def opened(self, call: GenerationStream, trace: Mapping[str, str]) -> None:
        """The engine is about to hear of the request; its aborts will carry the same trace headers."""
        self.phase = Phase.OPENING
        self.engine.opened(call, trace)

    def send(self, outputs: Sequence[LLMEngineOutput], *, last: bool) -> None:
        """Hand chunks to the frontend's socket in one write, with the end behind them when these are the last."""
        self._write(self._encoder.outputs(outputs) + (self._encoder.end if last else b""))
        self._answered = last
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
        """End the frontend's side with a typed error: in the prologue where that is still to come and may carry it."""
        if self.phase is Phase.ACCEPTED and isinstance(error, InvalidRequestError):
            self._prologue = encode_refusal(error)
        else:
            self._write(self._encoder.error(error) + self._encoder.end)
        self.phase = Phase.ENDED
        if self._call_home is not None:
            self._call_home.let_go()

    def drop_frontend(self) -> None:
        """End the frontend's side without another frame: nobody reads it."""
        self.phase = Phase.ENDED
        self._dropped = True
        if self._call_home is not None:
            self._call_home.abandon()

    async def close(self, *, fin_timeout: float) -> None:
        """Wait, within bounds, until both sides have ended in good order; cancelled, it can be called again.

        A frontend that was never dialled is dialled now: it waits for an answer.
        """
        if not self.dialled.done():
            await self._dial_once()
        _, arrived = await asyncio.gather(self.engine.settle(), self._hang_up(fin_timeout))
        if self._answered and arrived:
            self.engine.custody.delivered()
        await self.engine.release()
        self.closed = True

    async def conclude(self, error: RequestError) -> None:
        """End what has not ended, with this error unless the frontend's terminal was decided before.

        Harmless after `close`.
        """
        if self.closed:
            return
        if self.phase is not Phase.ENDED:
            self.send_error(error)
        self.engine.hurry()
        self.engine.start_abort(still_read=False)
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

    async def _hang_up(self, timeout: float) -> bool:
        return self._call_home is not None and await self._call_home.finish(timeout=timeout)


def _nobody_minds(reason: str) -> None:
    del reason


def _encoder(control: ControlHeader) -> ResponseEncoder:
    """The codec of the answer: the request's own, or the one we advertise where the frontend named none of ours."""
    try:
        return ENCODERS[control.codec]
    except WireError:
        return ENCODERS[Codec.MSGPACK]

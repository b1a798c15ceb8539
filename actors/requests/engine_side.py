"""The engine's end of one request: its call, the KV it holds, and how it is told to let both go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import grpc
import tenacity
from loguru import logger

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.engine.client import EngineClient
from openengine_sidecar.actors.requests.custody import Custody, NoCustody
from openengine_sidecar.messages.engine.control import AbortOutcome
from openengine_sidecar.messages.engine.generation import Event
from openengine_sidecar.messages.errors import EngineLostError
from openengine_sidecar.messages.facts import HoldEnd
from openengine_sidecar.proto.dialect import EngineCallError, GenerationStream
from openengine_sidecar.supervision import Clock


class EngineSide:
    """Ends the engine's work for one request, in whatever way the request ends.

    At most one logical abort by request id, and at most one by KV session, each with bounded retries; the call is
    cancelled on its own terminal or when `cancel_timeout` has passed.

    Attributes:
        aborts: logical aborts by request id: 0 or 1.
        custody: of the KV; `entrust` sets it.
        hold: what ended the wait of a cancelled decode for its engine, None where there was no wait.
    """

    def __init__(
        self, request_id: str, engine_id: str, client: EngineClient, config: RequestConfig, clock: Clock
    ) -> None:
        self.engine_id = engine_id
        self.aborts = 0
        self.custody: Custody = NoCustody()
        self.hold: HoldEnd | None = None
        self._log = logger.bind(request_id=request_id)
        self._client = client
        self._config = config
        self._clock = clock
        self._call: GenerationStream | None = None
        self._done = False
        self._trace: Mapping[str, str] = {}
        self._call_ended = asyncio.Event()
        self._aborting: asyncio.Task[None] | None = None
        self._in_a_hurry = False
        self._holding: asyncio.Future[HoldEnd] | None = None

    @property
    def busy(self) -> bool:
        """Whether the engine may still be working for this request."""
        return self._call is not None and not self._done

    def entrust(self, custody: Custody) -> None:
        """Answer for a request's KV from here on."""
        self.custody = custody

    def opened(self, call: GenerationStream, trace: Mapping[str, str]) -> None:
        """The engine is about to hear of the request; its aborts will carry the same trace headers."""
        self._call = call
        self._trace = trace

    def saw(self, event: Event) -> None:
        """Take an event in for what it says about the KV."""
        self.custody.saw(event)
        if self._holding is not None and not self.custody.holds:
            self._stop_holding(HoldEnd.FIRST_TOKEN)

    def call_ended(self, *, by_engine: bool) -> None:
        """Nothing more can come on the call; `by_engine`: that was the engine's last word."""
        self._done = self._done or by_engine
        self._call_ended.set()
        self._stop_holding(HoldEnd.TERMINAL)

    def cancel_call(self) -> None:
        """Cancel the call at once."""
        self.call_ended(by_engine=True)
        if self._call is not None:
            self._call.cancel()

    def hurry(self) -> None:
        """Hold nothing any more, for whatever it is good."""
        self._in_a_hurry = True
        self._stop_holding(HoldEnd.SHUTDOWN)

    def start_abort(self, *, still_read: bool) -> None:
        """Have the engine let go, unless it never heard of the request or is done with it.

        Args:
            still_read: whether somebody reads the call to its end; it may then get there by itself.
        """
        if self.busy and self._aborting is None:
            self._aborting = asyncio.create_task(self._abort(still_read=still_read), name=f"abort {self.engine_id}")

    async def settle(self) -> None:
        """Wait until the engine was told; cancelled, it can be called again. Nobody reads the call any more."""
        self.call_ended(by_engine=False)
        if self._aborting is not None:
            await asyncio.wait((self._aborting,))  # which outlives whoever waits
        self.cancel_call()

    async def release(self) -> None:
        """Let go of a session that nobody else answers for; where that cannot be done, the engine's time-out will."""
        if self.custody.session is None:
            return
        if not await self._let_session_go():
            self._log.warning("its KV session is left to the engine's time-out")
            self.custody.let_go(None)

    async def _abort(self, *, still_read: bool) -> None:
        """Tell the engine; cancel the call on its terminal, on time-out, or when telling was in vain."""
        told = await self._let_session_go()
        if not told and still_read:
            await self._hold()
        timer = self._clock.call_at(self._clock.monotonic() + self._config.cancel_timeout, self.cancel_call)
        try:
            if not told and self.busy:
                told = await self._abort_request()
            if told and still_read:
                await self._call_ended.wait()
        finally:
            timer.cancel()
            self.cancel_call()

    async def _hold(self) -> None:
        """Wait, within bounds, for the engine to take the KV over: aborted before, it would strand it."""
        if not self.custody.holds or self._in_a_hurry or self._call_ended.is_set():
            return
        self._holding = asyncio.get_running_loop().create_future()
        deadline = self._clock.monotonic() + self._config.decode_cancel_hold
        timer = self._clock.call_at(deadline, self._stop_holding, HoldEnd.DEADLINE)
        try:
            self.hold = await self._holding
        finally:
            timer.cancel()
            self._holding = None

    def _stop_holding(self, why: HoldEnd) -> None:
        if self._holding is not None and not self._holding.done():
            self._holding.set_result(why)

    async def _let_session_go(self) -> bool:
        session = self.custody.session
        if session is None or not (self.custody.by_session and self._client.aborts_sessions):
            return False
        outcome = await self._tell(
            f"abort of KV session {session.session_id!r}", partial(self._client.abort_session, session)
        )
        if outcome is None or outcome is AbortOutcome.UNSUPPORTED:
            self.custody.by_session = False
            return False
        self.custody.let_go(outcome)
        return True

    async def _abort_request(self) -> bool:
        self.aborts = 1
        self.custody.aborted()
        outcome = await self._tell(f"abort of {self.engine_id}", partial(self._client.abort, self.engine_id))
        return outcome is not None and outcome is not AbortOutcome.UNSUPPORTED

    async def _tell(self, what: str, abort: Callable[..., Awaitable[AbortOutcome]]) -> AbortOutcome | None:
        """Tell the engine, with bounded retries; None where that was in vain."""
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_unreached),
            stop=tenacity.stop_after_attempt(self._config.abort_attempts),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=1.0),
            sleep=self._clock.sleep,
            reraise=True,
        )
        try:
            outcome: AbortOutcome = await retrying(abort, timeout=self._config.abort_timeout, trace=self._trace)
        except (EngineCallError, EngineLostError) as error:
            self._log.warning("{} did not reach the engine: {}", what, error)
            return None
        if outcome is AbortOutcome.UNSPECIFIED:
            self._log.warning("{} was answered without a status", what)
        return outcome


def _unreached(error: BaseException) -> bool:
    return isinstance(error, EngineCallError) and error.status is grpc.StatusCode.UNAVAILABLE

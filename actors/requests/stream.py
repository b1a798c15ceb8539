"""RequestStream: one request in flight, from acknowledgement to its one end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Never

import grpc

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.engine.client import EngineClient
from openengine_sidecar.actors.engine.connection import Suspect
from openengine_sidecar.actors.generation.handoff import session_in
from openengine_sidecar.actors.generation.legs import Translator
from openengine_sidecar.actors.generation.request import Translation, translate
from openengine_sidecar.actors.generation.response import nothing_left
from openengine_sidecar.actors.generation.rules import StreamRules
from openengine_sidecar.actors.lora.uses import AdapterUses
from openengine_sidecar.actors.requests.custody import custody_of
from openengine_sidecar.actors.requests.exchange import Exchange, Phase
from openengine_sidecar.actors.requests.gaps import GapCounter
from openengine_sidecar.actors.requests.protocol import Admitted, CancelReason
from openengine_sidecar.messages.dynamo.request import InboundRequest, decode_request
from openengine_sidecar.messages.dynamo.response import LLMEngineOutput
from openengine_sidecar.messages.engine.generation import Event
from openengine_sidecar.messages.errors import (
    DiscoveryError,
    EngineLostError,
    EngineProtocolError,
    EngineTimeoutError,
    InvalidRequestError,
    RequestError,
    StreamBrokenError,
    WireError,
)
from openengine_sidecar.messages.facts import EngineUp, Outcome, StreamEnded
from openengine_sidecar.messages.signals import Cancel, Cause
from openengine_sidecar.proto.dialect import EngineCallError, GenerationStream, Oversized
from openengine_sidecar.proto.faults import error_from_status
from openengine_sidecar.supervision import Actor, ActorGoneError, AskTimeoutError, MailboxFullError, Ref

FIN_TIMEOUT = 10.0
SUSPECT_TIMEOUT = 30.0

# A status the engine itself chose ends its work; these may come from the transport, with the engine still busy.
MAY_LEAVE_ENGINE_BUSY = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DATA_LOSS,
    }
)


def _may_leave_engine_busy(error: EngineCallError) -> bool:
    return error.status in MAY_LEAVE_ENGINE_BUSY or error.oversized is Oversized.RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamContext:
    """What the streams of one gate share."""

    client: EngineClient
    connection: Ref[Suspect]
    config: RequestConfig
    adapters: AdapterUses = field(default_factory=AdapterUses)


@dataclass(frozen=True, slots=True)
class Work:
    """A request that was understood: the engine as it was then, and what to ask it."""

    engine: EngineUp
    translation: Translation


class RequestStream(Actor[Never]):
    """Owns the engine's call and the call-home socket of one request, and moves tokens between them itself.

    Hears only signals: `Cancel(reason)` with a CancelReason. Ends by itself, telling StreamEnded.
    """

    def __init__(self, context: StreamContext, admitted: Admitted, exchange: Exchange) -> None:
        super().__init__()
        self._context = context
        self._admitted = admitted
        self._control = admitted.control
        self._exchange = exchange
        self._adapter = ExitStack()
        self._rules: StreamRules | None = None
        self._cancelled: str | None = None
        self._error: RequestError | None = None
        self._told = False
        self._dropped: tuple[str, ...] = ()
        self._accepted_at = 0.0
        self._first_token_at: float | None = None
        self._tokens = 0
        self._gaps = GapCounter()

    async def on_start(self) -> None:
        """Accept at once; everything else happens beside the mailbox, which stays open for signals."""
        self.log = self.log.bind(request_id=self._control.id)
        self._accepted_at = self.clock.monotonic()
        self.background(self._run(), name="run")

    async def on_message(self, message: Never) -> None:
        """No mail is understood."""

    async def on_cancel(self, cancel: Cancel) -> None:
        """Stop both ends; the first reason counts, and nothing happens after the end."""
        exchange = self._exchange
        if cancel.reason != CancelReason.CLIENT_GONE:
            exchange.engine.hurry()
        if self._cancelled is not None or exchange.phase is Phase.ENDED:
            return
        self._cancelled = cancel.reason
        self.log.info("cancelled while {}: {}", exchange.phase.value, cancel.reason)
        if cancel.reason == CancelReason.CLIENT_GONE:
            exchange.drop_frontend()
        else:
            self._error = EngineLostError(self._control.id, f"cancelled: {cancel.reason}")
            exchange.send_error(self._error)
        if cancel.reason == CancelReason.ENGINE_LOST:
            exchange.engine.cancel_call()
        else:
            exchange.engine.start_abort(still_read=True)

    async def on_stop(self, cause: Cause) -> None:
        """Leave nothing behind, whatever ended this actor."""
        given_up = StreamBrokenError(self._control.id, f"the worker gave it up: {cause}")
        decided = self._exchange.phase is Phase.ENDED
        await self._exchange.conclude(given_up)
        self._adapter.close()
        self._tell(self._error if decided else given_up)

    async def _run(self) -> None:
        try:
            await self._serve()
        except RequestError as error:
            if self._cancelled is None:
                wish = "" if error.retry_after_ms is None else f" (the engine asks to wait {error.retry_after_ms} ms)"
                self.log.log("INFO" if error.client_fault else "WARNING", "{}: {}{}", type(error).__name__, error, wish)
                self._error = error
                self._exchange.send_error(error)
                self._exchange.engine.start_abort(still_read=False)
        await self._exchange.close(fin_timeout=FIN_TIMEOUT)
        self._tell(self._error)
        self.stop()

    async def _serve(self) -> None:
        work = self._understood()
        await self._dial()
        if self._exchange.phase is Phase.ENDED:
            return
        if (call := work.translation.call).stopping.max_tokens == 0:
            self._exchange.send(nothing_left(call), last=True)
        else:
            adapter = call.lora_name
            self._adapter.enter_context(self._context.adapters.use(self._control.id, adapter))
            await self._stream(work)

    async def _dial(self) -> None:
        try:
            await self._exchange.dial(self._client_gone)
        except OSError as error:
            address = self._control.call_home
            problem = f"frontend at {address.host}:{address.port} does not answer: {error}"
            raise StreamBrokenError(self._control.id, problem) from error

    def _client_gone(self, reason: str) -> None:
        self.log.debug("{}", reason)
        self.ref.cancel(CancelReason.CLIENT_GONE)

    def _understood(self) -> Work:
        """Read the request before anything else is done: whatever it came with is answered for from here on."""
        engine = self._admitted.engine
        if engine is None:
            raise EngineLostError(self._control.id, "the engine is down")
        inbound = self._read()
        self._exchange.engine.entrust(custody_of(engine.role, session_in(inbound.request), engine.discovery))
        return Work(engine, self._translated(inbound, engine))

    def _read(self) -> InboundRequest:
        try:
            return decode_request(self._admitted.body, self._control.codec)
        except WireError as error:
            raise InvalidRequestError(self._control.id, str(error)) from error

    def _translated(self, inbound: InboundRequest, engine: EngineUp) -> Translation:
        translation = translate(
            inbound,
            request_id=self._exchange.engine_id,
            discovery=engine.discovery,
            role=engine.role,
            config=self._context.config,
            trace=self._admitted.trace,
        )
        self._dropped = translation.dropped
        for hint in translation.dropped:
            self.log.info("hint {} dropped: the engine does not know it", hint)
        return translation

    async def _stream(self, work: Work) -> None:
        call, translator = work.translation.call, work.translation.translator
        rules = self._rules = StreamRules(call, work.engine.role)
        generation = self._context.client.generate(call)
        self._exchange.opened(generation, call.trace)
        try:
            while not rules.terminal:
                batch = await self._next(generation)
                if not batch:
                    rules.closed()
                await self._forward(batch, rules, translator)
        finally:
            if rules.terminal:
                self._exchange.engine.call_ended(by_engine=True)
        await self._look_behind(generation, rules)

    async def _next(self, generation: GenerationStream) -> Sequence[Event]:
        opening = self._exchange.phase is Phase.OPENING
        config = self._context.config
        limit = config.opening_timeout if opening else config.idle_timeout
        try:
            async with asyncio.timeout(limit):
                return await generation.next_batch()
        except TimeoutError as error:
            raise EngineTimeoutError(self._control.id, f"the engine was silent for {limit} s") from error
        except EngineCallError as error:
            raise await self._broken(error) from error

    async def _forward(self, batch: Sequence[Event], rules: StreamRules, translator: Translator) -> None:
        outputs: list[LLMEngineOutput] = []
        whole = False
        try:
            for event in batch:
                self._exchange.engine.saw(event)
                rules.accept(event)
                outputs.extend(translator.outputs(event))
            whole = True
        finally:
            self._note_tokens(rules.output_tokens)
            if self._cancelled is None:
                self._exchange.send(outputs, last=whole and rules.terminal)
        await self._exchange.flush()

    def _note_tokens(self, total: int) -> None:
        fresh, self._tokens = total - self._tokens, total
        if fresh:
            now = self.clock.monotonic()
            if self._first_token_at is None:
                self._first_token_at = now
            self._gaps.tokens(fresh, now)

    async def _look_behind(self, generation: GenerationStream, rules: StreamRules) -> None:
        """See how the stream ends behind its terminal; the result stays, a violation is counted."""
        try:
            async with asyncio.timeout(self._context.config.cancel_timeout):
                while batch := await generation.next_batch():
                    for event in batch:
                        rules.accept(event)
        except EngineCallError as error:
            rules.oddities["trailing_status"] += 1
            self.log.warning("after its terminal the stream ended with {}", error)
        except EngineProtocolError as error:
            self.log.warning("after its terminal: {}", error)
        except TimeoutError:
            rules.oddities["open_after_terminal"] += 1

    async def _broken(self, error: EngineCallError) -> RequestError:
        exchange, request_id, engine = self._exchange, self._control.id, self._admitted.engine
        release = engine.discovery.schema_release if engine is not None else None
        exchange.engine.call_ended(by_engine=not _may_leave_engine_busy(error))
        if self._cancelled is not None or error.status is not grpc.StatusCode.UNAVAILABLE:
            return error_from_status(request_id, error, release=release)
        if not await self._engine_alive():
            exchange.engine.cancel_call()
            return EngineLostError(request_id, str(error))
        if exchange.phase is Phase.OPENING:
            return error_from_status(request_id, error, release=release)
        return StreamBrokenError(request_id, str(error))

    async def _engine_alive(self) -> bool:
        """Ask the engine's connection; one that gives no verdict is taken at its last word, one that is gone is not."""
        try:
            alive: bool = await self._context.connection.ask(Suspect(self._control.id), timeout=SUSPECT_TIMEOUT)
        except (AskTimeoutError, MailboxFullError):
            return True
        except (ActorGoneError, DiscoveryError):
            return False
        return alive

    def _tell(self, error: RequestError | None) -> None:
        """Tell, once, how it ended; a client that left is no failure, whatever came of it."""
        if self._told:
            return
        self._told = True
        rules, exchange, now = self._rules, self._exchange, self.clock.monotonic()
        gone = self._cancelled == CancelReason.CLIENT_GONE
        outcome = Outcome.CANCELLED if gone else Outcome.FAILED if error is not None else Outcome.FINISHED
        failed = error if outcome is Outcome.FAILED else None
        self.publish(
            StreamEnded(
                request_id=self._control.id,
                outcome=outcome,
                error=type(failed).__name__ if failed is not None else "",
                rule=failed.rule if isinstance(failed, EngineProtocolError) else "",
                reason=self._cancelled or "",
                usage=rules.usage if rules is not None else None,
                output_tokens=rules.output_tokens if rules is not None else 0,
                aborts=exchange.aborts,
                kv=exchange.engine.custody.end,
                hold=exchange.engine.hold,
                ttft=self._first_token_at - self._accepted_at if self._first_token_at is not None else None,
                duration=now - self._accepted_at,
                oddities=dict(rules.oddities) if rules is not None else {},
                dropped=self._dropped,
                gaps=self._gaps.gaps,
            )
        )

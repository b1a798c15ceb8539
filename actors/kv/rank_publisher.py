"""RankPublisher: the KV events of one data-parallel rank, from the engine to the routers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from openengine_sidecar.actors.config import KvConfig
from openengine_sidecar.actors.kv.announcement import rank_records
from openengine_sidecar.actors.kv.announcer import Announcer, replaced
from openengine_sidecar.actors.kv.attempts import Attempt, Past
from openengine_sidecar.actors.kv.follower import Follower
from openengine_sidecar.actors.kv.rank import RankFeed
from openengine_sidecar.actors.kv.recovery import weight
from openengine_sidecar.actors.kv.relay import RankRelay
from openengine_sidecar.actors.kv.sources import RankSource
from openengine_sidecar.actors.kv.telling import Telling
from openengine_sidecar.actors.requests.protocol import ControlRequest, Expose
from openengine_sidecar.messages.dynamo.events import (
    RecoveryAnswer,
    RecoveryRequest,
    encode_answer,
    encode_events,
    recovery_endpoint,
)
from openengine_sidecar.messages.dynamo.naming import KV_EVENTS_TOPIC
from openengine_sidecar.messages.facts import EventPlaneState, KvCounted, KvFollowing, Registered, Withdrawn
from openengine_sidecar.messages.signals import Cause
from openengine_sidecar.proto.dialect import KvEventStream
from openengine_sidecar.supervision import Actor, Backoff

REPORT_INTERVAL = 1.0


class Follow(msgspec.Struct, frozen=True, kw_only=True):
    """Told: follow the rank of this engine instance, or of none (`source` None, and why)."""

    source: RankSource | None
    instance: str = ""
    why: str = ""


class Repeat(msgspec.Struct, frozen=True):
    """To oneself: say the newest event again if nothing was said for a while."""


class Report(msgspec.Struct, frozen=True):
    """To oneself: tell what was counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankContext:
    """What the ranks of one engine share. `block_size` is in tokens, `blocks` the most that a tier may hold."""

    telling: Telling
    config: KvConfig
    block_size: int
    blocks: int


RankMail = Follow | Registered | Withdrawn | EventPlaneState | ControlRequest | Repeat | Report


class RankPublisher(Actor[RankMail]):
    """Follows its rank through gaps, ends and engine instances. One life of it is one publisher.

    Event ids must never begin again under one publisher, so a life that crashed takes its records with it.
    """

    def __init__(self, context: RankContext, rank: int, order: Follow) -> None:
        super().__init__()
        self._context = context
        self._rank = rank
        self._order = order
        telling = context.telling
        self._instance_id = telling.identity.instance_id
        self._outlet = telling.plane.outlet(telling.endpoint, KV_EVENTS_TOPIC, encode_events, weight)
        self._endpoint = recovery_endpoint(telling.endpoint, self._outlet.id).name
        self._feed = RankFeed(self._instance_id, rank, context.block_size, blocks=context.blocks)
        self._relay: RankRelay
        self._announcer: Announcer
        self._announcing: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._told = 0

    async def on_start(self) -> None:
        """Begin to follow; announced once the worker is registered."""
        telling, config = self._context.telling, self._context.config
        self._relay = RankRelay(self._feed, self._outlet, self.log, self._tell_following)
        records = rank_records(
            telling.endpoint, self._instance_id, self._rank, self._outlet.id, recovery=not config.live_only
        )
        exposed = None if config.live_only else Expose(endpoint=self._endpoint, handler=self.ref, annotated=False)
        self._announcer = Announcer(telling.offices, tuple(records), self.clock, exposed=exposed)
        self.subscribe(Registered, Withdrawn, EventPlaneState)
        self.schedule("repeat", config.repeat_interval, Repeat())
        self.schedule("report", REPORT_INTERVAL, Report())
        await self._follow(self._order)

    async def on_message(self, message: RankMail) -> object:
        """Take an order or a fact in, or answer a router."""
        match message:
            case Follow():
                if message != self._order:
                    await self._follow(message)
            case Registered():
                replaced(self._announcing)
                self._announcing = self.background(self._announcer.announce(), name="announce")
            case Withdrawn():
                replaced(self._announcing)
            case EventPlaneState():
                if message.connected:
                    self._relay.repeat()
            case ControlRequest():
                return self.background(self._answer(message), name="answer")
            case Repeat():
                self._repeat()
            case Report():
                self._tell_counts()
                self.schedule("report", REPORT_INTERVAL, Report())
        return None

    async def on_stop(self, cause: Cause) -> None:
        """Leave no record behind."""
        del cause
        self._announcer.withdraw()
        self._tell_counts()

    async def _follow(self, order: Follow) -> None:
        self._order = order
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait((self._following,))
            self._following = None
        if order.source is None:
            await self._relay.cleared(order.why)
            return
        self._relay.instance = order.instance
        follower = Follower(
            order.source,
            self._open,
            self._relay,
            clock=self.clock,
            backoff=Backoff(),
            rng=self.system.random,
        )
        self._following = self.background(follower.run(), name="follow")

    def _open(self, attempt: Attempt) -> KvEventStream:
        source = self._order.source
        if attempt.past is Past.ZMQ and source is not None and source.zmq is not None:
            from openengine_sidecar.actors.kv.zmq_stream import ZmqStream  # noqa: PLC0415 - needs an extra

            return ZmqStream(source.zmq, self._rank)
        snapshot = attempt.past is Past.SNAPSHOT
        return self._context.telling.client.subscribe_kv(self._rank, snapshot=snapshot, start=attempt.start)

    async def _answer(self, question: ControlRequest) -> msgspec.Raw:
        try:
            request = msgspec.convert(question.body, RecoveryRequest)
        except msgspec.ValidationError as error:
            return encode_answer(RecoveryAnswer(error=f"not understood: {error}"), question.codec)
        if question.endpoint != self._endpoint:
            return encode_answer(RecoveryAnswer(error="that publisher is gone"), question.codec)
        return await self._relay.answer(request, question.codec)

    def _repeat(self) -> None:
        if self._outlet.told == self._told:
            self._relay.repeat()
        self._told = self._outlet.told
        self.schedule("repeat", self._context.config.repeat_interval, Repeat())

    def _tell_counts(self) -> None:
        if counts := self._relay.take_counts():
            missing, self._relay.missing = self._relay.missing, 0
            self.publish(KvCounted(rank=self._rank, outcomes=counts, missing=missing))

    def _tell_following(self, detail: str, *, following: bool) -> None:
        self.publish(KvFollowing(rank=self._rank, following=following, detail=detail))

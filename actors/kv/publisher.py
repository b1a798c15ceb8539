"""KvPublisher: finds out where an engine tells of its cache, and keeps a RankPublisher for each rank."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import tenacity

from openengine_sidecar.actors.config import KvConfig, KvEvents
from openengine_sidecar.actors.kv.announcer import replaced
from openengine_sidecar.actors.kv.planning import KvOff, KvPlan, plan_events
from openengine_sidecar.actors.kv.rank_publisher import Follow, RankContext, RankPublisher
from openengine_sidecar.actors.kv.telling import Telling
from openengine_sidecar.messages.errors import DiscoveryError, EngineLostError
from openengine_sidecar.messages.facts import EngineDown, EngineUp, KvFollowing
from openengine_sidecar.messages.signals import Terminated
from openengine_sidecar.proto.dialect import EngineCallError
from openengine_sidecar.supervision import Actor, ChildSpec, Ref, Strategy, Supervisor

FIRST_TRIES = 3


class KvPublisher(Actor[EngineUp | EngineDown]):
    """Ready at once; only where events are required does its first start wait for them, and fail without.

    What goes wrong later turns events off and is said, and never ends the worker.
    """

    def __init__(self, telling: Telling, config: KvConfig) -> None:
        super().__init__()
        self._telling = telling
        self._config = config
        self._orders: dict[int, Follow] = {}
        self._shape: tuple[tuple[int, ...], int, int] | None = None
        self._ranks: Ref[Any] | None = None
        self._planning: asyncio.Task[None] | None = None

    async def on_start(self) -> None:
        """Follow the engine's comings and goings.

        Raises:
            DiscoveryError: events are required, and there are none.
        """
        up = self.system.facts.last(EngineUp)
        if self._config.events is KvEvents.REQUIRED and self.incarnation == 1 and up is not None:
            await self._require(up)
        self.subscribe(EngineUp, EngineDown)

    async def on_message(self, message: EngineUp | EngineDown) -> None:
        """Follow the engine that came, or none."""
        match message:
            case EngineUp():
                replaced(self._planning)
                self._planning = self.background(self._plan(message), name="plan")
            case EngineDown():
                if message.lost:
                    replaced(self._planning)
                    self._follow_none(f"the engine is lost: {message.cause}")

    async def on_terminated(self, terminated: Terminated) -> None:
        """The ranks' supervisor gave up: begin anew, from here."""
        if self._ranks is not None and terminated.address.path == self._ranks.path:
            self._ranks = None
            problem = f"the ranks ended: {terminated.cause}"
            raise RuntimeError(problem)

    async def _require(self, up: EngineUp) -> None:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(EngineCallError),
            stop=tenacity.stop_after_attempt(FIRST_TRIES),
            wait=tenacity.wait_fixed(1.0),
            sleep=self.clock.sleep,
            reraise=True,
        )
        try:
            found: KvPlan | KvOff = await retrying(self._ask, up)
        except EngineCallError as error:
            raise DiscoveryError(self._telling.client.endpoint, f"KV events are required: {error}") from error
        if isinstance(found, KvOff):
            raise DiscoveryError(self._telling.client.endpoint, f"KV events are required: {found.why}")

    async def _ask(self, up: EngineUp) -> KvPlan | KvOff:
        return await plan_events(self._telling.client, up, timeout=self._config.timeout)

    async def _plan(self, up: EngineUp) -> None:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(EngineCallError),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=10.0),
            before_sleep=self._say_waiting,
            sleep=self.clock.sleep,
        )
        try:
            found: KvPlan | KvOff = await retrying(self._ask, up)
        except EngineLostError:
            return  # told as a fact, too
        if isinstance(found, KvOff):
            self.log.log("ERROR" if found.fault else "INFO", "KV events are off: {}", found.why)
            self._follow_none(found.why)
        else:
            await self._follow(found, up.discovery.instance_id)

    def _say_waiting(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        self.log.warning("cannot ask for KV events yet: {}", error)
        self.publish(KvFollowing(rank=None, following=False, detail=str(error)))

    async def _follow(self, plan: KvPlan, instance: str) -> None:
        ranks = tuple(plan.sources)
        self._orders = {rank: Follow(source=source, instance=instance) for rank, source in plan.sources.items()}
        shape = (ranks, plan.block_size, self._config.index_blocks or plan.blocks)
        if shape == self._shape and self._ranks is not None:
            self._tell_ranks()
            return
        await self._end_ranks()
        self._shape = shape
        self._ranks = await self.spawn(self._ranks_spec(plan.block_size, shape[2]))
        self.log.info("KV events of {} ranks, blocks of {} tokens", len(ranks), plan.block_size)

    def _follow_none(self, why: str) -> None:
        self._orders = {rank: Follow(source=None, why=why) for rank in self._orders}
        self._tell_ranks()
        if not self._orders:
            self.publish(KvFollowing(rank=None, following=False, detail=why))

    def _tell_ranks(self) -> None:
        if self._ranks is not None:
            for rank, order in self._orders.items():
                self.system.ref(f"{self._ranks.path}/{_name(rank)}").tell(order)

    async def _end_ranks(self) -> None:
        ranks, self._ranks = self._ranks, None
        if ranks is not None:
            ranks.cancel("the engine has other ranks or blocks now")
            await ranks.stopped()

    def _ranks_spec(self, block_size: int, blocks: int) -> ChildSpec:
        context = RankContext(telling=self._telling, config=self._config, block_size=block_size, blocks=blocks)
        children = [ChildSpec(name=_name(rank), factory=partial(self._rank, context, rank)) for rank in self._orders]
        return ChildSpec(name="ranks", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=children))

    def _rank(self, context: RankContext, rank: int) -> RankPublisher:
        """A rank's actor, with the order that stands now: it may be a restart."""
        return RankPublisher(context, rank, self._orders[rank])


def _name(rank: int) -> str:
    return f"rank-{rank}"

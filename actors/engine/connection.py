"""EngineConnection: finds the engine, keeps the channels, watches its health."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import grpc.aio
import msgspec
import tenacity

from openengine_sidecar.actors.config import EngineConfig
from openengine_sidecar.actors.engine.canary import Canary
from openengine_sidecar.actors.engine.client import Attachment, EngineClient
from openengine_sidecar.actors.engine.describe import ask_health, describe, require_same_engine, serving_role
from openengine_sidecar.actors.engine.health import HealthPolicy, Verdict
from openengine_sidecar.messages.engine.control import Health, HealthState
from openengine_sidecar.messages.engine.discovery import Discovery
from openengine_sidecar.messages.errors import DiscoveryError
from openengine_sidecar.messages.facts import EngineDown, EngineHealth, EngineUp
from openengine_sidecar.messages.signals import Cause, Drain
from openengine_sidecar.proto.channels import open_channel
from openengine_sidecar.proto.dialect import Dialect, EngineCallError
from openengine_sidecar.supervision import Actor

CONFIRM_SPACING = 0.2
IDENTITY_EVERY = 5
UNREACHABLE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})


class Suspect(msgspec.Struct, frozen=True):
    """A stream broke. Asked: is the engine alive? The answer (bool) comes after a short burst of polls."""

    request_id: str


class EngineConnection(Actor[Suspect]):
    """The only owner of the channels.

    Ready when the engine answered discovery and says that it is ready; an outage afterwards is waited out inside one
    incarnation and told as EngineDown and EngineUp. Its start, and its watch, fail with DiscoveryError where the
    engine cannot be served, came back as another one, or was not ready before the startup deadline.
    """

    def __init__(
        self,
        config: EngineConfig,
        client: EngineClient,
        *,
        drain_engine: bool = False,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self._config = config
        self._client = client
        self._drain_engine = drain_engine
        self._busy = busy
        self._canary: Canary | None = None
        self._policy = HealthPolicy(misses=config.health_misses, degraded_is_ready=config.degraded_is_ready)
        self._channels: list[grpc.aio.Channel] = []
        self._dialect: Dialect
        self._discovery: Discovery | None = None
        self._said: EngineHealth | None = None
        self._told = Verdict.NOT_SERVING
        self._confirming: asyncio.Task[bool] | None = None

    async def on_start(self) -> None:
        """Open the channels and wait for a ready engine."""
        config = self._config
        self._channels = [open_channel(config) for _ in range(config.connections + 2)]
        await self._wait_for_engine()
        if config.canary:
            self._canary = Canary(
                wait=config.canary_wait,
                monotonic=self.clock.monotonic,
                begun=lambda: self._client.begun,
                busy=self._busy,
            )
        self.background(self._watch(), name="health watch")

    async def on_message(self, message: Suspect) -> asyncio.Task[bool]:
        """Answer a suspicion once the engine was asked again; concurrent suspicions share one burst."""
        if self._confirming is None or self._confirming.done():
            self.log.info("a stream of request {} broke: asking the engine how it is", message.request_id)
            self._confirming = self.background(self._confirm(), name="confirm")
        return self._confirming

    async def on_drain(self, drain: Drain) -> None:
        """Drain the engine too, only where the operator asked for it."""
        if not self._drain_engine:
            return
        left = max(0.0, drain.deadline - self.clock.monotonic())
        try:
            await self._dialect.drain(self._control, deadline_ms=int(left * 1000), timeout=left)
        except EngineCallError as error:
            self.log.warning("the engine did not drain: {}", error)

    async def on_stop(self, cause: Cause) -> None:
        """Close the channels; nobody may think that the engine is still watched."""
        if self._told is Verdict.SERVING:
            self.publish(EngineDown(cause=f"no longer watched: {cause}", lost=True))
        self._client.detach()
        await asyncio.gather(*(channel.close(None) for channel in self._channels))

    @property
    def _control(self) -> grpc.aio.Channel:
        return self._channels[-1]

    async def _wait_for_engine(self) -> None:
        config = self._config
        deadline = self.clock.monotonic() + config.startup_deadline
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type((EngineCallError, _NotReadyError)),
            stop=lambda _: self.clock.monotonic() + config.retry_interval > deadline,
            wait=tenacity.wait_fixed(config.retry_interval),
            before_sleep=self._say_waiting,
            sleep=self.clock.sleep,
        )
        try:
            await retrying(self._first_poll, deadline)
        except tenacity.RetryError as error:
            last = error.last_attempt.exception()
            problem = f"not ready within the startup deadline of {config.startup_deadline:g} s; last: {last}"
            raise DiscoveryError(config.endpoint, problem) from last

    def _say_waiting(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        self.log.warning("waiting for the engine at {}: {}", self._config.endpoint, error)

    async def _first_poll(self, deadline: float) -> None:
        left = max(self._config.retry_interval, deadline - self.clock.monotonic())
        health = await self._poll(min(self._config.connect_attempt_timeout, left), identify=True)
        if self._policy.verdict is not Verdict.SERVING:
            raise _NotReadyError(health)

    async def _watch(self) -> None:
        polls = 0
        while True:
            await self.clock.sleep(self._config.health_interval)
            polls += 1
            probe = self._canary is not None and self._canary.due
            await self._watchful_poll(identify=polls % IDENTITY_EVERY == 0, probe=probe)

    async def _confirm(self) -> bool:
        for attempt in range(self._config.health_misses):
            if attempt:
                await self.clock.sleep(CONFIRM_SPACING)
            await self._watchful_poll(identify=True)
            if self._policy.missed_in_row == 0:
                return True
        return False

    async def _watchful_poll(self, *, identify: bool, probe: bool = False) -> None:
        identify = identify or self._told is not Verdict.SERVING
        try:
            await self._poll(self._config.health_timeout, identify=identify, canary=self._canary if probe else None)
        except EngineCallError as error:
            self._policy.missed(reachable=isinstance(error, _ProbeError) or error.status not in UNREACHABLE)
            self._tell_health(HealthState.UNKNOWN, detail=str(error))
            self._tell_verdict()

    async def _poll(self, timeout: float, *, identify: bool, canary: Canary | None = None) -> Health:
        discovery = self._discovery
        if identify or discovery is None:
            self._dialect, discovery = await describe(self._control, self._config, timeout=timeout)
            if self._discovery is not None:
                require_same_engine(self._discovery, discovery, self._config.endpoint)
        health = await (self._ask(timeout) if canary is None else self._ask_for_run(canary))
        self._policy.answered(health.state)
        self._tell_health(health.state, checks=health)
        self._tell_verdict(discovery)
        return health

    async def _ask(self, timeout: float) -> Health:
        return await ask_health(self._dialect, self._control, timeout=timeout)

    async def _ask_for_run(self, canary: Canary) -> Health:
        """Ask for health with a real run of the model.

        Raises:
            EngineCallError: the call failed; _ProbeError where only the run may be to blame.
        """
        try:
            health = await ask_health(self._dialect, self._control, timeout=self._config.canary_timeout, probe=True)
        except EngineCallError as error:
            if error.status is grpc.StatusCode.UNIMPLEMENTED:
                canary.absent()
                return await self._ask(self._config.health_timeout)
            canary.failed()
            if error.status is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise _ProbeError(error.method, error.status, f"inference probe: {error.detail}") from error
            raise
        return Health(canary.judge(health), health.checks)

    def _tell_verdict(self, discovery: Discovery | None = None) -> None:
        """Tell what the answers add up to, if that is news. Polls may overlap; this never waits, so none is missed."""
        verdict = self._policy.verdict
        if verdict is not Verdict.SERVING:
            if verdict is not self._told:
                self._fall(verdict, self._why())
        elif discovery is not None and (verdict is not self._told or discovery != self._discovery):
            self._rise(discovery)

    def _rise(self, discovery: Discovery) -> None:
        self._told = Verdict.SERVING
        old, self._discovery = self._discovery, discovery
        if old is not None and old.instance_id != discovery.instance_id:
            self.log.warning("the engine is a new instance: {}, was {}", discovery.instance_id, old.instance_id)
        role = serving_role(discovery, self._config)
        *streams, events, control = self._channels
        self._client.attach(Attachment(self._dialect, streams, control, events))
        name = f"{discovery.engine_name} {discovery.engine_version}"
        self.log.info("engine {} is ready, model {}, role {}", name, discovery.model_id, role.value)
        self.publish(EngineUp(discovery=discovery, role=role))

    def _fall(self, verdict: Verdict, cause: str) -> None:
        self._told = verdict
        if verdict is Verdict.LOST:
            self._client.detach()
        self.log.warning("engine {}: {}", verdict.value, cause)
        self.publish(EngineDown(cause=cause, lost=verdict is Verdict.LOST))

    def _why(self) -> str:
        said = self._said
        return "no answer" if said is None else said.detail or f"it says {said.state.value}"

    def _tell_health(self, state: HealthState, *, checks: Health | None = None, detail: str = "") -> None:
        said = EngineHealth(
            state=state,
            checks=checks.checks if checks is not None else (),
            misses=self._policy.missed_in_row,
            detail=detail,
        )
        if said != self._said:
            self._said = said
            self.publish(said)


class _ProbeError(EngineCallError):
    """A real run took too long, which says nothing of the streams that run beside it."""


class _NotReadyError(Exception):
    """Discovery worked, and the engine says that it is not ready."""

    def __init__(self, health: Health) -> None:
        failing = ", ".join(f"{c.name}={c.state.value}" for c in health.checks if c.state is not HealthState.READY)
        super().__init__(f"it says {health.state.value}" + (f" ({failing})" if failing else ""))

"""The whole worker as one actor tree, for `serve` and for services that embed it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from openengine_sidecar.actors.config import KvEvents, SidecarConfig
from openengine_sidecar.actors.discovery.file_store import FileStore
from openengine_sidecar.actors.engine.client import EngineClient
from openengine_sidecar.actors.engine.connection import EngineConnection
from openengine_sidecar.actors.events.plane import EventPlane
from openengine_sidecar.actors.events.publisher import EventPublisher
from openengine_sidecar.actors.kv.load_watch import LoadWatch
from openengine_sidecar.actors.kv.publisher import KvPublisher
from openengine_sidecar.actors.kv.telling import Offices, Telling
from openengine_sidecar.actors.lora.controller import LoraContext, LoraController
from openengine_sidecar.actors.lora.engine import AdapterEngine
from openengine_sidecar.actors.lora.uses import AdapterUses
from openengine_sidecar.actors.registrar import Registrar
from openengine_sidecar.actors.reporter.actor import MAILBOX, Reporter
from openengine_sidecar.actors.requests.gate import MAILBOX as GATE_MAILBOX
from openengine_sidecar.actors.requests.gate import RequestGate
from openengine_sidecar.actors.requests.stream import StreamContext
from openengine_sidecar.messages.engine.discovery import Role
from openengine_sidecar.messages.errors import ConfigurationError, DiscoveryError
from openengine_sidecar.messages.facts import EngineUp
from openengine_sidecar.messages.signals import Cause
from openengine_sidecar.supervision import (
    INFINITY,
    ActorSystem,
    ChildSpec,
    Clock,
    Mailbox,
    RestartBudget,
    Strategy,
    Supervisor,
)

SERVING = "/sidecar/serving"
LORA = f"{SERVING}/extras/lora"
STREAMS_AT_ONCE = Mailbox(capacity=65_536)
"""Of EngineConnection: when the engine dies, every stream asks in the same turn of the loop whether it does."""
HOPELESS = (ConfigurationError, DiscoveryError)
"""No restart mends these: the worker ends and says why."""
NEVER_GIVE_UP = RestartBudget(max_restarts=1_000_000, window=1.0)
"""Of what must never touch a stream: whatever befalls it, it is restarted, with growing pauses."""
DEFAULT_RESTARTS = RestartBudget()


def sidecar_spec(config: SidecarConfig, system: ActorSystem, restarts: RestartBudget = DEFAULT_RESTARTS) -> ChildSpec:
    """The tree's root: Reporter beside Serving, which restarts from the failed child downwards."""
    loras = system.ref(LORA) if config.lora.enabled else None
    reporter = ChildSpec(
        name="reporter", factory=lambda: Reporter(config.reporter, config.identity, loras=loras), mailbox=MAILBOX
    )
    serving = ChildSpec(
        name="serving",
        factory=lambda: Supervisor(
            strategy=Strategy.REST_FOR_ONE,
            children=_serving_children(config, system),
            fatal=HOPELESS,
            budget=restarts,
        ),
        ready_timeout=INFINITY,
        shutdown=INFINITY,
    )
    return ChildSpec(
        name="sidecar",
        factory=lambda: Supervisor(
            strategy=Strategy.ONE_FOR_ONE, children=(reporter, serving), fatal=HOPELESS, budget=restarts
        ),
        ready_timeout=INFINITY,
        shutdown=INFINITY,
    )


def _busy(system: ActorSystem) -> bool:
    """Whether a request is in flight."""
    return any(status.path.startswith(f"{SERVING}/gate/") for status in system.snapshot())


def _role(config: SidecarConfig, system: ActorSystem) -> Role | None:
    """The role served as, for those who start after the engine's connection: it is known by then."""
    up = system.facts.last(EngineUp)
    return config.engine.role if up is None else up.role


def _serving_children(config: SidecarConfig, system: ActorSystem) -> tuple[ChildSpec, ...]:
    client = EngineClient(config.engine.endpoint)
    store = FileStore(config.discovery)  # one for all lives of the Registrar: it owns the records
    adapters = AdapterUses()
    context = StreamContext(
        client=client, connection=system.ref(f"{SERVING}/engine"), config=config.requests, adapters=adapters
    )
    extras = (*_events(config, client, system), *_lora(config, client, system, adapters))
    return (
        ChildSpec(
            name="engine",
            factory=lambda: EngineConnection(
                config.engine, client, drain_engine=config.drain.drain_engine, busy=lambda: _busy(system)
            ),
            ready_timeout=INFINITY,
            mailbox=STREAMS_AT_ONCE,
        ),
        ChildSpec(
            name="extras",
            factory=lambda: Supervisor(
                strategy=Strategy.ONE_FOR_ONE,
                children=extras,
                fatal=HOPELESS,
                programming_errors=(),
                budget=NEVER_GIVE_UP,
            ),
        ),
        ChildSpec(
            name="gate",
            factory=lambda: RequestGate(
                config.identity.serving(_role(config, system)), config.nats, context, config.admission, config.drain
            ),
            ready_timeout=INFINITY,
            shutdown=30.0,
            mailbox=GATE_MAILBOX,
        ),
        ChildSpec(
            name="registrar",
            factory=lambda: Registrar(
                config.identity.serving(_role(config, system)), config.model, store, system.ref(f"{SERVING}/gate")
            ),
        ),
    )


def _events(config: SidecarConfig, client: EngineClient, system: ActorSystem) -> tuple[ChildSpec, ...]:
    """What tells routers of the engine's cache and load, where that is wanted."""
    plane = EventPlane(config.kv.queue_blocks)  # one for all lives of its actors: what waits outlives them
    name = f"openengine-sidecar-events-{config.identity.instance_id:x}"
    offices = Offices(registrar=system.ref(f"{SERVING}/registrar"), gate=system.ref(f"{SERVING}/gate"))

    def telling() -> Telling:
        identity = config.identity.serving(_role(config, system))
        return Telling(identity=identity, client=client, plane=plane, offices=offices)

    kv = ChildSpec(name="kv", factory=lambda: KvPublisher(telling(), config.kv))
    load = ChildSpec(name="load", factory=lambda: LoadWatch(telling(), config.load))
    wanted = ([kv] if config.kv.events is not KvEvents.OFF else []) + ([load] if config.load.interval else [])
    events = ChildSpec(name="events", factory=lambda: EventPublisher(plane, config.nats, name=name))
    return (events, *wanted) if wanted else ()


def _lora(config: SidecarConfig, client: EngineClient, system: ActorSystem, uses: AdapterUses) -> tuple[ChildSpec, ...]:
    """What serves adapters, where that is wanted; without it every request for one is refused."""

    def controller() -> LoraController:
        context = LoraContext(
            config=config.lora,
            model=config.model,
            identity=config.identity.serving(_role(config, system)),
            engine=AdapterEngine(client, config.lora.load_timeout),
            uses=uses,
            registrar=system.ref(f"{SERVING}/registrar"),
            gate=system.ref(f"{SERVING}/gate"),
        )
        return LoraController(context)

    return (ChildSpec(name="lora", factory=controller, drain_reserve=1.0),) if config.lora.enabled else ()


class Sidecar:
    """One worker in the host's event loop.

    `async with Sidecar(config) as sidecar:` starts it, and drains it at the end.

    Args:
        config: everything it needs to know.
        clock: of every delay and deadline that is not the network's; by default the loop's.
        restarts: how many incidents each supervisor answers before the worker gives up.
    """

    def __init__(
        self, config: SidecarConfig, *, clock: Clock | None = None, restarts: RestartBudget = DEFAULT_RESTARTS
    ) -> None:
        self._config = config
        self._restarts = restarts
        self.system = ActorSystem(clock=clock)

    async def start(self) -> None:
        """Start the tree; the records follow at once, told by the fact Registered.

        Raises:
            DiscoveryError: the engine cannot be served, or did not come up before the startup deadline.
            ConfigurationError: the model directory is unusable.
        """
        await self.system.start(sidecar_spec(self._config, self.system, self._restarts))

    async def drain(self, reason: str, *, timeout: float | None = None) -> None:
        """De-register, serve what still arrives, let streams end, stop. A second call can only shorten it."""
        await self.system.drain(timeout=self._config.drain.timeout if timeout is None else timeout, reason=reason)

    async def terminated(self) -> Cause:
        """Wait for the end of the tree."""
        return await self.system.terminated()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.drain("the embedding service is done")

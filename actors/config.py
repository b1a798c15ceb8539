"""Frozen configuration of the actors, built once in `launch/` and passed by constructor. Durations are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from openengine_sidecar.actors.lora.config import LoraConfig
from openengine_sidecar.messages.engine.discovery import Role

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE
DEFAULT_COMPONENT = "backend"
PREFILL_COMPONENT = "prefill"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """Where this worker stands in Dynamo, and the instance id it draws once per process (positive, 63 bit).

    `component_by_role` lets a prefill worker whose component is the default one stand in PREFILL_COMPONENT instead.
    """

    instance_id: int
    namespace: str = "dynamo"
    component: str = DEFAULT_COMPONENT
    endpoint: str = "generate"
    component_by_role: bool = True

    def serving(self, role: Role | None) -> WorkerIdentity:
        """The identity of a worker of this role: the frontend pairs components, so the two halves need one each."""
        if role is Role.PREFILL and self.component_by_role and self.component == DEFAULT_COMPONENT:
            return replace(self, component=PREFILL_COMPONENT)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How the engine is reached, and how patiently."""

    endpoint: str  # host:port
    connections: int = 8
    connect_attempt_timeout: float = 30.0
    retry_interval: float = 1.0
    startup_deadline: float = 1800.0
    model: str | None = None  # None takes the only supported model
    role: Role | None = None  # None takes what the engine says
    schema_release: str | None = None  # exact pin; None accepts any immutable release
    health_interval: float = 2.0
    health_timeout: float = 5.0
    health_misses: int = 3  # misses in a row before the instance is withdrawn
    degraded_is_ready: bool = True
    canary: bool = False  # a real run of the model when nobody asked for one in a while
    canary_wait: float = 10.0
    canary_timeout: float = 3.0
    max_receive_bytes: int = 64 * MEBIBYTE
    max_send_bytes: int = 64 * MEBIBYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestConfig:
    """Bounds and manners of one request."""

    dial_timeout: float = 5.0
    opening_timeout: float = 600.0  # Generate sent, nothing heard yet
    idle_timeout: float | None = None  # silence between two events; None waits for ever
    abort_timeout: float = 5.0
    abort_attempts: int = 3
    decode_cancel_hold: float = 10.0  # how long a cancelled decode may wait for its engine to take the KV over
    max_session_bytes: int = 256 * KIBIBYTE  # of a KV session on its way from prefill to decode
    cancel_timeout: float = 2.0  # how long an aborted stream may take to end by itself before its call is cancelled
    max_frame_bytes: int = 64 * MEBIBYTE
    context_length: int | None = None  # overrides what the engine advertises
    drop_unsupported_hints: bool = False  # drop and count a hint (priority) instead of refusing it


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfig:
    """How many requests may be in flight at once; None is unbounded."""

    request_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsConfig:
    """The NATS request plane."""

    servers: tuple[str, ...] = ("nats://localhost:4222",)
    user: str = "user"
    password: str = field(default="user", repr=False)
    reconnect_wait: float = 2.0


class KvEvents(StrEnum):
    """Whether routers hear of the engine's cache: AUTO where the engine tells of it, REQUIRED or the worker ends."""

    AUTO = "auto"
    REQUIRED = "required"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class KvConfig:
    """KV events: from the engine to the routers."""

    events: KvEvents = KvEvents.AUTO
    live_only: bool = False  # no index that routers can ask for what they missed
    index_blocks: int | None = None  # most blocks of a rank's tier; None takes what the engine says
    queue_blocks: int = 65_536  # named by events that wait for the event plane; beyond it the oldest are dropped
    repeat_interval: float = 5.0  # silence after which the newest event is said again
    timeout: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """The engine's load: from its polls to routers and gauges."""

    interval: float = 1.0  # 0 polls never
    timeout: float = 5.0
    age_limit: float = 5.0  # how long a number holds


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The model card's ingredients."""

    path: Path
    served_name: str | None = None  # None takes the engine's
    aliases: tuple[str, ...] = ()
    endpoint_types: tuple[str, ...] = ("chat", "completions")
    custom_template: Path | None = None
    context_length: int | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    exclude_tools_when_tool_choice_none: bool = True
    max_loras: int | None = None  # adapters that the engine holds at once, for routers; None says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiscoveryConfig:
    """The file discovery backend."""

    root: Path
    heartbeat: float = 10.0 / 3
    time_to_live: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainConfig:
    """Graceful shutdown."""

    grace: float = 5.0
    timeout: float = 50.0
    drain_engine: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterConfig:
    """The system HTTP port; None is off."""

    port: int | None = None
    host: str = "127.0.0.1"
    health_path: str = "/health"
    live_path: str = "/live"
    ignore_engine: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarConfig:
    """Everything one worker needs."""

    identity: WorkerIdentity
    engine: EngineConfig
    model: ModelConfig
    discovery: FileDiscoveryConfig
    nats: NatsConfig = NatsConfig()
    requests: RequestConfig = RequestConfig()
    admission: AdmissionConfig = AdmissionConfig()
    drain: DrainConfig = DrainConfig()
    kv: KvConfig = KvConfig()
    load: LoadConfig = LoadConfig()
    lora: LoraConfig = field(default_factory=LoraConfig)
    reporter: ReporterConfig = ReporterConfig()

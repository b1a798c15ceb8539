"""Health, load and abort in the words of the sidecar."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class HealthState(StrEnum):
    """Health of an engine. UNKNOWN stands for a number this build does not know: not ready."""

    UNKNOWN = "unknown"
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    DRAINING = "draining"
    NOT_READY = "not_ready"


class HealthCheck(msgspec.Struct, frozen=True):
    """One named check of an engine."""

    name: str
    state: HealthState
    message: str = ""


class Health(msgspec.Struct, frozen=True):
    """An engine's answer to a health question."""

    state: HealthState
    checks: tuple[HealthCheck, ...] = ()


class AbortOutcome(StrEnum):
    """What became of an abort. GONE covers already finished and not found; UNSUPPORTED: stop sending aborts."""

    ABORTED = "aborted"
    GONE = "gone"
    UNSUPPORTED = "unsupported"
    UNSPECIFIED = "unspecified"


class RankLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Load of one data-parallel rank; absent is unavailable, 0 is a measured zero."""

    rank: int | None = None
    running_requests: int | None = None
    queued_requests: int | None = None
    used_kv_blocks: int | None = None
    total_kv_blocks: int | None = None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Load of an engine, whole and per rank."""

    instance_id: str = ""
    timestamp_unix_nanos: int | None = None
    running_requests: int | None = None
    queued_requests: int | None = None
    active_kv_sessions: int | None = None
    used_kv_blocks: int | None = None
    total_kv_blocks: int | None = None
    ranks: tuple[RankLoad, ...] = ()

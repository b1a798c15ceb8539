"""Facts that flow up the tree as events: published once, heard by whoever subscribed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from openengine_sidecar.messages.dynamo.cards import ModelCard
from openengine_sidecar.messages.engine.control import HealthCheck, HealthState, RankLoad
from openengine_sidecar.messages.engine.discovery import Discovery, Role
from openengine_sidecar.messages.engine.generation import Usage


class EngineUp(msgspec.Struct, frozen=True, kw_only=True):
    """The engine answered discovery and is ready to serve. `role` is what this worker serves as."""

    discovery: Discovery
    role: Role


class EngineDown(msgspec.Struct, frozen=True, kw_only=True):
    """The engine is gone, or not serving. `lost`: it no longer answers, its streams are dead too."""

    cause: str
    lost: bool


class EngineHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine last said of itself; sent on change. `misses`: polls in a row without an answer."""

    state: HealthState
    checks: tuple[HealthCheck, ...] = ()
    misses: int = 0
    detail: str = ""


class PlaneState(msgspec.Struct, frozen=True, kw_only=True):
    """The request plane's connection came up or went down."""

    connected: bool
    detail: str = ""


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """This worker's records stand in the discovery store; `card` is that of its model."""

    model: str
    instance_id: int
    card: ModelCard


class Withdrawn(msgspec.Struct, frozen=True, kw_only=True):
    """This worker's records were taken out of the discovery store."""

    cause: str


class Outcome(StrEnum):
    """How one request ended."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"
    REFUSED = "refused"


class KvEnd(StrEnum):
    """What became of the KV that one half of a disaggregated request answered for.

    DELIVERED: the prefill's session went up to the frontend. TAKEN: the decode engine has it. ABORTED: the prefill was
    aborted before there was a session. RELEASED: the engine freed it, told by session. GONE: the engine did not know
    it any more. LEFT: nobody could free it, the engine's own time-out will.
    """

    DELIVERED = "delivered"
    TAKEN = "taken"
    ABORTED = "aborted"
    RELEASED = "released"
    GONE = "gone"
    LEFT = "left"


class HoldEnd(StrEnum):
    """What ended the wait of a cancelled decode for its engine to take the KV over."""

    FIRST_TOKEN = "first_token"  # noqa: S105 - a moment, not a secret
    TERMINAL = "terminal"
    DEADLINE = "deadline"
    SHUTDOWN = "shutdown"


GAP_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the buckets in which gaps between tokens are counted, seconds; longer ones have a bucket more."""


class TokenGaps(msgspec.Struct, frozen=True):
    """Gaps between the tokens of one request: how many fell into each bucket, and their sum in seconds."""

    counts: tuple[int, ...]
    seconds: float


class StreamEnded(msgspec.Struct, frozen=True, kw_only=True):
    """One request ended.

    Attributes:
        error: class name of the error for FAILED and REFUSED, else empty.
        rule: the contract's rule that the engine broke, else empty.
        aborts: logical aborts by request id sent to the engine: 0 or 1.
        kv: what became of the KV of a disaggregated request; None where there was none to answer for.
        hold: what ended the hold of a cancelled decode; None where nothing was held.
        ttft: seconds from acknowledgement to the first token, None without one.
        duration: seconds from acknowledgement to the end.
        gaps: between its tokens; None with fewer than two.
        oddities: what the engine did that the contract forbids and that cost nothing, by name.
        dropped: hints of the request that the engine does not know and that were left out.
    """

    request_id: str
    outcome: Outcome
    error: str = ""
    rule: str = ""
    reason: str = ""
    usage: Usage | None = None
    output_tokens: int = 0
    aborts: int = 0
    kv: KvEnd | None = None
    hold: HoldEnd | None = None
    ttft: float | None = None
    duration: float = 0.0
    gaps: TokenGaps | None = None
    oddities: dict[str, int] = {}
    dropped: tuple[str, ...] = ()


class EventPlaneState(msgspec.Struct, frozen=True, kw_only=True):
    """The event plane's connection came up or went down."""

    connected: bool
    detail: str = ""


class KvFollowing(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the KV events of a rank reach routers, and how; None stands for all ranks."""

    rank: int | None
    following: bool
    detail: str = ""


class KvCounted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of KV events of one rank since this was last said.

    Attributes:
        outcomes: numbers by outcome.
        missing: batches that the engine sent and that did not arrive.
    """

    rank: int
    outcomes: Mapping[str, int]
    missing: int = 0


class LoadSample(msgspec.Struct, frozen=True, kw_only=True):
    """The load of every rank that is known now; a rank that is missing is not known. Sent on change."""

    ranks: tuple[RankLoad, ...]

"""What an adapter's machine is asked, what it hears, and what it wants done.

The machine decides, and does nothing itself: it hands out effects. Those in `EVENTS` are orders: each is answered by
exactly one event, sooner or later. The others are not answered, and `AwaitEngine` never leaves the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from openengine_sidecar.messages.dynamo.lora import LoraAnswer
from openengine_sidecar.messages.engine.lora import LoraAdapter


class Phase(StrEnum):
    """Where an adapter stands, as people are told."""

    ABSENT = "absent"
    FETCHING = "fetching"
    LOADING = "loading"
    LIVE = "live"  # requests may use it
    UNLOADING = "unloading"
    FAILED = "failed"  # nobody may use it, and the engine or a card may say otherwise, or it is wanted back


class Load(msgspec.Struct, frozen=True):
    """Somebody wants the adapter live; `caller` is answered once."""

    caller: object
    uri: str


class Unload(msgspec.Struct, frozen=True):
    """Somebody wants the adapter gone; `caller` is answered once."""

    caller: object


Ask = Load | Unload


class Fetched(msgspec.Struct, frozen=True):
    """The adapter lies in a directory, and stays there until its `Release`."""

    path: str


class FetchFailed(msgspec.Struct, frozen=True):
    """The adapter could not be fetched, or the fetch was cancelled."""

    problem: str


class EngineLoaded(msgspec.Struct, frozen=True):
    """The engine holds the adapter."""


class EngineUnloaded(msgspec.Struct, frozen=True):
    """The engine does not hold the adapter; `found`: it did until now."""

    found: bool = True


class EngineRefused(msgspec.Struct, frozen=True):
    """The engine said no and did nothing; `featureless`: it has no such call at all."""

    problem: str
    featureless: bool = False


class EngineFailed(msgspec.Struct, frozen=True):
    """A call failed so that nobody knows what the engine did."""

    problem: str


class Published(msgspec.Struct, frozen=True):
    """The adapter's card stands in discovery."""


class PublishFailed(msgspec.Struct, frozen=True):
    """The adapter's card does not stand in discovery."""

    problem: str


class Withdrawn(msgspec.Struct, frozen=True):
    """The adapter's card no longer stands in discovery."""


class WithdrawFailed(msgspec.Struct, frozen=True):
    """Nobody knows whether the adapter's card still stands in discovery."""

    problem: str


class Quiet(msgspec.Struct, frozen=True):
    """No request uses the adapter any more, or the time for that is up."""


class EngineBack(msgspec.Struct, frozen=True):
    """An engine answers; `engine_back` says it."""


EngineEvent = EngineLoaded | EngineUnloaded | EngineRefused | EngineFailed
Event = (
    Fetched | FetchFailed | EngineEvent | Published | PublishFailed | Withdrawn | WithdrawFailed | Quiet | EngineBack
)


class Fetch(msgspec.Struct, frozen=True):
    """Fetch from an address."""

    name: str
    uri: str


class CancelFetch(msgspec.Struct, frozen=True):
    """Stop the fetch under way; it is still answered."""

    name: str
    reason: str


class LoadEngine(msgspec.Struct, frozen=True):
    """Call LoadLora."""

    adapter: LoraAdapter


class UnloadEngine(msgspec.Struct, frozen=True):
    """Call UnloadLora."""

    name: str


class Publish(msgspec.Struct, frozen=True):
    """Publish the adapter's card, or write it again."""

    adapter: LoraAdapter


class Withdraw(msgspec.Struct, frozen=True):
    """Withdraw the adapter's card, whether it stands or not."""

    name: str


class Quiesce(msgspec.Struct, frozen=True):
    """Wait until no request uses the adapter; no new one may."""

    name: str


class AwaitEngine(msgspec.Struct, frozen=True):
    """Wait until `engine_back`."""

    name: str


class Hold(msgspec.Struct, frozen=True):
    """Keep the directory of an adapter that was loaded by somebody else, where it lies in our cache."""

    adapter: LoraAdapter


class Release(msgspec.Struct, frozen=True):
    """The directory is not needed any more, as far as this adapter goes."""

    name: str
    path: str


class Answer(msgspec.Struct, frozen=True):
    """Answer one caller."""

    caller: object
    answer: LoraAnswer


class Report(msgspec.Struct, frozen=True):
    """Tell the operator: this went wrong, and nobody may have asked."""

    name: str
    problem: str


Task = Fetch | LoadEngine | UnloadEngine | Publish | Withdraw | Quiesce
Order = Task | AwaitEngine
Effect = Task | CancelFetch | Hold | Release | Answer | Report

EVENTS: Mapping[type[Order], tuple[type[Event], ...]] = {
    Fetch: (Fetched, FetchFailed),
    LoadEngine: (EngineLoaded, EngineRefused, EngineFailed),
    UnloadEngine: (EngineUnloaded, EngineRefused, EngineFailed),
    Publish: (Published, PublishFailed),
    Withdraw: (Withdrawn, WithdrawFailed),
    Quiesce: (Quiet,),
    AwaitEngine: (EngineBack,),
}
"""What may answer each order."""

"""LoRA adapters in the words of the sidecar."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class LoraAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter; an engine tells it from others by all three together.

    As an engine lists it, it may be anything. To be loaded (openengine.v1, LoRA lifecycle):

    Attributes:
        name: what requests select it by; not empty.
        id: above 0.
        path: absolute directory, as the engine sees the file system.
    """

    name: str
    id: int
    path: str


class LoraStatus(StrEnum):
    """What an engine answered to an adapter call. Whatever is not an answer is an EngineCallError."""

    DONE = "done"
    ALREADY_LOADED = "already_loaded"  # the very same adapter was there before
    CONFLICT = "conflict"  # another adapter has its name, or its id
    NOT_FOUND = "not_found"
    DISABLED = "disabled"  # the engine was started without adapters
    UNSUPPORTED = "unsupported"  # the engine has no such call: do not ask again


class LoraOutcome(msgspec.Struct, frozen=True):
    """The answer to a load or an unload; `detail` is the engine's text, fit to be shown."""

    status: LoraStatus
    detail: str = ""


class LoraListing(msgspec.Struct, frozen=True):
    """The answer to a list: DONE with the adapters, or DISABLED or UNSUPPORTED without."""

    status: LoraStatus
    adapters: tuple[LoraAdapter, ...] = ()
    detail: str = ""

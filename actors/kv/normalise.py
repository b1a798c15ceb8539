"""From an engine's events to operations on the index: everything that can be wrong with them is found here.

A batch is translated whole before any of it is applied. One that breaks a rule costs its rank what is known of it, and
nothing else: it comes back as `Invalid`, never as an exception. What routers could not match is left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from openengine_sidecar.actors.kv.extra_keys import media_by_block
from openengine_sidecar.actors.kv.hashes import external_hash, tokens_hashes
from openengine_sidecar.actors.kv.outcomes import Outcome
from openengine_sidecar.messages.dynamo.events import StorageTier, StoredBlock
from openengine_sidecar.messages.engine.kv import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KvEvent,
    Medium,
    UnknownEvent,
)

TIERS: Final = {
    Medium.GPU: StorageTier.DEVICE,
    Medium.CPU_PINNED: StorageTier.HOST_PINNED,
    Medium.DISK: StorageTier.DISK,
    Medium.EXTERNAL: StorageTier.EXTERNAL,
}

WHOLE_PREFIX_KINDS: Final = frozenset({"", "full_attention", "mla_attention", "sink_full_attention"})
"""Kinds of cache groups whose blocks stand for the whole prefix; the same that Dynamo's own readers take."""


class Store(msgspec.Struct, frozen=True, gc=False):
    """A chain of blocks below a parent, None at the start of a sequence."""

    tier: StorageTier
    parent: int | None
    blocks: Sequence[StoredBlock]


class Remove(msgspec.Struct, frozen=True, gc=False):
    """Blocks that a tier no longer holds."""

    tier: StorageTier
    hashes: Sequence[int]


class Clear(msgspec.Struct, frozen=True):
    """Nothing is held any more."""


Operation = Store | Remove | Clear


class Normalised(msgspec.Struct, frozen=True):
    """What a batch comes to, and one outcome for each of its events, applied or left out."""

    operations: Sequence[Operation]
    outcomes: Sequence[Outcome]


class Invalid(msgspec.Struct, frozen=True):
    """A batch broke a rule."""

    rule: Outcome
    problem: str


class Normaliser:
    """Translates the batches of one rank.

    Args:
        block_size: tokens in a block, as the model card says it to routers.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._groups: set[int] = set()

    def reset(self) -> None:
        """Forget which groups were seen: what follows may come from another engine."""
        self._groups.clear()

    def translate(self, events: Iterable[KvEvent]) -> Normalised | Invalid:
        """Check the events of a batch and say what they do."""
        operations: list[Operation] = []
        outcomes: list[Outcome] = []
        for event in events:
            translated = self._event(event)
            match translated:
                case Invalid():
                    return translated
                case Outcome():
                    outcomes.append(translated)
                case _:
                    operations.append(translated)
                    outcomes.append(_APPLIED[type(translated)])
        return Normalised(operations, outcomes)

    def _event(self, event: KvEvent) -> Operation | Outcome | Invalid:
        match event:
            case BlockStored():
                return self._stored(event)
            case BlockRemoved():
                return self._removed(event)
            case AllBlocksCleared():
                return Clear()
            case UnknownEvent():
                return Outcome.IGNORED_KIND

    def _stored(self, event: BlockStored) -> Store | Outcome | Invalid:
        if not event.hashes and not event.token_ids:
            return Outcome.EMPTY
        if event.spec_kind not in WHOLE_PREFIX_KINDS or event.sliding_window:
            return Outcome.IGNORED_GROUP  # before the sizes: such a group may have its own
        self._groups.add(event.group)
        return self._broken_rule(event) or self._store(event)

    def _store(self, event: BlockStored) -> Store | Outcome | Invalid:
        tier, media = TIERS.get(event.medium), media_by_block(event)
        if tier is None:
            return Outcome.IGNORED_MEDIUM
        if event.lora_id and not event.lora_name:
            return Outcome.IGNORED_ADAPTER
        if media is None:
            return Outcome.IGNORED_KEY
        try:
            contents = tokens_hashes(event.token_ids, self._block_size, lora_name=event.lora_name, media=media)
        except ValueError as error:
            return Invalid(Outcome.WRONG_TOKEN_ID, str(error))
        parent = external_hash(event.parent) if event.parent is not None else None
        return Store(tier, parent, list(map(StoredBlock, map(external_hash, event.hashes), contents)))

    def _broken_rule(self, event: BlockStored) -> Invalid | None:
        if event.block_size != self._block_size:
            problem = f"blocks of {event.block_size} tokens, registered with {self._block_size}"
            return Invalid(Outcome.WRONG_BLOCK_SIZE, problem)
        if len(event.token_ids) != len(event.hashes) * self._block_size:
            problem = f"{len(event.token_ids)} tokens for {len(event.hashes)} blocks of {self._block_size}"
            return Invalid(Outcome.WRONG_TOKEN_COUNT, problem)
        return None

    def _removed(self, event: BlockRemoved) -> Remove | Outcome:
        if not event.hashes:
            return Outcome.EMPTY
        if event.group not in self._groups:
            return Outcome.IGNORED_GROUP
        tier = TIERS.get(event.medium)
        if tier is None:
            return Outcome.IGNORED_MEDIUM
        return Remove(tier, [external_hash(block) for block in event.hashes])


_APPLIED: Final[Mapping[type[Operation], Outcome]] = {
    Store: Outcome.STORED,
    Remove: Outcome.REMOVED,
    Clear: Outcome.CLEARED,
}

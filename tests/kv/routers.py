"""A router's index of one rank, as 1.6.1 was seen to keep it, but intolerant: what a router would skip fails here."""

from __future__ import annotations

from collections.abc import Iterable

from openengine_sidecar.messages.dynamo.events import (
    CLEARED,
    Change,
    EventData,
    Removed,
    RouterEvent,
    StorageTier,
    Stored,
)

Blocks = dict[int, tuple[int | None, int]]


class Router:
    """Parent and content of every block that the router has, for each tier; and the id it has come to."""

    def __init__(self) -> None:
        self.tiers: dict[StorageTier, Blocks] = {tier: {} for tier in StorageTier}
        self.last_id = 0

    @property
    def device(self) -> Blocks:
        return self.tiers[StorageTier.DEVICE]

    def hear(self, events: Iterable[RouterEvent]) -> None:
        """Takes published events, which must come without a hole."""
        for event in events:
            assert event.event.event_id == self.last_id + 1
            self.last_id += 1
            self.apply(event.storage_tier, event.event.data)

    def apply(self, tier: StorageTier, data: EventData) -> None:
        if data == CLEARED:
            for blocks in self.tiers.values():
                blocks.clear()
            return
        assert isinstance(data, Change)
        if isinstance(data.stored, Stored):
            self._store(tier, data.stored)
        if isinstance(data.removed, Removed):
            self._remove(tier, data.removed)

    def _store(self, tier: StorageTier, stored: Stored) -> None:
        blocks, parent = self.tiers[tier], stored.parent_hash
        assert stored.blocks
        for block in stored.blocks:
            assert block.block_hash not in blocks
            assert tier is not StorageTier.DEVICE or parent is None or parent in blocks
            blocks[block.block_hash] = parent, block.tokens_hash
            parent = block.block_hash

    def _remove(self, tier: StorageTier, removed: Removed) -> None:
        blocks = self.tiers[tier]
        assert removed.block_hashes
        for block_hash in removed.block_hashes:
            del blocks[block_hash]
            if tier is StorageTier.DEVICE:
                assert all(parent != block_hash for parent, _ in blocks.values())

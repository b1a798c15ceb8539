"""Engine events in few words: blocks are named by small numbers, four tokens each."""

from __future__ import annotations

from typing import Any

from openengine_sidecar.messages.dynamo.events import CLEARED, RouterEvent
from openengine_sidecar.messages.engine.kv import (
    AllBlocksCleared,
    BlockHash,
    BlockRemoved,
    BlockStored,
    KvBatch,
    KvEvent,
)

BLOCK_SIZE = 4
CLEAR_ALL = AllBlocksCleared()


def name(number: int) -> BlockHash:
    return BlockHash(str(number).encode(), "decimal_int64")


def store(parent: int | None, *hashes: int, **changes: Any) -> BlockStored:
    fields: dict[str, Any] = {
        "hashes": tuple(map(name, hashes)),
        "token_ids": [token for block in hashes for token in [block] * BLOCK_SIZE],
        "block_size": BLOCK_SIZE,
        "parent": None if parent is None else name(parent),
        **changes,
    }
    return BlockStored(**fields)


def remove(*hashes: int, **changes: Any) -> BlockRemoved:
    return BlockRemoved(hashes=tuple(map(name, hashes)), **changes)


def batch(sequence: int, *events: KvEvent, rank: int = 0) -> KvBatch:
    return KvBatch(sequence=sequence, rank=rank, events=events)


def brief(event: RouterEvent) -> str | tuple[Any, ...]:
    """A router's event in as few words: `cleared`, (tier, parent, blocks) or (tier, blocks)."""
    data = event.event.data
    if isinstance(data, str):
        assert data == CLEARED
        return data
    if data.stored:
        return event.storage_tier.value, data.stored.parent_hash, [block.block_hash for block in data.stored.blocks]
    assert data.removed
    return event.storage_tier.value, list(data.removed.block_hashes)

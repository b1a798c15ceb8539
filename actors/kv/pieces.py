"""Changes of a size that can be sent."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from openengine_sidecar.messages.dynamo.events import Change, Removed, Stored


def pieces(change: Change, most: int) -> Iterator[Change]:
    """Cut a change into changes of at most so many blocks; together and in order they are the same."""
    if change.stored is not UNSET and len(change.stored.blocks) > most:
        parent, blocks = change.stored.parent_hash, change.stored.blocks
        for start in range(0, len(blocks), most):
            piece = blocks[start : start + most]
            yield Change(stored=Stored(parent_hash=parent, blocks=piece))
            parent = piece[-1].block_hash
    elif change.removed is not UNSET and len(change.removed.block_hashes) > most:
        hashes = change.removed.block_hashes
        for start in range(0, len(hashes), most):
            yield Change(removed=Removed(hashes[start : start + most]))
    else:
        yield change

"""What one rank holds, kept as routers keep it: always exactly what they were told.

On the device a router finds a block only along its chain of parents. When a block goes, the router forgets everything
below it without a word, and does not find it again when the block comes back. So a device block is told while its
chain to the start of the sequence is whole: blocks cut off are taken back, and told anew once the chain is mended.
Lower tiers are looked up by parent and content, wherever the parent lies, so there every block is told.

An engine may hold a block several times and say so each time; it is gone when it was removed as often as stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from openengine_sidecar.messages.dynamo.events import Change, Removed, StorageTier, Stored, StoredBlock


class RankIndex:
    """The tiers of one rank.

    Args:
        limit: most blocks in a tier; beyond it the ends of chains go, the longest known first. A block costs about half
            a kilobyte.
    """

    def __init__(self, limit: int) -> None:
        self._tiers = {tier: TierIndex(limit, rooted=tier is StorageTier.DEVICE) for tier in StorageTier}

    def __getitem__(self, tier: StorageTier) -> TierIndex:
        return self._tiers[tier]

    @property
    def size(self) -> int:
        """Blocks in all tiers."""
        return sum(map(len, self._tiers.values()))

    def clear(self) -> bool:
        """Forget everything; False where routers know of nothing anyway."""
        known = any(tier.told for tier in self._tiers.values())
        for tier in self._tiers.values():
            tier.clear()
        return known

    def dump(self) -> Iterator[tuple[StorageTier, Change]]:
        """All that routers were told, as the fewest changes, parents before children."""
        for tier, index in self._tiers.items():
            for stored in index.dump():
                yield tier, Change(stored=stored)


class _Block(msgspec.Struct, gc=False):
    """A held block. `holders` counts how often; `told` whether routers know of it."""

    parent: int | None
    tokens_hash: int
    holders: int = 1
    told: bool = False


class TierIndex:
    """One tier: a forest of blocks, linked by the hashes of their parents, present or not.

    What `store` and `remove` return is what routers must hear. The length counts all blocks, told or not.

    Args:
        limit: most blocks, at least 1.
        rooted: whether only whole chains are told.
    """

    def __init__(self, limit: int, *, rooted: bool) -> None:
        self._limit = limit
        self._rooted = rooted
        self._blocks: dict[int, _Block] = {}
        self._children: dict[int | None, dict[int, None]] = {}
        self._leaves: OrderedDict[int, None] = OrderedDict()
        self.told = 0
        """Blocks that routers know of."""

    def __len__(self) -> int:
        return len(self._blocks)

    def store(self, parent: int | None, blocks: Iterable[StoredBlock]) -> list[Change]:
        """Take in a chain below `parent`. A hash known with another parent or content stands for a new block."""
        fresh: list[int] = []
        gone: list[int] = []
        for given in blocks:
            known = self._blocks.get(given.block_hash)
            if known is not None and (known.parent, known.tokens_hash) == (parent, given.tokens_hash):
                known.holders += 1
            else:
                if known is not None:
                    gone += self._drop(given.block_hash)
                self._insert(given.block_hash, parent, given.tokens_hash)
                fresh.append(given.block_hash)
            parent = given.block_hash
        return [*_removed(gone), *self._tell(fresh), *self._shrink()]

    def remove(self, hashes: Iterable[int]) -> list[Change]:
        """Take blocks out, where nobody else holds them."""
        gone: list[int] = []
        for block_hash in hashes:
            block = self._blocks.get(block_hash)
            if block is None:
                continue
            block.holders -= 1
            if not block.holders:
                gone += self._drop(block_hash)
        return _removed(gone)

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()
        self._children.clear()
        self._leaves.clear()
        self.told = 0

    def dump(self) -> Iterator[Stored]:
        """What was told, as chains, each after the one that it hangs on."""
        for parent, children in self._children.items():
            if parent is None or not (self._rooted or parent in self._blocks):
                for child in children:
                    yield from self._chains(child, untold=False)

    def _insert(self, block_hash: int, parent: int | None, tokens_hash: int) -> None:
        self._blocks[block_hash] = _Block(parent, tokens_hash)
        self._children.setdefault(parent, {})[block_hash] = None
        if parent is not None:
            self._leaves.pop(parent, None)
        if block_hash not in self._children:
            self._leaves[block_hash] = None

    def _drop(self, block_hash: int) -> list[int]:
        """Takes one block out; returns the told blocks that routers must give up, children before parents."""
        taken_back = self._take_back(block_hash)
        block = self._blocks.pop(block_hash)
        self._leaves.pop(block_hash, None)
        siblings = self._children[block.parent]
        del siblings[block_hash]
        if not siblings:
            del self._children[block.parent]
            if block.parent is not None and block.parent in self._blocks:
                self._leaves[block.parent] = None
        return taken_back

    def _take_back(self, block_hash: int) -> list[int]:
        """Marks a block, and on a rooted tier all below it, as not told; returns those that were."""
        found: list[int] = []
        pending = [block_hash]
        while pending:
            current = pending.pop()
            block = self._blocks[current]
            if not block.told:
                continue
            block.told = False
            found.append(current)
            if self._rooted:
                pending += self._children.get(current, ())
        self.told -= len(found)
        found.reverse()
        return found

    def _tell(self, fresh: Iterable[int]) -> list[Change]:
        """Marks new blocks as told, and the untold ones that hang on them, where their chain is whole."""
        return [
            Change(stored=stored)
            for block_hash in fresh
            if self._is_tellable(self._blocks[block_hash])
            for stored in self._chains(block_hash, untold=True)
        ]

    def _is_tellable(self, block: _Block) -> bool:
        if block.told:
            return False
        if not self._rooted or block.parent is None:
            return True
        parent = self._blocks.get(block.parent)
        return parent is not None and parent.told

    def _chains(self, head: int, *, untold: bool) -> Iterator[Stored]:
        """A block and those below it; of the untold ones only, which are marked as told, or of all."""
        pending = [head]
        while pending:
            below = [pending.pop()]
            parent = self._blocks[below[0]].parent
            chain: list[StoredBlock] = []
            while len(below) == 1:
                current = below[0]
                block = self._blocks[current]
                if untold:
                    block.told = True
                    self.told += 1
                chain.append(StoredBlock(current, block.tokens_hash))
                children = self._children.get(current, ())
                below = [child for child in children if not (untold and self._blocks[child].told)]
            pending += reversed(below)
            yield Stored(parent_hash=parent, blocks=chain)

    def _shrink(self) -> list[Change]:
        gone: list[int] = []
        while len(self._blocks) > self._limit:
            gone += self._drop(next(iter(self._leaves or self._blocks)))
        return _removed(gone)


def _removed(hashes: Sequence[int]) -> list[Change]:
    return [Change(removed=Removed(hashes))] if hashes else []

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openengine_sidecar.actors.kv.index import RankIndex, TierIndex
from openengine_sidecar.messages.dynamo.events import (
    Change,
    Removed,
    RouterEvent,
    StorageTier,
    Stored,
    StoredBlock,
)
from tests.kv.routers import Blocks, Router

DEVICE, HOST = StorageTier.DEVICE, StorageTier.HOST_PINNED
HASHES = st.integers(1, 9)
CHAINS = st.tuples(st.sampled_from(StorageTier), st.none() | HASHES, st.lists(HASHES, min_size=1, max_size=4))


def blocks(*hashes: int, salt: int = 0) -> list[StoredBlock]:
    return [StoredBlock(block_hash, block_hash * 100 + salt) for block_hash in hashes]


def stored(parent: int | None, *hashes: int) -> Change:
    return Change(stored=Stored(parent_hash=parent, blocks=blocks(*hashes)))


def removed(*hashes: int) -> Change:
    return Change(removed=Removed(list(hashes)))


def tier(limit: int = 100, *, rooted: bool = True) -> TierIndex:
    return TierIndex(limit, rooted=rooted)


def dumped(index: TierIndex) -> list[Change]:
    return [Change(stored=chain) for chain in index.dump()]


def test_a_chain_is_told_whole_and_what_is_known_is_not_told_again() -> None:
    index = tier()
    assert index.store(None, blocks(1, 2, 3)) == [stored(None, 1, 2, 3)]
    assert index.store(None, blocks(1, 2, 3)) == []
    assert index.store(2, blocks(3, 4)) == [stored(3, 4)]
    assert dumped(index) == [stored(None, 1, 2, 3, 4)]


def test_a_block_without_its_parent_is_told_when_the_parent_comes() -> None:
    index = tier()
    assert index.store(1, blocks(2, 3)) == []
    assert (len(index), index.told, dumped(index)) == (2, 0, [])
    assert index.store(None, blocks(1)) == [stored(None, 1, 2, 3)]
    assert index.told == 3


def test_blocks_cut_off_are_taken_back_and_told_anew_when_the_chain_is_mended() -> None:
    index = tier()
    index.store(None, blocks(1, 2, 3))
    index.store(2, blocks(4))
    assert index.remove([2]) == [removed(3, 4, 2)]
    assert dumped(index) == [stored(None, 1)]
    assert index.store(1, blocks(2)) == [stored(1, 2), stored(2, 3), stored(2, 4)]


def test_children_are_removed_before_their_parents_in_whatever_order_the_engine_names_them() -> None:
    index = tier()
    index.store(None, blocks(1, 2, 3))
    assert index.remove([1, 2, 3]) == [removed(3, 2, 1)]
    assert len(index) == 0


def test_a_block_held_twice_is_gone_when_it_was_removed_twice() -> None:
    index = tier()
    index.store(None, blocks(1))
    index.store(None, blocks(1))
    assert index.remove([1]) == []
    assert index.remove([1]) == [removed(1)]
    assert index.remove([1]) == []


def test_a_hash_used_for_another_block_replaces_the_old_one() -> None:
    index = tier()
    index.store(None, blocks(1, 2))
    other = blocks(1, salt=7)
    assert index.store(None, other) == [
        removed(2, 1),
        Change(stored=Stored(parent_hash=None, blocks=[*other, *blocks(2)])),
    ]
    assert index.remove([1]) == [removed(2, 1)]


def test_a_chain_that_bites_its_tail_is_never_told() -> None:
    index = tier(limit=3)
    assert index.store(1, blocks(1)) == []
    assert index.store(3, blocks(2, 3)) == []
    assert index.store(None, blocks(9)) == [stored(None, 9), removed(9)]
    assert len(index) == 3


def test_a_lower_tier_tells_every_block_and_takes_back_only_what_was_removed() -> None:
    index = tier(rooted=False)
    assert index.store(5, blocks(6, 7)) == [stored(5, 6, 7)]
    assert index.remove([6]) == [removed(6)]
    assert dumped(index) == [stored(6, 7)]
    assert index.store(5, blocks(6)) == [stored(5, 6)]
    assert dumped(index) == [stored(5, 6, 7)]


def test_beyond_its_limit_the_end_known_longest_goes_first_and_no_root_before_its_chain() -> None:
    index = tier(limit=4)
    index.store(None, blocks(1, 2))
    index.store(1, blocks(3))
    index.store(None, blocks(4))
    assert index.store(3, blocks(5)) == [stored(3, 5), removed(2)]
    assert index.store(5, blocks(6)) == [stored(5, 6), removed(4)]
    assert dumped(index) == [stored(None, 1, 3, 5, 6)]


def test_a_chain_longer_than_the_limit_keeps_its_beginning() -> None:
    index = tier(limit=2)
    assert index.store(None, blocks(1, 2, 3, 4)) == [stored(None, 1, 2, 3, 4), removed(4, 3)]


def test_tiers_hold_the_same_block_apart() -> None:
    index = RankIndex(100)
    index[DEVICE].store(None, blocks(1))
    index[HOST].store(None, blocks(1))
    assert index[HOST].remove([1]) == [removed(1)]
    assert list(index.dump()) == [(DEVICE, stored(None, 1))]


def test_clearing_says_whether_routers_knew_of_anything() -> None:
    index = RankIndex(100)
    assert not index.clear()
    index[DEVICE].store(9, blocks(1))
    assert not index.clear()
    index[HOST].store(9, blocks(1))
    assert index.clear()
    assert list(index.dump()) == []
    assert index[DEVICE].store(None, blocks(1)) == [stored(None, 1)]


def test_a_long_chain_is_no_deep_recursion() -> None:
    index = tier(limit=20_000)
    index.store(None, blocks(*range(1, 10_001)))
    assert index.remove([1]) == [removed(*range(10_000, 0, -1))]
    assert index.store(None, blocks(1)) == [stored(None, *range(1, 10_001))]


class Truth:
    """What a tier holds, by definition: nothing here is clever."""

    def __init__(self, *, rooted: bool) -> None:
        self._rooted = rooted
        self._held: dict[int, tuple[int | None, int, int]] = {}

    def store(self, parent: int | None, chain: Sequence[StoredBlock]) -> None:
        for block in chain:
            old = self._held.get(block.block_hash)
            same = old is not None and old[:2] == (parent, block.tokens_hash)
            self._held[block.block_hash] = (parent, block.tokens_hash, old[2] + 1 if old and same else 1)
            parent = block.block_hash

    def remove(self, hashes: Sequence[int]) -> None:
        for block_hash in hashes:
            if block_hash in self._held:
                parent, content, holders = self._held.pop(block_hash)
                if holders > 1:
                    self._held[block_hash] = parent, content, holders - 1

    def told(self) -> Blocks:
        return {name: (parent, content) for name, (parent, content, _) in self._held.items() if self._whole(name)}

    def _whole(self, name: int) -> bool:
        return not self._rooted or any(end is None for end in self._ancestors(name))

    def _ancestors(self, name: int | None) -> Iterator[int | None]:
        for _ in range(len(self._held) + 1):
            if name not in self._held:
                break
            name = self._held[name][0]
            yield name


@given(st.lists(CHAINS | st.tuples(st.sampled_from(StorageTier), st.lists(HASHES, min_size=1, max_size=4))))
def test_a_router_that_heard_everything_and_one_that_asks_now_know_the_same(operations: list[Any]) -> None:
    index, live = RankIndex(100), Router()
    truth = {tier: Truth(rooted=tier is DEVICE) for tier in StorageTier}
    for where, *rest in operations:
        if len(rest) == 2:
            parent, hashes = rest
            chain = blocks(*hashes, salt=len(hashes) % 2)
            changes = index[where].store(parent, chain)
            truth[where].store(parent, chain)
        else:
            changes = index[where].remove(rest[0])
            truth[where].remove(rest[0])
        for change in changes:
            live.apply(where, change)
        assert live.tiers == {tier: truth[tier].told() for tier in StorageTier}
        assert [index[tier].told for tier in StorageTier] == [len(live.tiers[tier]) for tier in StorageTier]
    late = Router()
    for where, change in index.dump():
        late.apply(where, change)
    assert late.device == live.device
    assert all(late.tiers[tier].items() <= live.tiers[tier].items() for tier in StorageTier)


@given(st.lists(CHAINS, max_size=40), st.integers(1, 6))
def test_no_tier_ever_outgrows_its_limit_and_routers_are_told(chains: list[Any], limit: int) -> None:
    index, live = RankIndex(limit), Router()
    for where, parent, hashes in chains:
        for change in index[where].store(parent, blocks(*hashes)):
            live.apply(where, change)
        assert len(index[where]) <= limit
        assert index[where].told == len(live.tiers[where])


def library_tree() -> Any:
    return pytest.importorskip("dynamo._core").RadixTree()


def give(tree: Any, number: int, data: Any, *, rank: int = 0) -> None:
    event = {"event_id": number, "dp_rank": rank, "data": msgspec.to_builtins(data)}
    tree.apply_event(1, json.dumps(event).encode())


@given(st.lists(st.tuples(st.none() | HASHES, st.lists(HASHES, min_size=1, max_size=4)) | st.lists(HASHES, min_size=1)))
def test_the_installed_librarys_tree_takes_every_change_without_complaint(operations: list[Any]) -> None:
    index, tree, number = tier(), library_tree(), 0
    for operation in operations:
        changes = (
            index.store(operation[0], blocks(*operation[1]))
            if isinstance(operation, tuple)
            else index.remove(operation)
        )
        for change in changes:
            number += 1
            give(tree, number, change)
    ours, theirs = Router(), Router()
    for chain in dumped(index):
        ours.apply(DEVICE, chain)
    for event in tree.dump_tree_as_events():
        theirs.apply(DEVICE, msgspec.json.decode(event, type=RouterEvent).event.data)
    assert ours.device == theirs.device


def test_clearing_one_rank_leaves_the_other_alone_in_the_installed_librarys_tree() -> None:
    tree = library_tree()
    for rank in (0, 1):
        give(tree, 1, stored(None, 1, 2), rank=rank)
    give(tree, 2, "cleared")
    assert tree.find_matches([100, 200]).scores == {(1, 1): 2}

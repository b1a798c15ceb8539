from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from openengine_sidecar.launch.engine.prefix import Block, Hold, Namespace, PrefixCache
from tests.engine.caller import Caller, ask, serving

LONG = "x" * 60


async def cached(caller: Caller, request_id: str, text: str = LONG, **fields: Any) -> int:
    answer = await caller.generate(ask(text, request_id, stopping={"max_tokens": 1}, **fields))
    return int(answer.last.usage.cached_prompt_tokens)


async def test_a_repeated_prompt_is_cached_in_whole_blocks(caller: Caller) -> None:
    assert await cached(caller, "1") == 0
    assert await cached(caller, "2") == 48
    assert await cached(caller, "3", LONG + "y" * 40) == 48


@pytest.mark.parametrize(
    "other",
    [
        {"kv": {"cache_salt": "tenant"}},
        {"kv": {"bypass_prefix_cache": True}},
        {"kv": {"data_parallel_rank": 1}},
        {"media": [{"modality": "MODALITY_IMAGE", "url": "http://x/1"}]},
    ],
)
async def test_what_keeps_prefixes_apart(other: dict[str, Any]) -> None:
    async with serving(data_parallel_size=2) as (_, caller):
        rank: dict[str, Any] = {"kv": {"data_parallel_rank": 0}}
        assert await cached(caller, "1", **rank) == 0
        assert await cached(caller, "2", **rank) > 0
        apart = {"kv": {**rank["kv"], **other.get("kv", {})}, **{k: v for k, v in other.items() if k != "kv"}}
        assert await cached(caller, "3", **apart) == 0


async def test_a_salt_is_a_namespace_of_its_own(caller: Caller) -> None:
    salted: dict[str, Any] = {"kv": {"cache_salt": "tenant"}}
    assert [await cached(caller, str(n), **salted) for n in range(2)] == [0, 48]


async def test_a_bypassed_prompt_is_stored_all_the_same(caller: Caller) -> None:
    assert await cached(caller, "1", kv={"bypass_prefix_cache": True}) == 0
    assert await cached(caller, "2") == 48


class Book:
    """A cache of blocks of two tokens, and what it said."""

    def __init__(self, capacity: int = 100) -> None:
        self.cache = PrefixCache(2, capacity, self._changed)
        self.said: list[tuple[list[list[int]], list[list[int]]]] = []

    def _changed(self, removed: Sequence[Block], stored: Sequence[Block]) -> None:
        self.said.append(([list(block.tokens) for block in removed], [list(block.tokens) for block in stored]))

    def hold(self, *ids: int, bypass: bool = False) -> Hold:
        return self.cache.hold(ids, Namespace(), bypass=bypass)

    def use(self, *ids: int) -> int:
        hold = self.hold(*ids)
        hold.release()
        return hold.cached_tokens


def test_the_last_token_is_always_computed() -> None:
    book = Book()
    assert [book.use(1, 2, 3, 4) for _ in range(2)] == [0, 2]
    assert book.use(1, 2, 3, 4, 5) == 4


def test_the_least_recently_used_block_leaves_first() -> None:
    book = Book(capacity=2)
    for start in (0, 10, 0, 20):
        book.use(start, start + 1, 99)
    assert book.use(0, 1, 99) == 2
    assert book.use(10, 11, 99) == 0


def test_a_step_tells_what_left_and_what_came_and_nothing_when_nothing_did() -> None:
    book = Book(capacity=3)
    book.use(1, 2, 3, 4)
    book.use(1, 2, 3, 4, 5)
    book.use(1, 2, 5, 6, 7, 8)
    assert book.said == [([], [[1, 2], [3, 4]]), ([[3, 4]], [[5, 6], [7, 8]])]


def test_tokens_that_follow_fill_further_blocks() -> None:
    book = Book()
    hold = book.hold(1, 2, 3)
    for token in (4, 5, 6):
        hold.take([token])
    assert book.said == [([], [[1, 2]]), ([], [[3, 4]]), ([], [[5, 6]])]
    hold.release()
    assert book.use(1, 2, 3, 4, 5, 6, 7) == 6
    parents = {tuple(block.tokens): block.parent for block in book.cache}
    keys = {tuple(block.tokens): block.key for block in book.cache}
    assert parents == {(1, 2): None, (3, 4): keys[1, 2], (5, 6): keys[3, 4]}


def test_what_is_held_stays_and_what_finds_no_place_is_forgotten_with_all_that_follows() -> None:
    book = Book(capacity=2)
    hold = book.hold(1, 2)
    other = book.hold(3, 4, 5, 6)
    other.take([7, 8])
    assert (len(book.cache), book.cache.held) == (2, 2)
    assert [list(block.tokens) for block in book.cache] == [[1, 2], [3, 4]]
    hold.release()
    assert book.use(3, 4, 5, 6, 7) == 2
    other.release()
    other.release()
    assert book.cache.held == 0


def test_a_block_held_twice_is_free_once_both_let_go() -> None:
    book = Book(capacity=1)
    first, second = book.hold(1, 2), book.hold(1, 2)
    first.release()
    assert book.use(3, 4) == 0
    assert book.said == [([], [[1, 2]])]
    second.release()
    book.use(3, 4)
    assert book.said[-1] == ([[1, 2]], [[3, 4]])


def test_ends_of_chains_leave_before_their_beginnings() -> None:
    book = Book(capacity=3)
    book.use(1, 2, 3, 4, 5, 6)
    book.use(7, 8)
    book.use(9, 10)
    assert [removed for removed, _ in book.said if removed] == [[[5, 6]], [[3, 4]]]


def test_clearing_keeps_what_is_held() -> None:
    book = Book()
    hold = book.hold(1, 2)
    book.use(3, 4)
    book.cache.clear()
    assert [list(block.tokens) for block in book.cache] == [[1, 2]]
    hold.release()


def test_namespaces_keep_equal_tokens_apart() -> None:
    cache = PrefixCache(2, 100)
    cache.hold([1, 2, 3], Namespace(b"a"))
    assert cache.hold([1, 2, 3], Namespace(b"b")).cached_tokens == 0
    assert cache.hold([1, 2, 3], Namespace(b"a")).cached_tokens == 2

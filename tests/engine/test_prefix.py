from __future__ import annotations

from typing import Any

import pytest
from tests.engine.caller import Caller, ask, serving

from openengine_sidecar.launch.engine.prefix import PrefixCache

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


def test_the_last_token_is_always_computed() -> None:
    cache = PrefixCache(block_size=4, capacity=100)
    assert [cache.take(range(8), b"", bypass=False) for _ in range(2)] == [0, 4]
    assert cache.take(range(9), b"", bypass=False) == 8


def test_the_least_recently_used_block_leaves_first() -> None:
    cache = PrefixCache(block_size=2, capacity=2)
    for start in (0, 10, 0, 20):
        cache.take([start, start + 1, 99], b"", bypass=False)
    assert cache.take([0, 1, 99], b"", bypass=False) == 2
    assert cache.take([10, 11, 99], b"", bypass=False) == 0

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openengine_sidecar.actors.kv.outcomes import Outcome
from openengine_sidecar.actors.kv.rank import Fed, RankFeed
from openengine_sidecar.messages.dynamo.events import RecoveryRequest, StorageTier, TreeDump
from openengine_sidecar.messages.engine.kv import KvBatch, Medium, UnknownEvent
from tests.kv.batches import BLOCK_SIZE, CLEAR_ALL, batch, brief, remove, store
from tests.kv.routers import Router

WORKER = 77


def feed(**options: Any) -> RankFeed:
    return RankFeed(WORKER, 0, BLOCK_SIZE, **options)


def told(fed: Fed) -> list[Any]:
    return [brief(event) for event in fed.events]


def dump(rank: RankFeed) -> Router:
    tree = rank.answer(RecoveryRequest(worker_id=WORKER, dp_rank=0)).tree_dump
    assert isinstance(tree, TreeDump)
    router = Router()
    for event in tree.events:
        router.apply(event.storage_tier, event.event.data)
    router.last_id = tree.last_event_id
    return router


def test_c54_batches_in_order_are_applied_and_an_empty_one_counts() -> None:
    rank = feed()
    assert told(rank.take(batch(1, store(None, 1, 2)))) == [("device", None, [1, 2])]
    assert told(rank.take(batch(2))) == []
    assert told(rank.take(batch(3, store(2, 3), remove(3)))) == [("device", 2, [3]), ("device", [3])]


def test_c55_a_gap_clears_the_rank_and_the_batch_behind_it_counts() -> None:
    rank = feed()
    rank.take(batch(3, store(None, 1)))
    fed = rank.take(batch(5, store(None, 2), store(1, 9)))
    assert told(fed) == ["cleared", ("device", None, [2])]
    assert (fed.lost, list(fed.outcomes)) == (True, [Outcome.GAP, Outcome.STORED, Outcome.STORED])
    assert list(dump(rank).device) == [2]


def test_c55_a_duplicate_or_lower_number_is_ignored_and_counted() -> None:
    rank = feed()
    rank.take(batch(3, store(None, 1)))
    for number in (3, 2):
        assert rank.take(batch(number, CLEAR_ALL)) == Fed(outcomes=(Outcome.REPEATED_BATCH,))


def test_c55_a_new_instance_clears_first_whatever_number_it_starts_with() -> None:
    rank = feed()
    rank.take(batch(40, store(None, 1)), "one")
    fed = rank.take(batch(1, store(None, 2)), "two")
    assert told(fed) == ["cleared", ("device", None, [2])]
    assert (fed.lost, fed.outcomes[0]) == (False, Outcome.RESTART)
    assert told(rank.take(batch(2, remove(2)), "two")) == [("device", [2])]


def test_c55_a_granted_replay_that_starts_too_late_is_a_gap() -> None:
    rank = feed()
    assert rank.subscribed(4) == []
    assert rank.take(batch(6, store(None, 1))).lost


def test_c56_a_new_subscription_clears_and_starts_anywhere() -> None:
    rank = feed()
    rank.take(batch(50, store(None, 1)))
    assert list(map(brief, rank.subscribed())) == ["cleared"]
    fed = rank.take(batch(1, store(None, 2)))
    assert (told(fed), fed.lost) == ([("device", None, [2])], False)


def test_f31_one_gap_no_duplicate_no_loop() -> None:
    rank = feed()
    numbers = [1, 2, 5, 5, 3, 4, 6]
    results = [rank.take(batch(number, store(None, number))) for number in numbers]
    assert [fed.lost for fed in results] == [False, False, True, False, False, False, False]
    counted = Counter(outcome for fed in results for outcome in fed.outcomes)
    assert counted == {Outcome.STORED: 4, Outcome.GAP: 1, Outcome.REPEATED_BATCH: 3}
    assert sorted(dump(rank).device) == [5, 6]


def test_f31_the_repair_may_bring_the_same_batches_again() -> None:
    rank = feed()
    for number in (1, 2, 5):
        rank.take(batch(number, store(None, number)))
    rank.subscribed(1)
    results = [rank.take(batch(number, store(None, number))) for number in (1, 2, 3, 4, 5, 6)]
    assert not any(fed.lost for fed in results)
    assert sorted(dump(rank).device) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        pytest.param(batch(2, store(None, 3), rank=1), Outcome.WRONG_RANK, id="c57_wrong_rank"),
        pytest.param(batch(2, store(None, 3, block_size=0)), Outcome.WRONG_BLOCK_SIZE, id="c57_block_size_0"),
        pytest.param(batch(2, store(None, 3, token_ids=[1])), Outcome.WRONG_TOKEN_COUNT, id="c57_token_count"),
        pytest.param(
            batch(2, store(None, 3), store(None, 4, token_ids=[-1] * 4)), Outcome.WRONG_TOKEN_ID, id="token_id"
        ),
    ],
)
def test_an_invalid_batch_costs_the_rank_a_clear_and_the_stream_goes_on(bad: KvBatch, rule: Outcome) -> None:
    rank = feed()
    rank.take(batch(1, store(None, 1)))
    fed = rank.take(bad)
    assert (told(fed), list(fed.outcomes), fed.lost) == (["cleared"], [rule], False)
    assert fed.problem
    after = rank.take(batch(3, store(None, 5)))
    assert (told(after), after.lost) == ([("device", None, [5])], False)


def test_an_invalid_batch_behind_a_gap_clears_once_and_still_asks_for_repair() -> None:
    rank = feed()
    rank.take(batch(1, store(None, 1)))
    fed = rank.take(batch(3, store(None, 2, block_size=1)))
    assert (told(fed), fed.lost) == (["cleared"], True)
    assert list(fed.outcomes) == [Outcome.GAP, Outcome.WRONG_BLOCK_SIZE]


def test_c58_all_blocks_cleared_empties_every_tier_of_the_rank() -> None:
    rank = feed()
    rank.take(batch(1, store(None, 1), store(None, 1, medium=Medium.DISK)))
    assert told(rank.take(batch(2, CLEAR_ALL, store(None, 2)))) == ["cleared", ("device", None, [2])]
    assert told(rank.take(batch(3, remove(2)))) == [("device", [2])]


def test_c58_what_leaves_a_lower_tier_stays_on_the_device_and_the_other_way_round() -> None:
    rank = feed()
    both = (store(None, 1), store(None, 1, medium=Medium.CPU_PINNED))
    rank.take(batch(1, *both))
    assert told(rank.take(batch(2, remove(1, medium=Medium.CPU_PINNED)))) == [("host_pinned", [1])]
    assert 1 in dump(rank).device
    rank.take(batch(3, *both))
    rank.take(batch(4, remove(1), remove(1)))
    router = dump(rank)
    assert (list(router.device), list(router.tiers[StorageTier.HOST_PINNED])) == ([], [1])


def test_f33_the_same_tokens_with_and_without_an_adapter_are_two_entries() -> None:
    rank = feed()
    tokens = {"token_ids": [1] * BLOCK_SIZE}
    rank.take(batch(1, store(None, 1, **tokens), store(None, 2, lora_name="a", lora_id=3, **tokens)))
    contents = [content for _, content in dump(rank).device.values()]
    assert len(set(contents)) == 2


def test_clearing_what_routers_do_not_know_is_not_worth_a_word() -> None:
    rank = feed()
    assert rank.clear() == []
    assert rank.take(batch(1, CLEAR_ALL)).events == []
    rank.take(batch(2, store(None, 1)))
    assert list(map(brief, rank.clear())) == ["cleared"]
    assert rank.clear() == []


def test_what_was_learnt_in_the_batch_behind_a_gap_is_kept() -> None:
    rank = feed()
    rank.take(batch(1, store(None, 1)))
    rank.take(batch(3, store(None, 2, group=4)))
    assert told(rank.take(batch(4, remove(2, group=4)))) == [("device", [2])]


HASHES = st.integers(1, 6)
ODD = {
    "medium": st.sampled_from(Medium),
    "group": st.integers(0, 1),
    "spec_kind": st.sampled_from(["", "full_attention", "mamba"]),
    "lora_id": st.integers(0, 1),
    "lora_name": st.sampled_from(["", "a"]),
    "block_size": st.sampled_from([BLOCK_SIZE, 0]),
    "token_ids": st.lists(st.integers(-1, 2**32), max_size=8),
    "extra_keys": st.lists(st.lists(st.sampled_from(["trt_mm_v1", "0", "7", "x"]), max_size=4).map(tuple)).map(tuple),
}
EVENTS = st.one_of(
    st.builds(
        lambda parent, hashes, changes: store(parent, *hashes, **changes),
        st.none() | HASHES,
        st.lists(HASHES, max_size=3),
        st.fixed_dictionaries({}, optional=ODD),
    ),
    st.builds(
        lambda hashes, changes: remove(*hashes, **changes),
        st.lists(HASHES, max_size=3),
        st.fixed_dictionaries({}, optional={"medium": ODD["medium"], "group": ODD["group"]}),
    ),
    st.sampled_from([CLEAR_ALL, UnknownEvent()]),
)
BATCHES = st.builds(
    lambda number, events, rank: batch(number, *events, rank=rank),
    st.integers(0, 9),
    st.lists(EVENTS, max_size=3),
    st.sampled_from([0, 0, 0, 1]),
)


@given(st.lists(st.tuples(BATCHES, st.sampled_from(["", "one", "two"])), max_size=20))
def test_whatever_an_engine_sends_routers_hear_a_stream_that_makes_sense(batches: list[tuple[KvBatch, str]]) -> None:
    rank, router = feed(blocks=5, window=10), Router()
    for one, instance in batches:
        fed = rank.take(one, instance)
        router.hear(fed.events)
        assert fed.outcomes or not one.events
        late = dump(rank)
        assert (late.device, late.last_id) == (router.device, router.last_id)

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from openengine_sidecar.actors.kv.hashes import tokens_hashes
from openengine_sidecar.actors.kv.normalise import Clear, Invalid, Normalised, Normaliser, Remove, Store
from openengine_sidecar.actors.kv.outcomes import Outcome
from openengine_sidecar.messages.dynamo.events import StorageTier
from openengine_sidecar.messages.engine.kv import BlockHash, BlockRemoved, BlockStored, KvEvent, Medium, UnknownEvent
from tests.kv.batches import BLOCK_SIZE, CLEAR_ALL, remove, store

TOKENS = [1, 1, 1, 1, 2, 2, 2, 2]


def translate(*events: KvEvent) -> Normalised:
    translated = Normaliser(BLOCK_SIZE).translate(events)
    assert isinstance(translated, Normalised)
    assert len(translated.outcomes) == len(events)
    return translated


def contents(event: BlockStored) -> list[int]:
    (operation,) = translate(event).operations
    assert isinstance(operation, Store)
    return [block.tokens_hash for block in operation.blocks]


def media(*keys: tuple[str, ...]) -> dict[str, Any]:
    return {"extra_keys": keys}


def test_a_chain_becomes_blocks_by_name_and_content() -> None:
    (operation,) = translate(store(9, 1, 2)).operations
    assert isinstance(operation, Store)
    assert (operation.tier, operation.parent) == (StorageTier.DEVICE, 9)
    assert [block.block_hash for block in operation.blocks] == [1, 2]
    assert [block.tokens_hash for block in operation.blocks] == tokens_hashes(TOKENS, BLOCK_SIZE)


def test_c58_names_of_any_encoding_go_through_the_same_door() -> None:
    opaque = BlockHash(b"\x01\xff", "v2_sha256_64")
    chain = msgspec.structs.replace(store(None, 1), hashes=(opaque,), parent=opaque)
    stored, removed = translate(chain, BlockRemoved(hashes=(opaque,))).operations
    assert isinstance(stored, Store)
    assert isinstance(removed, Remove)
    assert [stored.parent, *removed.hashes] == [stored.blocks[0].block_hash] * 2


@pytest.mark.parametrize(
    ("medium", "tier"),
    [
        (Medium.GPU, StorageTier.DEVICE),
        (Medium.CPU_PINNED, StorageTier.HOST_PINNED),
        (Medium.DISK, StorageTier.DISK),
        (Medium.EXTERNAL, StorageTier.EXTERNAL),
    ],
)
def test_c58_media_become_tiers_for_what_comes_and_for_what_goes(medium: Medium, tier: StorageTier) -> None:
    operations = translate(store(None, 1, medium=medium), remove(1, medium=medium)).operations
    assert [operation.tier for operation in operations if not isinstance(operation, Clear)] == [tier, tier]


def test_c58_all_blocks_cleared_empties_the_rank() -> None:
    assert translate(CLEAR_ALL) == Normalised([Clear()], [Outcome.CLEARED])


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        pytest.param(store(None), Outcome.EMPTY, id="c58_empty_block_stored"),
        pytest.param(store(None, block_size=0), Outcome.EMPTY, id="c58_empty_block_stored_without_a_size"),
        pytest.param(remove(), Outcome.EMPTY, id="empty_block_removed"),
        pytest.param(UnknownEvent(), Outcome.IGNORED_KIND, id="unknown_event"),
        pytest.param(store(None, 1, medium=Medium.UNKNOWN), Outcome.IGNORED_MEDIUM, id="unknown_medium"),
        pytest.param(store(None, 1, spec_kind="sliding_window"), Outcome.IGNORED_GROUP, id="c58_sliding_window"),
        pytest.param(store(None, 1, spec_kind="new kind"), Outcome.IGNORED_GROUP, id="c58_unknown_spec_kind"),
        pytest.param(store(None, 1, sliding_window=128), Outcome.IGNORED_GROUP, id="c58_window_without_a_kind"),
        pytest.param(store(None, 1, spec_kind="mamba", block_size=528), Outcome.IGNORED_GROUP, id="c58_own_size"),
        pytest.param(store(None, 1, lora_id=7), Outcome.IGNORED_ADAPTER, id="adapter_without_a_name"),
        pytest.param(store(None, 1, **media(("new_tag", "0"))), Outcome.IGNORED_KEY, id="c58_unknown_tag"),
        pytest.param(store(None, 1, **media(("trt_mm_v1", "0", "5"))), Outcome.IGNORED_KEY, id="c58_short_key"),
        pytest.param(store(None, 1, **media(("trt_mm_v1", "1", "5", "0"))), Outcome.IGNORED_KEY, id="no_such_block"),
        pytest.param(store(None, 1, **media(("trt_mm_v1", "0", "-5", "0"))), Outcome.IGNORED_KEY, id="signed_hash"),
        pytest.param(
            store(None, 1, **media(("trt_mm_v1", "0", str(2**64), "0"))), Outcome.IGNORED_KEY, id="hash_too_large"
        ),
        pytest.param(store(None, 1, **media(("trt_mm_v1", "²", "5", "0"))), Outcome.IGNORED_KEY, id="odd_digits"),
    ],
)
def test_what_routers_cannot_use_is_left_out_and_counted(event: KvEvent, outcome: Outcome) -> None:
    assert translate(event) == Normalised([], [outcome])


@pytest.mark.parametrize("kind", ["full_attention", "mla_attention", "sink_full_attention"])
def test_a_group_that_sees_the_whole_prefix_counts_whatever_its_number(kind: str) -> None:
    translated = translate(store(None, 1, spec_kind=kind, group=3), remove(1, group=3))
    assert translated.outcomes == [Outcome.STORED, Outcome.REMOVED]


def test_c58_removals_of_an_ignored_group_do_not_touch_the_same_hash_of_another() -> None:
    translated = translate(
        store(None, 1, group=0, spec_kind="full_attention"),
        store(None, 1, group=1, spec_kind="sliding_window"),
        remove(1, group=1),
    )
    assert translated.outcomes == [Outcome.STORED, Outcome.IGNORED_GROUP, Outcome.IGNORED_GROUP]


def test_groups_are_remembered_from_batch_to_batch_until_they_are_forgotten() -> None:
    normaliser = Normaliser(BLOCK_SIZE)
    normaliser.translate([store(None, 1, group=2)])
    assert normaliser.translate([remove(1, group=2)]) == Normalised(
        [Remove(StorageTier.DEVICE, [1])], [Outcome.REMOVED]
    )
    normaliser.reset()
    assert normaliser.translate([remove(1, group=2)]) == Normalised([], [Outcome.IGNORED_GROUP])


@pytest.mark.parametrize(
    ("event", "rule"),
    [
        pytest.param(store(None, 1, block_size=0), Outcome.WRONG_BLOCK_SIZE, id="c57_block_size_0"),
        pytest.param(store(None, 1, block_size=8), Outcome.WRONG_BLOCK_SIZE, id="c57_not_the_cards_size"),
        pytest.param(store(None, 1, token_ids=[1] * 3), Outcome.WRONG_TOKEN_COUNT, id="c57_too_few_tokens"),
        pytest.param(store(None, 1, token_ids=[1] * 8), Outcome.WRONG_TOKEN_COUNT, id="c57_too_many_tokens"),
        pytest.param(store(None, token_ids=[1] * 4), Outcome.WRONG_TOKEN_COUNT, id="c57_tokens_without_a_hash"),
        pytest.param(store(None, 1, token_ids=[]), Outcome.WRONG_TOKEN_COUNT, id="c57_hash_without_tokens"),
        pytest.param(store(None, 1, token_ids=[1, 1, 1, -1]), Outcome.WRONG_TOKEN_ID, id="negative_token"),
        pytest.param(store(None, 1, token_ids=[2**32] * 4), Outcome.WRONG_TOKEN_ID, id="token_of_33_bits"),
    ],
)
def test_a_broken_rule_costs_the_whole_batch(event: KvEvent, rule: Outcome) -> None:
    translated = Normaliser(BLOCK_SIZE).translate([store(None, 5), event, store(None, 6)])
    assert isinstance(translated, Invalid)
    assert translated.rule is rule
    assert translated.problem


def test_f33_the_adapters_name_is_hashed_and_its_number_is_not() -> None:
    base, adapted = store(None, 1, 2), store(None, 1, 2, lora_name="a", lora_id=1)
    assert contents(base) == tokens_hashes(TOKENS, BLOCK_SIZE)
    assert contents(adapted) == tokens_hashes(TOKENS, BLOCK_SIZE, lora_name="a")
    assert contents(store(None, 1, 2, lora_name="a", lora_id=2)) == contents(adapted)
    assert not set(contents(base)) & set(contents(adapted))


def test_c58_media_keys_are_hashed_into_their_blocks_once_each() -> None:
    keys = (("trt_mm_v1", "1", "99", "0"), ("trt_mm_v1", "1", "5", "2"), ("trt_mm_v1", "1", "99", "3"))
    assert contents(store(None, 1, 2, **media(*keys))) == tokens_hashes(TOKENS, BLOCK_SIZE, media={1: [5, 99]})


def test_keys_that_say_nothing_new_change_nothing() -> None:
    keys = media((), ("a",))
    assert contents(store(None, 1, lora_name="a", **keys)) == contents(store(None, 1, lora_name="a"))

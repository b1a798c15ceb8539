from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openengine_sidecar.actors.kv.hashes import block_seed, external_hash, tokens_hashes
from openengine_sidecar.messages.engine.kv import BlockHash

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors" / "hashes.json").read_text())
UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)


def name(value: bytes, encoding: str = "decimal_int64") -> BlockHash:
    return BlockHash(value, encoding)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_blocks_hash_as_the_router_hashes_them(case: dict[str, Any]) -> None:
    hashes = tokens_hashes(
        case["token_ids"],
        case["block_size"],
        lora_name=case["lora_name"],
        cache_salt=case["cache_salt"],
        media={int(position): hashes for position, hashes in case["media"].items()},
    )
    assert hashes == case["hashes"]


@given(
    token_ids=st.lists(UINT32, max_size=40),
    block_size=st.integers(1, 9),
    lora_name=st.text(max_size=5),
    cache_salt=st.text(max_size=5),
    media=st.dictionaries(st.integers(0, 5), st.lists(UINT64, min_size=1, max_size=3), max_size=3),
)
def test_blocks_hash_as_the_installed_library_hashes_them(
    token_ids: list[int], block_size: int, lora_name: str, cache_salt: str, media: dict[int, list[int]]
) -> None:
    core = pytest.importorskip("dynamo._core")
    infos = [
        {"mm_objects": [{"mm_hash": digest, "offsets": []} for digest in media[position]]}
        if position in media
        else None
        for position in range(len(token_ids) // block_size)
    ]
    expected = core.compute_block_hash_for_seq(
        token_ids, block_size, block_mm_infos=infos, lora_name=lora_name, cache_namespace=cache_salt
    )
    ours = tokens_hashes(token_ids, block_size, lora_name=lora_name, cache_salt=cache_salt, media=media)
    assert ours == expected


def test_f33_an_adapter_makes_other_blocks_of_the_same_tokens() -> None:
    tokens = list(range(64))
    base, adapted = tokens_hashes(tokens, 16), tokens_hashes(tokens, 16, lora_name="a")
    assert not set(base) & set(adapted)


def test_an_empty_name_is_no_adapter_and_no_salt() -> None:
    assert block_seed("", "") == block_seed() == 1337
    assert block_seed("x") != block_seed("", "x")


@pytest.mark.parametrize("token_id", [-1, 2**32])
def test_a_token_id_out_of_range_is_refused(token_id: int) -> None:
    with pytest.raises(ValueError, match="32 bits"):
        tokens_hashes([0, token_id], 2)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"0", 0),
        (b"-1", 2**64 - 1),
        (b"-5", 2**64 - 5),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", 2**63),
    ],
)
def test_c58_a_canonical_decimal_keeps_its_bits(value: bytes, expected: int) -> None:
    assert external_hash(name(value)) == expected


@pytest.mark.parametrize(
    "value",
    [
        b"01",
        b"-0",
        b"+1",
        b" 1",
        b"1 ",
        b"1_0",
        b"",
        b"-",
        b"0x1",
        b"1.0",
        b"9223372036854775808",
        b"1" * 5000,
        b"\xff",
    ],
)
def test_c58_any_other_spelling_is_opaque(value: bytes) -> None:
    assert external_hash(name(value)) == external_hash(name(value))
    assert external_hash(name(value)) not in {0, 1, 10, 2**63}


def test_c58_names_of_unknown_encodings_are_told_apart_by_both_fields() -> None:
    names = [
        name(b"1", "int64"),
        name(b"1", "bytes"),
        name(b"2", "bytes"),
        name(b"1", "engine_specific"),
        name(b"", "bytes1"),
        name(b"es1", "byt"),
        name(b"1"),
    ]
    assert len({external_hash(one) for one in names}) == len(names)


def test_c58_an_opaque_name_has_the_same_number_in_every_process() -> None:
    assert external_hash(name(bytes(range(32)), "v2_sha256_64")) == 9310211370304438618

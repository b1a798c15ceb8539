from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openengine_sidecar.actors.lora.ids import check_id, lora_name_to_id
from openengine_sidecar.messages.errors import LoraRefusedError

VECTORS: dict[str, int] = json.loads((Path(__file__).parent / "vectors" / "lora_ids.json").read_text())
ONE_ID = ("adapter-36748", "adapter-51988")


@pytest.mark.parametrize(("name", "expected"), VECTORS.items(), ids=[name[:16] for name in VECTORS])
def test_ids_are_those_of_the_stock_runtime(name: str, expected: int) -> None:
    assert lora_name_to_id(name) == expected


def test_the_installed_runtime_agrees_on_any_name() -> None:
    dynamo = pytest.importorskip("dynamo.llm")

    @settings(deadline=None)
    @given(st.text(st.characters(exclude_categories=["Cs"])))
    def agree(name: str) -> None:
        assert lora_name_to_id(name) == dynamo.lora_name_to_id(name)

    agree()


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_c49_an_id_is_always_one_that_an_engine_takes(name: str) -> None:
    assert 1 <= lora_name_to_id(name) < 2**31


def test_a_hash_of_zero_still_gives_an_id_above_zero() -> None:
    assert lora_name_to_id("z5837959097") == 1


def test_two_names_with_one_id_are_refused_with_both() -> None:
    assert lora_name_to_id(ONE_ID[0]) == lora_name_to_id(ONE_ID[1])
    with pytest.raises(LoraRefusedError) as refusal:
        check_id(ONE_ID[0], ["else", ONE_ID[1]])
    assert all(name in str(refusal.value) for name in ONE_ID)


def test_the_same_name_again_has_its_own_id() -> None:
    check_id(ONE_ID[0], ["else", ONE_ID[0]])

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openengine_sidecar.messages.dynamo.cards import CardRecord, ModelCard, card_record
from openengine_sidecar.messages.dynamo.control import Codec
from openengine_sidecar.messages.dynamo.lora import (
    LoadLora,
    LoraSource,
    UnloadLora,
    adapter_card,
    lora_error,
    lora_listing,
    lora_success,
    read_load,
    read_unload,
)
from openengine_sidecar.messages.dynamo.naming import EndpointId
from openengine_sidecar.messages.errors import WireError

VECTORS = Path(__file__).parent / "vectors"
ENDPOINT = EndpointId("dynamo", "backend", "generate")
ENCODE = {Codec.JSON: msgspec.json.encode, Codec.MSGPACK: msgspec.msgpack.encode}
LOAD = {"lora_name": "my/lora-A", "source": {"uri": "s3://adapters/a"}}


def stored(name: str) -> ModelCard:
    return msgspec.json.decode((VECTORS / f"{name}.json").read_bytes(), type=CardRecord).card_json


def test_a_load_names_the_adapter_and_its_source() -> None:
    expected = LoadLora("my/lora-A", LoraSource("s3://adapters/a"))
    assert read_load(LOAD) == expected
    assert read_load({**LOAD, "load_inplace": True}) == expected


def test_an_unload_names_the_adapter() -> None:
    assert read_unload({"lora_name": "a"}) == UnloadLora("a")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "lora_name"),
        ({"lora_name": "a"}, "source"),
        ({"lora_name": None, "source": {"uri": "s3://b/a"}}, r"\$\.lora_name"),
        ({"lora_name": "a", "source": {}}, "uri"),
        ({"lora_name": "a", "source": "s3://b/a"}, r"\$\.source"),
        ({"lora_name": "a", "source": {"uri": 1}}, r"\$\.source\.uri"),
        ([], "object"),
    ],
)
def test_a_load_that_lacks_something_says_what(body: Any, field: str) -> None:
    with pytest.raises(WireError, match=field) as refusal:
        read_load(body)
    assert refusal.value.part == "body"


@given(body=st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_anything_is_a_body_or_an_error(body: object) -> None:
    for read in (read_load, read_unload):
        with suppress(WireError):
            read(body)


def test_answers_have_the_fields_of_the_stock_workers() -> None:
    assert msgspec.to_builtins(lora_success("loaded", "a", 7)) == {
        "status": "success",
        "message": "loaded",
        "lora_name": "a",
        "lora_id": 7,
    }
    assert msgspec.to_builtins(lora_success("unloaded", "a")) == {
        "status": "success",
        "message": "unloaded",
        "lora_name": "a",
    }
    assert msgspec.to_builtins(lora_error("why")) == {"status": "error", "message": "why"}
    assert msgspec.to_builtins(lora_error("why", "a")) == {"status": "error", "message": "why", "lora_name": "a"}
    assert msgspec.to_builtins(lora_listing({"a": 7})) == {"status": "success", "loras": {"a": 7}, "count": 1}
    assert msgspec.to_builtins(lora_listing({})) == {"status": "success", "loras": {}, "count": 0}


def test_only_a_success_is_ok() -> None:
    assert lora_listing({}).ok
    assert not lora_error("why").ok


def test_an_adapters_card_is_its_bases_card_under_another_name() -> None:
    base, adapter = stored("card_decode"), stored("card_adapter")
    card = adapter_card(base, adapter.display_name, 7)
    assert (card.display_name, card.slug, card.lora) == (adapter.display_name, adapter.slug, adapter.lora)
    for field in ("source_path", "model_info", "tokenizer", "gen_config", "model_type", "worker_type", "needs"):
        assert getattr(card, field) == getattr(base, field) == getattr(adapter, field)
    assert card.aliases is adapter.aliases is msgspec.UNSET
    assert base.aliases is not msgspec.UNSET
    assert card.user_data == {"lora_adapter": True, "lora_id": 7}
    assert card_record(ENDPOINT, 1, card).model_suffix == adapter.slug


def test_a_card_says_how_many_adapters_the_engine_holds_where_that_is_known() -> None:
    base = stored("card_mocker")
    assert msgspec.to_builtins(adapter_card(base, "a", 7).lora) == {"name": "a"}
    assert msgspec.to_builtins(adapter_card(base, "a", 7, max_loras=4).lora) == {"name": "a", "max_gpu_lora_count": 4}

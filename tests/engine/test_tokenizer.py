from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openengine_sidecar.launch.engine.model import load_model
from openengine_sidecar.launch.engine.options import SHIPPED_MODEL, EngineOptions
from openengine_sidecar.launch.engine.tokenizer import byte_alphabet, load_tokenizer
from openengine_sidecar.messages.errors import ConfigurationError

TOKENIZER = load_tokenizer(SHIPPED_MODEL)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="|")))
def test_any_text_comes_back_unchanged(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.binary())
def test_bytes_come_back_unchanged(data: bytes) -> None:
    assert TOKENIZER.join(TOKENIZER.encode_bytes(data)) == data


def test_specials_are_tokens_and_add_no_text() -> None:
    ids = TOKENIZER.encode("<|bos|>hé<|image|>")
    assert ids == [256, ord("h"), 0xC3, 0xA9, 263]
    assert TOKENIZER.decode(ids) == "hé"
    assert TOKENIZER.names[263] == "<|image|>"


def test_alphabet_maps_every_byte_once() -> None:
    assert sorted(byte_alphabet().values()) == list(range(256))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_agrees_with_the_stock_tokenizer(text: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    stock = tokenizers.Tokenizer.from_file(str(SHIPPED_MODEL / "tokenizer.json"))
    ids = stock.encode(text, add_special_tokens=False).ids
    assert ids == TOKENIZER.encode(text)
    assert stock.decode(ids, skip_special_tokens=False) == text


def test_special_tokens_agree_with_the_stock_tokenizer() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    stock = tokenizers.Tokenizer.from_file(str(SHIPPED_MODEL / "tokenizer.json"))
    assert stock.get_vocab_size() == TOKENIZER.size
    text = "a" + "b".join(TOKENIZER.specials) + "c"
    assert stock.encode(text).ids == TOKENIZER.encode(text)


def test_model_directory_names_eos_and_context() -> None:
    model = load_model(EngineOptions())
    assert model.eos == TOKENIZER.specials["<|eos|>"]
    assert model.context_length == 32768
    assert model.answers_to("")
    assert model.answers_to("model")
    assert not model.answers_to("another")


def test_the_chat_template_uses_only_known_specials() -> None:
    config = json.loads((SHIPPED_MODEL / "tokenizer_config.json").read_text())
    named = {content["content"]: int(number) for number, content in config["added_tokens_decoder"].items()}
    assert named == TOKENIZER.specials
    assert {config["bos_token"], config["eos_token"]} <= named.keys()


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("tokenizer.json", None, "not a readable tokenizer"),
        ("tokenizer.json", "{", "not a readable tokenizer"),
        ("tokenizer.json", "{}", "not a readable tokenizer"),
        ("tokenizer.json", '{"model": {"vocab": {"a": 0}, "merges": []}, "added_tokens": []}', "byte-level"),
        ("config.json", "[]", "not readable"),
        ("generation_config.json", '{"eos_token_id": "x"}', "eos_token_id"),
        ("generation_config.json", '{"eos_token_id": []}', "eos_token_id"),
        ("generation_config.json", '{"eos_token_id": 100000}', "outside the vocabulary"),
    ],
)
def test_an_unusable_model_directory_is_named(tmp_path: Path, name: str, content: str | None, problem: str) -> None:
    for file in SHIPPED_MODEL.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_text(content)
    with pytest.raises(ConfigurationError, match=problem) as refusal:
        load_model(EngineOptions(model_path=tmp_path))
    assert str(tmp_path) in str(refusal.value)


def test_eos_may_be_a_list_or_stand_in_config_alone(tmp_path: Path) -> None:
    for file in SHIPPED_MODEL.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [262, 257]}')
    assert load_model(EngineOptions(model_path=tmp_path)).eos == 262
    (tmp_path / "generation_config.json").unlink()
    assert load_model(EngineOptions(model_path=tmp_path)).eos == 257

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openengine_sidecar.launch.engine.options import SHIPPED_MODEL
from openengine_sidecar.launch.engine.tokenizer import load_tokenizer

FILES = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}


def test_it_holds_what_a_model_card_needs() -> None:
    assert {path.name for path in SHIPPED_MODEL.iterdir()} == FILES
    for path in SHIPPED_MODEL.iterdir():
        assert isinstance(json.loads(path.read_text()), dict)


def test_its_files_agree_with_each_other() -> None:
    names = ("config.json", "generation_config.json", "tokenizer_config.json")
    config, generation, tokenizer = [json.loads((SHIPPED_MODEL / name).read_text()) for name in names]
    ours = load_tokenizer(SHIPPED_MODEL)
    assert config["vocab_size"] == ours.size
    assert config["eos_token_id"] == generation["eos_token_id"] == ours.specials[tokenizer["eos_token"]]
    assert config["bos_token_id"] == generation["bos_token_id"] == ours.specials[tokenizer["bos_token"]]
    assert config["max_position_embeddings"] == tokenizer["model_max_length"]


def test_the_stock_libraries_take_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(SHIPPED_MODEL))
    config = transformers.AutoConfig.from_pretrained(str(SHIPPED_MODEL))
    text = "héllo , w 🤗 <|user|> ."
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.eos_token_id == config.eos_token_id
    tokenizer.save_pretrained(str(tmp_path))

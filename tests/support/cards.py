from __future__ import annotations

from typing import Any

from openengine_sidecar.messages.dynamo.cards import ModelCard, ModelFile, ModelInfo, PromptFormatter, Tokenizer


def toy_card(**changes: Any) -> ModelCard:
    """The least that a card says."""
    file = ModelFile(path="/toy/file.json", checksum="blake3:" + "0" * 64)
    card: dict[str, Any] = {
        "display_name": "toy",
        "slug": "toy",
        "source_path": "/toy",
        "model_info": ModelInfo(file),
        "tokenizer": Tokenizer(file),
        "prompt_formatter": PromptFormatter(file),
        "kv_cache_block_size": 16,
        "model_type": "Chat",
    }
    return ModelCard(**{**card, **changes})

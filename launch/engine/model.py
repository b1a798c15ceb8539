"""The model directory as the engine needs it: tokenizer, special token ids, names and limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from openengine_sidecar.launch.engine.options import EngineOptions
from openengine_sidecar.launch.engine.tokenizer import ROLE_MARKERS, ByteTokenizer, load_tokenizer
from openengine_sidecar.messages.errors import ConfigurationError

DEFAULT_CONTEXT_LENGTH = 32_768


@dataclass(frozen=True, slots=True)
class ToyModel:
    """What one engine serves. Marker ids are None where the vocabulary has no such token.

    Attributes:
        model_id: the model directory, as given.
        served_name: the name clients use; aliases are accepted beside it.
        context_length: prompt and output tokens together.
        eos: token id that ends an output by itself.
    """

    tokenizer: ByteTokenizer
    model_id: str
    served_name: str
    aliases: tuple[str, ...]
    context_length: int
    eos: int
    user: int | None
    assistant: int | None
    turn_markers: frozenset[int]

    def answers_to(self, name: str) -> bool:
        """Tell whether a request may name the model so; the empty name means the only model there is."""
        return name in {"", self.model_id, self.served_name, *self.aliases}


def load_model(options: EngineOptions) -> ToyModel:
    """Read the model directory named by the options.

    Raises:
        ConfigurationError: a file is unreadable, or names no usable end-of-sequence token.
    """
    path = options.model_path
    tokenizer = load_tokenizer(path)
    config = _read(path / "config.json")
    eos = _eos(path, config)
    if not 0 <= eos < tokenizer.size:
        raise ConfigurationError(str(path), f"eos_token_id {eos} is outside the vocabulary")
    limit = options.max_context_length or config.get("max_position_embeddings") or DEFAULT_CONTEXT_LENGTH
    specials = tokenizer.specials
    return ToyModel(
        tokenizer=tokenizer,
        model_id=str(path),
        served_name=options.served_model_name or path.name,
        aliases=options.aliases,
        context_length=int(limit),
        eos=eos,
        user=specials.get("<|user|>"),
        assistant=specials.get("<|assistant|>"),
        turn_markers=frozenset([eos, *(specials[text] for text in (*ROLE_MARKERS, "<|eot|>") if text in specials)]),
    )


def _eos(path: Path, config: dict[str, Any]) -> int:
    generation = path / "generation_config.json"
    sources = [_read(generation), config] if generation.exists() else [config]
    found: Any = next((source["eos_token_id"] for source in sources if source.get("eos_token_id") is not None), None)
    try:
        return msgspec.convert(found, list[int])[0] if isinstance(found, list) else msgspec.convert(found, int)
    except (msgspec.ValidationError, IndexError) as error:
        raise ConfigurationError(str(path), f"no usable eos_token_id: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(str(path), f"not readable: {error}") from error

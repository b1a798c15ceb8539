"""The files of a model directory that a frontend needs in order to tokenize and to fill the chat template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from blake3 import blake3
from msgspec import UNSET, UnsetType

from openengine_sidecar.messages.dynamo.cards import ChatTemplate, ChatTemplateFile, ModelFile
from openengine_sidecar.messages.errors import ConfigurationError

T = TypeVar("T")

_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """What was found, with checksums.

    Attributes:
        max_positions: tokens that the architecture can address, by `config.json`; UNSET where it does not say.
    """

    config: ModelFile
    tokenizer: ModelFile
    tokenizer_config: ModelFile
    generation_config: ModelFile | UnsetType
    chat_template: ChatTemplateFile | UnsetType
    max_positions: int | UnsetType


def read_model_files(directory: Path, custom_template: Path | None = None) -> ModelFiles:
    """Finds and hashes a model's files; blocks for as long as reading them takes.

    Args:
        directory: holds `config.json`, `tokenizer.json`, `tokenizer_config.json`, and perhaps
            `generation_config.json` and `chat_template.jinja`.
        custom_template: Jinja file that takes the place of the model's own template.

    Raises:
        ConfigurationError: names the directory or file that is missing, unreadable, or not what it should be.
    """
    directory = directory.absolute()
    if not directory.is_dir():
        raise ConfigurationError(str(directory), "is not a model directory that can be read")
    config = directory / "config.json"
    return ModelFiles(
        config=_required(config),
        tokenizer=_required(directory / "tokenizer.json"),
        tokenizer_config=_required(directory / "tokenizer_config.json"),
        generation_config=_optional(directory / "generation_config.json"),
        chat_template=_chat_template(directory, custom_template),
        max_positions=_max_positions(config),
    )


class _TextConfig(msgspec.Struct, frozen=True):
    max_position_embeddings: int | None = None


class _Config(_TextConfig, frozen=True):
    """Multimodal models keep the limit of their language part one level down."""

    text_config: _TextConfig | None = None


def _max_positions(path: Path) -> int | UnsetType:
    data = _reading(path, path.read_bytes)
    try:
        config = msgspec.json.decode(data, type=_Config)
    except msgspec.DecodeError as error:
        raise ConfigurationError(str(path), f"is not a model configuration: {error}") from error
    limits = (part.max_position_embeddings for part in (config, config.text_config) if part is not None)
    return next((limit for limit in limits if limit is not None and limit > 0), UNSET)


def _chat_template(directory: Path, custom: Path | None) -> ChatTemplateFile | UnsetType:
    if custom is not None:
        return ChatTemplateFile(ChatTemplate(is_custom=True, file=_required(custom.absolute())))
    found = _optional(directory / "chat_template.jinja")
    return UNSET if isinstance(found, UnsetType) else ChatTemplateFile(ChatTemplate(is_custom=False, file=found))


def _optional(path: Path) -> ModelFile | UnsetType:
    return _required(path) if path.exists() else UNSET


def _required(path: Path) -> ModelFile:
    return _reading(path, lambda: _hash(path))


def _hash(path: Path) -> ModelFile:
    hasher = blake3()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
            size += len(chunk)
    return ModelFile(path=str(path), checksum=f"blake3:{hasher.hexdigest()}", size=size)


def _reading(path: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except FileNotFoundError as error:
        raise ConfigurationError(str(path), "is missing") from error
    except OSError as error:
        raise ConfigurationError(str(path), f"cannot be read: {error.strerror}") from error

"""A byte-level tokenizer in plain Python, read from a `tokenizer.json` of 256 bytes and some special tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from openengine_sidecar.messages.errors import ConfigurationError

BYTES = 256
ROLE_MARKERS = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")


def byte_alphabet() -> dict[str, int]:
    """Map each character of the byte-level alphabet to its byte.

    Printable Latin-1 characters stand for themselves, the rest are moved, in order, to U+0100 and up: the convention
    of byte-level BPE files.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(BYTES) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(BYTES + offset): byte for offset, byte in enumerate(moved)}


class ByteTokenizer:
    """Text to token ids and back, without loss for any Unicode text.

    Attributes:
        pieces: what each token id adds to the output, as bytes; specials add nothing.
        names: what each token id is called: its character, or the special's own text.
        specials: special tokens by text.
    """

    def __init__(self, vocabulary: dict[str, int], specials: dict[str, int]) -> None:
        alphabet = byte_alphabet()
        size = max([*vocabulary.values(), *specials.values()]) + 1
        self.specials = specials
        self.pieces: list[bytes] = [b""] * size
        self.names: list[str] = [""] * size
        self._ids = [0] * BYTES
        for char, byte in alphabet.items():
            token_id = vocabulary[char]
            self.pieces[token_id] = bytes([byte])
            self.names[token_id] = bytes([byte]).decode(errors="replace")
            self._ids[byte] = token_id
        for text, token_id in specials.items():
            self.names[token_id] = text
        self._split = re.compile("(" + "|".join(map(re.escape, specials)) + ")") if specials else None

    @property
    def size(self) -> int:
        """Number of token ids; every id is below it."""
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        """Tokenize; special tokens written out in the text become those tokens."""
        ids: list[int] = []
        for part in self._split.split(text) if self._split else [text]:
            special = self.specials.get(part)
            ids.extend(self.encode_bytes(part.encode()) if special is None else [special])
        return ids

    def encode_bytes(self, data: bytes) -> list[int]:
        """Tokenize bytes; nothing in them is special."""
        return [self._ids[byte] for byte in data]

    def join(self, ids: Sequence[int]) -> bytes:
        """Return the bytes that the ids stand for, specials left out."""
        return b"".join([self.pieces[token_id] for token_id in ids])

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text that the ids stand for; bytes that are no UTF-8 become U+FFFD."""
        return self.join(ids).decode(errors="replace")


def load_tokenizer(model_path: Path) -> ByteTokenizer:
    """Read `tokenizer.json` of a model directory.

    Raises:
        ConfigurationError: the file is unreadable, or its vocabulary is not byte level without merges.
    """
    path = model_path / "tokenizer.json"
    try:
        content: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        vocabulary: dict[str, int] = content["model"]["vocab"]
        specials = {str(token["content"]): int(token["id"]) for token in content["added_tokens"]}
        merges = content["model"]["merges"]
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise ConfigurationError(str(path), f"not a readable tokenizer: {error!r}") from error
    missing = [char for char in byte_alphabet() if char not in vocabulary]
    if missing or merges:
        raise ConfigurationError(str(path), "the reference engine needs a byte-level vocabulary without merges")
    return ByteTokenizer(vocabulary, specials)

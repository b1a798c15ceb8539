"""What a prompt says: the text to answer, what of the answer is already there, and a digest to be deterministic by."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import takewhile

from openengine_sidecar.launch.engine.model import ToyModel


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, understood.

    Attributes:
        ids: all token ids.
        said: the last user message, or the whole prompt where there is none, without special tokens.
        resumed: how many tokens of an answer the prompt already ends with, as in a request that moved here from a
            worker that died.
        digest: 64 bits of everything before the answer.
    """

    ids: Sequence[int]
    said: bytes
    resumed: int
    digest: int


def read_prompt(ids: Sequence[int], model: ToyModel) -> Prompt:
    """Understand a prompt made by the model's chat template, or any other text."""
    end = _after_last(ids, model.assistant) or len(ids)
    start = _after_last(ids[:end], model.user) or 0
    said = list(takewhile(lambda token_id: token_id not in model.turn_markers, ids[start:end])) if start else ids[:end]
    return Prompt(ids, model.tokenizer.join(said), len(ids) - end, token_digest(ids[:end]))


def token_digest(ids: Sequence[int], salt: bytes = b"") -> int:
    """Return 64 bits that depend on the ids and the salt (at most 16 bytes), the same on every machine."""
    data = array("I", ids)
    return int.from_bytes(blake2b(data.tobytes(), digest_size=8, salt=salt).digest(), "big")


def _after_last(ids: Sequence[int], marker: int | None) -> int:
    if marker is None:
        return 0
    return next((position + 1 for position in range(len(ids) - 1, -1, -1) if ids[position] == marker), 0)

"""What besides tokens went into an engine's block hashes, as far as routers can reproduce it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from openengine_sidecar.messages.engine.kv import BlockStored

MEDIA_KEY: Final = "trt_mm_v1"
"""Tag of a key about media: (tag, position of the block, first 64 bits of the media's hash, offset), in decimal."""

_UINT64_DIGITS = 20


def media_by_block(event: BlockStored) -> Mapping[int, Sequence[int]] | None:
    """Hashes of the media in each block, by its position in the chain.

    A router names a medium once for each block, however often it occurs there. A key that holds nothing but the
    adapter's name says nothing new.

    Returns:
        None where a key is not understood: the blocks are then of a kind that no router can match.
    """
    media: dict[int, list[int]] = {}
    for key in event.extra_keys:
        if not key or key == (event.lora_name,):
            continue
        found = _media_key(key, len(event.hashes))
        if found is None:
            return None
        position, digest = found
        hashes = media.setdefault(position, [])
        if digest not in hashes:
            hashes.append(digest)
    return media


def _media_key(key: tuple[str, ...], blocks: int) -> tuple[int, int] | None:
    match key:
        case (tag, written_position, written_digest, _) if tag == MEDIA_KEY:
            position, digest = _unsigned(written_position), _unsigned(written_digest)
            if position is None or digest is None or position >= blocks:
                return None
            return position, digest
        case _:
            return None


def _unsigned(text: str) -> int | None:
    """A decimal number of 64 bits without a sign, or None."""
    if not (text.isascii() and text.isdigit() and len(text) <= _UINT64_DIGITS):
        return None
    number = int(text)
    return number if number < 2**64 else None

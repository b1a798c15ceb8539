"""Block hashes as Dynamo's routers compute them, and engines' own names for blocks as the numbers routers want.

A router hashes each full block of a prompt by itself, unchained: XXH3-64 over its token ids as little-endian 32-bit
words, followed by the hashes of the media in it (64-bit words, ascending). Adapter and cache salt go into the seed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import xxhash

from openengine_sidecar.messages.engine.kv import BlockHash

DECIMAL_INT64: Final = "decimal_int64"
NO_MEDIA: Final[Mapping[int, Sequence[int]]] = MappingProxyType({})

_ROUTER_SEED = 1337
_LORA_SEED = 0
_SALT_SEED = 1
_TOKEN_BYTES = 4
_WORD = 2**64
_INT64_DIGITS = 20


@lru_cache(maxsize=1024)
def block_seed(lora_name: str = "", cache_salt: str = "") -> int:
    """Seed of every block of a sequence; an empty name or salt is none."""
    seed = _ROUTER_SEED
    if lora_name:
        seed += xxhash.xxh3_64_intdigest(lora_name.encode(), _LORA_SEED)
    if cache_salt:
        seed += xxhash.xxh3_64_intdigest(cache_salt.encode(), _SALT_SEED)
    return seed % _WORD


def tokens_hashes(
    token_ids: Sequence[int],
    block_size: int,
    *,
    lora_name: str = "",
    cache_salt: str = "",
    media: Mapping[int, Sequence[int]] = NO_MEDIA,
) -> list[int]:
    """Hash each full block of a sequence; tokens after the last full block are left out.

    Args:
        token_ids: unsigned 32-bit numbers.
        block_size: tokens in a block, at least 1.
        lora_name: the adapter, empty without one.
        cache_salt: the cache's namespace, empty without one.
        media: hashes of the media in a block (unsigned 64 bits), by the block's position.

    Raises:
        ValueError: a token id or a media hash is out of its range.
    """
    seed = block_seed(lora_name, cache_salt)
    words = _packed("I", token_ids)
    step = block_size * _TOKEN_BYTES
    starts = range(0, len(words) - step + 1, step)
    if not media:
        return [xxhash.xxh3_64_intdigest(words[start : start + step], seed) for start in starts]
    return [
        xxhash.xxh3_64_intdigest(words[start : start + step] + _packed("Q", sorted(media.get(position, ()))), seed)
        for position, start in enumerate(starts)
    ]


def external_hash(block: BlockHash) -> int:
    """The unsigned 64-bit number under which routers know an engine's block.

    Routers ask only that it is unique to a block and its prefix. A canonical `decimal_int64` keeps its bits, as the
    routers' own readers of engine events do it; any other name is hashed whole, together with its encoding. Equal
    names give equal numbers, in every process.
    """
    if block.encoding == DECIMAL_INT64:
        number = _canonical_int64(block.value)
        if number is not None:
            return number % _WORD
    encoding = block.encoding.encode()
    return xxhash.xxh3_64_intdigest(struct.pack("<I", len(encoding)) + encoding + block.value)


def _canonical_int64(value: bytes) -> int | None:
    """The number that a name spells, or None when the same number is spelled otherwise (`01`, `+1`, ` 1`)."""
    if len(value) > _INT64_DIGITS:
        return None
    try:
        number = int(value)
    except ValueError:
        return None
    if not -(2**63) <= number < 2**63 or str(number).encode() != value:
        return None
    return number


def _packed(word: str, numbers: Sequence[int]) -> bytes:
    try:
        return struct.pack(f"<{len(numbers)}{word}", *numbers)
    except struct.error as error:
        problem = f"not an unsigned number of {8 * struct.calcsize(word)} bits among {len(numbers)}"
        raise ValueError(problem) from error

"""Ids of adapters. Every worker derives the same id from a name, the way Dynamo 1.6.1 does (`lora_name_to_id`)."""

from __future__ import annotations

from collections.abc import Iterable

from blake3 import blake3

from openengine_sidecar.messages.errors import LoraRefusedError

_POSITIVE_INT32 = 0x7FFF_FFFF


def lora_name_to_id(name: str) -> int:
    """The adapter's id: bytes 4 to 7 of the name's BLAKE3, big endian, without the sign bit; 1 where that is 0."""
    return int.from_bytes(blake3(name.encode()).digest()[4:8], "big") & _POSITIVE_INT32 or 1


def check_id(name: str, others: Iterable[str]) -> None:
    """Check that no other adapter has the id of this one.

    Raises:
        LoraRefusedError: one has; both are named.
    """
    wanted = lora_name_to_id(name)
    for other in others:
        if other != name and lora_name_to_id(other) == wanted:
            raise LoraRefusedError(name, f"has the same id, {wanted}, as adapter {other}: rename one of them")

"""Messages of ZMQ sources of KV events: MessagePack, in the two forms that engines write.

A batch is an array: time in seconds, events, and perhaps the rank. An event is an array that begins with its kind, or
a map that has it under `type`; the fields are the same, trailing ones may be left out, and unknown ones are ignored.
Block hashes are numbers of 64 bits, with or without a sign, or bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from openengine_sidecar.actors.kv.hashes import DECIMAL_INT64
from openengine_sidecar.messages.engine.kv import (
    AllBlocksCleared,
    BlockHash,
    BlockRemoved,
    BlockStored,
    KvBatch,
    KvEvent,
    Medium,
    UnknownEvent,
)

END_OF_REPLAY: Final = -1
BYTES: Final = "bytes"
_WORD: Final = 2**64
_NUMBER_BYTES: Final = 8

_MEDIA: Final[Mapping[str | None, Medium]] = {
    None: Medium.GPU,
    "GPU": Medium.GPU,
    "CPU": Medium.CPU_PINNED,
    "CPU_PINNED": Medium.CPU_PINNED,
    "CPU_TIER1": Medium.CPU_PINNED,
    "DISK": Medium.DISK,
    "STORAGE": Medium.DISK,
    "CPU_TIER2": Medium.DISK,
    "EXTERNAL": Medium.EXTERNAL,
    "REMOTE": Medium.EXTERNAL,
}

Hash = int | bytes
Fields = TypeVar("Fields", bound=msgspec.Struct)


class _Stored(msgspec.Struct, frozen=True, gc=False):
    """The fields of a stored chain, in the order of the array form."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class _Removed(msgspec.Struct, frozen=True, gc=False):
    """The fields of a removal, in the order of the array form."""

    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: int | None = None


class _Batch(msgspec.Struct, frozen=True, array_like=True):
    time: float
    events: list[msgspec.Raw]
    rank: int | None = None


class ZmqMessageError(ValueError):
    """A message is none of a source's."""


def decode_number(frame: bytes) -> int:
    """Read a batch's number; `END_OF_REPLAY` ends a replay.

    Raises:
        ZmqMessageError: it is not eight bytes.
    """
    if len(frame) != _NUMBER_BYTES:
        problem = f"a number of {len(frame)} bytes"
        raise ZmqMessageError(problem)
    return int.from_bytes(frame, "big", signed=True)


def encode_number(number: int) -> bytes:
    """Write a number, as a question for a replay from there on."""
    return number.to_bytes(_NUMBER_BYTES, "big", signed=True)


def decode_batch(payload: bytes, sequence: int, rank: int) -> KvBatch:
    """Read a batch.

    Args:
        payload: as it came.
        sequence: its number, which came beside it.
        rank: of the source, where the batch does not say.

    Raises:
        ZmqMessageError: it does not parse.
    """
    try:
        batch = _decode_batch(payload)
        events = tuple([_event(msgspec.msgpack.decode(raw)) for raw in batch.events])
    except (msgspec.DecodeError, OverflowError) as error:
        problem = f"batch {sequence}: {error}"
        raise ZmqMessageError(problem) from error
    return KvBatch(
        sequence=sequence,
        rank=rank if batch.rank is None else batch.rank,
        events=events,
        timestamp_unix_nanos=int(batch.time * 1e9),
    )


def _event(event: Any) -> KvEvent:
    kind, fields = _split(event)
    read = _READERS.get(kind) if isinstance(kind, str) else None
    return UnknownEvent() if read is None else read(fields)


def _split(event: Any) -> tuple[Any, Any]:
    match event:
        case [kind, *fields]:
            return kind, fields
        case {"type": kind}:
            return kind, event
        case _:
            return None, None


def _stored(fields: Any) -> BlockStored:
    stored = _convert(fields, _Stored)
    return BlockStored(
        hashes=tuple(map(_hash, stored.block_hashes)),
        token_ids=stored.token_ids,
        block_size=stored.block_size,
        parent=None if stored.parent_block_hash is None else _hash(stored.parent_block_hash),
        lora_id=stored.lora_id or 0,
        lora_name=stored.lora_name or "",
        medium=_medium(stored.medium),
        extra_keys=tuple(_keys(stored.extra_keys or ())),
        group=stored.group_idx or 0,
        spec_kind=stored.kv_cache_spec_kind or "",
        sliding_window=stored.kv_cache_spec_sliding_window or 0,
    )


def _removed(fields: Any) -> BlockRemoved:
    removed = _convert(fields, _Removed)
    return BlockRemoved(
        hashes=tuple(map(_hash, removed.block_hashes)), medium=_medium(removed.medium), group=removed.group_idx or 0
    )


def _cleared(_fields: Any) -> AllBlocksCleared:
    return AllBlocksCleared()


def _convert(fields: Any, kind: type[Fields]) -> Fields:
    named = fields if _has_names(fields) else dict(zip(kind.__struct_fields__, fields, strict=False))
    return msgspec.convert(named, kind)


def _has_names(fields: Any) -> bool:
    return isinstance(fields, dict)


def _hash(value: Hash) -> BlockHash:
    if isinstance(value, bytes):
        return BlockHash(value, BYTES)
    signed = value - _WORD if value >= _WORD // 2 else value
    return BlockHash(str(signed).encode(), DECIMAL_INT64)


def _medium(name: str | None) -> Medium:
    return _MEDIA.get(name, Medium.UNKNOWN)


def _keys(extra_keys: Sequence[Sequence[Any] | None]) -> Iterable[tuple[str, ...]]:
    """Keys of all blocks one after the other, as texts."""
    for key in extra_keys:
        if key:
            yield tuple([part if isinstance(part, str) else str(part) for part in key])


_READERS: Final[Mapping[str, Callable[[Any], KvEvent]]] = {
    "BlockStored": _stored,
    "BlockRemoved": _removed,
    "AllBlocksCleared": _cleared,
}
_decode_batch = msgspec.msgpack.Decoder(_Batch).decode

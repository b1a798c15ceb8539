"""Events as the schema writes them, block hashes in any of the ways that engines have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from openengine_sidecar.launch.engine.prefix import Block
from openengine_sidecar.proto.rev2 import kv_pb2

_WORD: Final = 2**64


def signed(key: int) -> int:
    """The same 64 bits as a signed number."""
    return key - _WORD if key >= _WORD // 2 else key


HASHES: Final[dict[str, Callable[[int], bytes]]] = {
    "decimal_int64": lambda key: str(signed(key)).encode(),
    "int64": lambda key: key.to_bytes(8, "little"),
    "bytes": lambda key: key.to_bytes(8, "big"),
    "sha256": lambda key: key.to_bytes(8, "big") * 4,
    "hex": lambda key: f"{key:016x}".encode(),
    "utf8": lambda key: f"block-{key}".encode(),
}
"""How a hash is spelled under each encoding; the first is the usual one."""


class EventWriter:
    """Writes events with one encoding of hashes."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._spell = HASHES[encoding]

    def changed(self, removed: Sequence[Block], stored: Sequence[Block]) -> Iterator[kv_pb2.KvEvent]:
        """Yield the events of one step of a cache."""
        if removed:
            yield kv_pb2.KvEvent(block_removed=kv_pb2.BlockRemoved(block_hashes=self._names(removed), medium=_GPU))
        if stored:
            yield kv_pb2.KvEvent(block_stored=self._stored(stored))

    def snapshot(self, blocks: Iterable[Block]) -> Iterator[kv_pb2.KvEvent]:
        """Yield events that build a cache anew, parents first."""
        chain: list[Block] = []
        for block in blocks:
            if chain and block.parent != chain[-1].key:
                yield kv_pb2.KvEvent(block_stored=self._stored(chain))
                chain = []
            chain.append(block)
        if chain:
            yield kv_pb2.KvEvent(block_stored=self._stored(chain))

    def _stored(self, chain: Sequence[Block]) -> kv_pb2.BlockStored:
        first = chain[0]
        stored = kv_pb2.BlockStored(
            block_hashes=self._names(chain),
            token_ids=[token for block in chain for token in block.tokens],
            block_size=len(first.tokens),
            lora_name=first.namespace.lora_name,
            medium=_GPU,
        )
        if first.parent is not None:
            stored.parent_block_hash.CopyFrom(self._name(first.parent))
        else:
            stored.extra_keys.extend(kv_pb2.OpaqueKeyTuple(values=key) for key in first.namespace.extra_keys)
        return stored

    def _names(self, blocks: Iterable[Block]) -> list[kv_pb2.KvBlockHash]:
        return [self._name(block.key) for block in blocks]

    def _name(self, key: int) -> kv_pb2.KvBlockHash:
        return kv_pb2.KvBlockHash(value=self._spell(key), encoding=self._encoding)


_GPU = kv_pb2.STORAGE_MEDIUM_GPU

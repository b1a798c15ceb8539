"""A prefix cache of token blocks: what a prompt shares with earlier ones need not be computed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from openengine_sidecar.launch.engine.prompt import token_digest


class PrefixCache:
    """Remembers full blocks by the hash of everything up to and including them; the least recently used leave first."""

    def __init__(self, block_size: int, capacity: int) -> None:
        self._block_size = block_size
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def take(self, ids: Sequence[int], namespace: bytes, *, bypass: bool) -> int:
        """Look a prompt up and store its full blocks.

        Args:
            ids: the prompt.
            namespace: whatever keeps equal token ids apart: salt, adapter, media.
            bypass: reuse nothing; the blocks are stored all the same.

        Returns:
            How many prompt tokens were there already; at least the last token is always computed.
        """
        hashes = self._hashes(ids, namespace)
        hits = 0 if bypass else next((n for n, key in enumerate(hashes) if key not in self._blocks), len(hashes))
        for key in hashes:
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return min(hits, (len(ids) - 1) // self._block_size) * self._block_size

    def _hashes(self, ids: Sequence[int], namespace: bytes) -> list[int]:
        size, parent = self._block_size, namespace
        hashes: list[int] = []
        for start in range(0, len(ids) - size + 1, size):
            key = token_digest(ids[start : start + size], parent)
            hashes.append(key)
            parent = key.to_bytes(8, "big")
        return hashes

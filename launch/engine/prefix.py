"""A prefix cache of token blocks: what a prompt shares with earlier ones need not be computed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from openengine_sidecar.launch.engine.prompt import token_digest


@dataclass(frozen=True, slots=True)
class Namespace:
    """Whatever keeps equal token ids apart: salt, adapter, media.

    Attributes:
        seed: at most 16 bytes, different for every namespace.
        lora_name: the adapter's name, empty without one.
        extra_keys: what else went into the hashes, as events tell it of the first block of a sequence.
    """

    seed: bytes = b""
    lora_name: str = ""
    extra_keys: tuple[tuple[str, ...], ...] = ()


@dataclass(slots=True)
class Block:
    """One full block, named by a hash of everything up to and including it; `holders` are running requests."""

    key: int
    parent: int | None
    tokens: tuple[int, ...]
    namespace: Namespace
    holders: int = 0


class Changed(Protocol):
    """Hears what one step changed: first the blocks that left, then the chain that came."""

    def __call__(self, removed: Sequence[Block], stored: Sequence[Block]) -> None:
        """Take it in."""
        ...


def _unheard(removed: Sequence[Block], stored: Sequence[Block]) -> None:
    del removed, stored


class PrefixCache:
    """The blocks of one rank. Held ones stay; of the others the least recently used leave first, ends of chains first.

    A block is never without its parent: whoever holds it holds the whole chain. When every place is held, further
    blocks are computed and forgotten.
    """

    def __init__(self, block_size: int, capacity: int, changed: Changed = _unheard) -> None:
        self.block_size = block_size
        self._capacity = capacity
        self._changed = changed
        self._blocks: dict[int, Block] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    def __iter__(self) -> Iterator[Block]:
        """All blocks, parents before their children."""
        return iter(self._blocks.values())

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def held(self) -> int:
        """Number of blocks that running requests hold."""
        return len(self._blocks) - len(self._idle)

    def hold(self, ids: Sequence[int], namespace: Namespace, *, bypass: bool = False) -> Hold:
        """Look a prompt up, store its full blocks and hold them.

        Args:
            ids: the prompt.
            namespace: of the prompt.
            bypass: reuse nothing; the blocks are stored all the same.
        """
        hold = Hold(self, namespace)
        hits = hold.take(ids)
        # At least the last token is always computed.
        hold.cached_tokens = 0 if bypass else min(hits, (len(ids) - 1) // self.block_size) * self.block_size
        return hold

    def clear(self) -> None:
        """Forget every block that is not held, without a word to anybody."""
        for key in self._idle:
            del self._blocks[key]
        self._idle.clear()

    def pin(self, chain: Sequence[Block]) -> tuple[int, list[Block]]:
        """Hold a chain, storing what is not there; return how many were, and what is held of it."""
        held: list[Block] = []
        for block in chain:
            known = self._blocks.get(block.key)
            if known is None:
                break
            known.holders += 1
            self._idle.pop(block.key, None)
            held.append(known)
        hits = len(held)
        removed, stored = self._store(chain[hits:])
        if removed or stored:
            self._changed(removed, stored)
        return hits, [*held, *stored]

    def unpin(self, held: Sequence[Block]) -> None:
        """Let blocks go, in the order of their chain; they stay until their places are needed."""
        for block in reversed(held):
            block.holders -= 1
            if block.holders == 0:
                self._idle[block.key] = None

    def _store(self, chain: Sequence[Block]) -> tuple[list[Block], list[Block]]:
        excess = len(self._blocks) + len(chain) - self._capacity
        removed = [self._evict() for _ in range(min(excess, len(self._idle)))]
        stored = list(chain[: self._capacity - len(self._blocks)])
        for block in stored:
            block.holders = 1
            self._blocks[block.key] = block
        return removed, stored

    def _evict(self) -> Block:
        key, _ = self._idle.popitem(last=False)
        return self._blocks.pop(key)


class Hold:
    """What one running request holds of the cache.

    Attributes:
        cached_tokens: prompt tokens that were there already.
    """

    def __init__(self, cache: PrefixCache, namespace: Namespace) -> None:
        self.cached_tokens = 0
        self._cache = cache
        self._namespace = namespace
        self._held: list[Block] = []
        self._tail: list[int] = []
        self._whole = True

    def take(self, ids: Iterable[int]) -> int:
        """Append tokens to the sequence; return how many of the blocks they fill were there already."""
        self._tail += ids
        chain = self._cut()
        if not (self._whole and chain):
            return 0
        hits, held = self._cache.pin(chain)
        self._held += held
        self._whole = len(held) == len(chain)
        return hits

    def release(self) -> None:
        """Let everything go."""
        self._cache.unpin(self._held)
        self._held.clear()

    def _cut(self) -> list[Block]:
        """Cuts the full blocks off the tokens that wait."""
        size, parent = self._cache.block_size, self._held[-1].key if self._held else None
        chain: list[Block] = []
        full = len(self._tail) // size * size
        for start in range(0, full, size):
            tokens = tuple(self._tail[start : start + size])
            salt = self._namespace.seed if parent is None else parent.to_bytes(8, "big")
            block = Block(token_digest(tokens, salt), parent, tokens, self._namespace)
            chain.append(block)
            parent = block.key
        del self._tail[:full]
        return chain

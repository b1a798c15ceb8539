"""What an engine tells of its KV cache, and where it can be heard.

Events come by ten thousands and hold no cycles, so the garbage collector does not track them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Medium(StrEnum):
    """Where a block lies; not given means GPU. UNKNOWN stands for a number this build does not know."""

    GPU = "gpu"
    CPU_PINNED = "cpu_pinned"
    DISK = "disk"
    EXTERNAL = "external"
    UNKNOWN = "unknown"


class BlockHash(msgspec.Struct, frozen=True, gc=False):
    """An engine's name for a block and all that precedes it. Two are the same when both fields are."""

    value: bytes
    encoding: str


class BlockStored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A chain of full blocks that the engine now holds.

    Attributes:
        hashes: one for each block, in the order of the tokens.
        token_ids: `block_size` for each block.
        block_size: tokens in a block.
        parent: the block before the first one; None at the start of a sequence.
        lora_id: the adapter's number, 0 without one.
        lora_name: the adapter's name, empty without one.
        extra_keys: what besides tokens and adapter went into the hashes, a tuple for each contribution.
        group: number of a group of layers in a hybrid cache.
        spec_kind: the group's kind in the engine's words, empty where the cache is not hybrid.
        sliding_window: the group's window in tokens, 0 without one.
    """

    hashes: tuple[BlockHash, ...]
    token_ids: list[int]
    block_size: int
    parent: BlockHash | None = None
    lora_id: int = 0
    lora_name: str = ""
    medium: Medium = Medium.GPU
    extra_keys: tuple[tuple[str, ...], ...] = ()
    group: int = 0
    spec_kind: str = ""
    sliding_window: int = 0


class BlockRemoved(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Blocks that a medium holds no longer; other media may."""

    hashes: tuple[BlockHash, ...]
    medium: Medium = Medium.GPU
    group: int = 0


class AllBlocksCleared(msgspec.Struct, frozen=True):
    """The rank holds nothing any more, on no medium."""


class UnknownEvent(msgspec.Struct, frozen=True):
    """An event of a kind that this build does not know."""


KvEvent = BlockStored | BlockRemoved | AllBlocksCleared | UnknownEvent


class KvBatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Events of one data-parallel rank. `sequence` rises by one from batch to batch, also where `events` is empty."""

    sequence: int
    rank: int
    events: tuple[KvEvent, ...] = ()
    timestamp_unix_nanos: int = 0


class KvEventSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where events of one rank can be heard, as the engine advertises it.

    Attributes:
        transport: `grpc`, a call of the engine's own service, or `zmq`.
        encoding: `protobuf` over gRPC, `msgpack` over ZMQ.
        host: what to connect to, a name or an address without brackets; never a wildcard.
        protocol: of the ZMQ socket; empty means tcp.
        replay_endpoint: ZMQ only, where lost batches can be asked for.
        rank: None where the engine does not say.
        buffer_steps: batches kept for replay.
        hwm: high-water mark of the socket, in messages.
    """

    transport: str
    encoding: str
    host: str = ""
    port: int = 0
    protocol: str = ""
    topic: str = ""
    replay_endpoint: str = ""
    rank: int | None = None
    schema_version: int | None = None
    buffer_steps: int | None = None
    hwm: int | None = None
    max_queue_size: int | None = None

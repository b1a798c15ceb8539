"""Dynamo's event plane: the envelope, what routers hear of caches and load, and how they ask for what they missed.

Everything is MessagePack, maps with the wire's own names. Ids and hashes are unsigned 64-bit numbers. Events come by
ten thousands and hold no cycles, so the garbage collector does not track them: a third of their cost, measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from openengine_sidecar.messages.dynamo.control import Codec
from openengine_sidecar.messages.dynamo.naming import EndpointId, instance_hex
from openengine_sidecar.messages.dynamo.parsing import Part, parsing
from openengine_sidecar.messages.dynamo.request import U32, U64

LOAD_TOPIC = "kv_metrics"
CLEARED: Final = "cleared"
"""Data of an event that empties its rank in every tier, whatever tier it names; other ranks of the worker keep theirs.

Seen in ai-dynamo-runtime 1.6.1, with both kinds of index that its router has (one event thread, and several).
"""


class EventEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """What is published on `<subject prefix>.<topic>`.

    Attributes:
        sequence: 0, 1, 2 ... for each publisher.
        published_at: milliseconds since the epoch.
        payload: MessagePack again.
    """

    publisher_id: U64
    sequence: U64
    published_at: U64
    topic: str
    payload: bytes


class StorageTier(StrEnum):
    """Where a worker holds a block; a router takes the device for the best."""

    DEVICE = "device"
    HOST_PINNED = "host_pinned"
    DISK = "disk"
    EXTERNAL = "external"


class StoredBlock(msgspec.Struct, frozen=True, gc=False):
    """One block: by the engine's name for it and its prefix, and by what is in it (`tokens_hash`)."""

    block_hash: U64
    tokens_hash: U64
    mm_extra_info: None = None


class Stored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A chain of blocks below `parent_hash`, each the parent of the next; None starts a sequence.

    A router drops the chain on the device tier when it does not hold the parent there. Lower tiers need no parent.
    """

    parent_hash: U64 | None
    start_position: None = None
    blocks: Sequence[StoredBlock]


class Removed(msgspec.Struct, frozen=True, gc=False):
    """Blocks a tier holds no longer. On the device a router forgets all that hangs below them, silently."""

    block_hashes: Sequence[U64]


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Exactly one of the two is set."""

    stored: Stored | UnsetType = UNSET
    removed: Removed | UnsetType = UNSET


EventData = Change | Literal["cleared"]


class CacheEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One change of one rank. Ids count from 1 by one; a router that finds a gap asks for recovery."""

    event_id: U64
    data: EventData
    dp_rank: U32


class RouterEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event as routers hear it."""

    worker_id: U64
    storage_tier: StorageTier = StorageTier.DEVICE
    residency_domain: str = "worker"
    event: CacheEvent


class ActiveLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Load of one rank. A worker knows only `kv_used_blocks`; a router keeps the last number, and skips a null."""

    worker_id: U64
    dp_rank: U32
    active_decode_blocks: None = None
    active_prefill_tokens: None = None
    kv_used_blocks: U64 | None = None


class RecoveryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A router's question to one rank's recovery endpoint.

    Attributes:
        start_event_id: first id wanted; None asks for the whole cache.
        end_event_id: None, or the last id wanted; the answer goes on to the newest all the same.
        kind: `recovery`, or a question for another kind of worker.
    """

    worker_id: U64
    dp_rank: U32
    start_event_id: U64 | None = None
    end_event_id: U64 | None = None
    supports_tree_dump_failed: bool = False
    kind: Any = "recovery"


class TreeDump(msgspec.Struct, frozen=True, kw_only=True):
    """The whole rank, parents before children, ids from 0; replaces what the router held of it."""

    events: Sequence[RouterEvent]
    last_event_id: U64
    reset_scope: str = "all"


class RecentEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Events as they were published, from the first wanted to the newest."""

    events: Sequence[RouterEvent]
    last_event_id: U64


class TooNew(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing so new was published."""

    requested_start: U64 | None
    requested_end: U64 | None
    newest_available: U64


class InvalidRange(msgspec.Struct, frozen=True, kw_only=True):
    """The end lies before the start."""

    start_id: U64
    end_id: U64


class RecoveryAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The item of a recovery endpoint, not annotated; exactly one field is set.

    After `error` a router asks again, with growing pauses; after `too_new` and `invalid_range` it goes on with what
    it has.
    """

    tree_dump: TreeDump | UnsetType = UNSET
    events: RecentEvents | UnsetType = UNSET
    too_new: TooNew | UnsetType = UNSET
    invalid_range: InvalidRange | UnsetType = UNSET
    error: str | UnsetType = UNSET


def recovery_endpoint(endpoint: EndpointId, publisher_id: int) -> EndpointId:
    """The endpoint at which routers ask for what they missed of one publisher."""
    return endpoint.sibling(f"worker_kv_query_source_{instance_hex(publisher_id)}")


def event_subject(endpoint: EndpointId, topic: str) -> str:
    """NATS subject of a topic."""
    return f"{endpoint.event_prefix}.{topic}"


def encode_events(events: Iterable[RouterEvent]) -> bytes:
    """Payload of an envelope on the topic of KV events."""
    return _encode(list(events))


def encode_load(load: ActiveLoad) -> bytes:
    """Payload of an envelope on the topic of load."""
    return _encode(load)


def encode_envelope(envelope: EventEnvelope) -> bytes:
    """One message of the event plane."""
    return _encode(envelope)


def encode_answer(answer: RecoveryAnswer, codec: Codec) -> msgspec.Raw:
    """An answer in the request's codec, ready to be put into a response frame as a bare item."""
    encode = _encode if codec is Codec.MSGPACK else msgspec.json.encode
    return msgspec.Raw(encode(answer))


def decode_recovery_request(body: bytes, codec: Codec) -> RecoveryRequest:
    """Reads a router's question.

    Raises:
        WireError: part `body`: it does not parse.
    """
    with parsing(Part.BODY):
        if codec is Codec.MSGPACK:
            return _REQUEST.decode(body)
        return msgspec.json.decode(body, type=RecoveryRequest)


_encode = msgspec.msgpack.Encoder().encode
_REQUEST = msgspec.msgpack.Decoder(RecoveryRequest)

"""Names that Dynamo 1.6.1 gives to things: endpoints, subjects, discovery keys, files, slugs.

An instance id is an unsigned 64-bit number: lower-case hex without padding in keys and subjects, decimal in values.
Discovery keys are the same text for every backend; the file backend writes them as percent-encoded file names.
"""

from __future__ import annotations

import re
from string import ascii_letters, digits
from urllib.parse import unquote

import msgspec

INSTANCES = "v1/instances"
CARDS = "v1/mdc"
EVENT_CHANNELS = "v1/event_channels"
EVENT_SOURCES = "v1/event_sources"
BUCKETS = (INSTANCES, CARDS, EVENT_CHANNELS, EVENT_SOURCES)

MAX_INSTANCE_ID = 2**64 - 1
KV_EVENTS_TOPIC = "kv-events"

_SAFE_BYTES = frozenset((ascii_letters + digits).encode())
_UNSLUGGED = re.compile(r"[^a-z0-9_-]")


class EndpointId(msgspec.Struct, frozen=True):
    """One request-plane endpoint: `namespace/component/name`."""

    namespace: str
    component: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.component}/{self.name}"

    def sibling(self, name: str) -> EndpointId:
        """Another endpoint of the same component."""
        return EndpointId(self.namespace, self.component, name)

    @property
    def event_prefix(self) -> str:
        """Subject prefix of the events published under this endpoint."""
        return f"namespace.{self.namespace}.component.{self.component}.endpoint.{self.name}"


def instance_hex(instance_id: int) -> str:
    """The id as keys and subjects spell it.

    Raises:
        ValueError: the id does not fit in 64 unsigned bits.
    """
    if not 0 <= instance_id <= MAX_INSTANCE_ID:
        problem = f"instance id {instance_id} does not fit in 64 unsigned bits"
        raise ValueError(problem)
    return format(instance_id, "x")


def instance_subject(endpoint: EndpointId, instance_id: int) -> str:
    """NATS subject on which one instance of an endpoint takes requests."""
    return f"{endpoint.namespace}_{endpoint.component}.{endpoint.name}-{instance_hex(instance_id)}"


def instance_path(endpoint: EndpointId, instance_id: int) -> str:
    """Endpoint path of one instance on the TCP request plane, without host and port."""
    return f"{instance_hex(instance_id)}/{endpoint}"


def instance_key(endpoint: EndpointId, instance_id: int) -> str:
    """Discovery key of an instance record."""
    return f"{INSTANCES}/{endpoint}/{instance_hex(instance_id)}"


def card_key(endpoint: EndpointId, instance_id: int, suffix: str = "") -> str:
    """Discovery key of a model card; `suffix` is an adapter's slug, empty for the base model."""
    base = f"{CARDS}/{endpoint}/{instance_hex(instance_id)}"
    return f"{base}/{suffix}" if suffix else base


def event_channel_key(endpoint: EndpointId, topic: str, publisher_id: int) -> str:
    """Discovery key of one publisher's channel for a topic."""
    return f"{EVENT_CHANNELS}/{_topic_path(endpoint, topic)}/{instance_hex(publisher_id)}"


def event_source_key(endpoint: EndpointId, publisher_id: int, topic: str = KV_EVENTS_TOPIC) -> str:
    """Discovery key of one source of KV events."""
    return f"{EVENT_SOURCES}/{_topic_path(endpoint, topic)}/{instance_hex(publisher_id)}"


def split_key(key: str) -> tuple[str, str]:
    """Splits a discovery key into its bucket and the rest.

    Raises:
        ValueError: the key lies in none of the known buckets, or is nothing but a bucket.
    """
    for bucket in BUCKETS:
        rest = key.removeprefix(f"{bucket}/")
        if rest and rest != key:
            return bucket, rest
    problem = f"{key!r} lies in no discovery bucket"
    raise ValueError(problem)


def file_name(rest: str) -> str:
    """The file that holds a key's record: each UTF-8 byte outside `A-Za-z0-9` becomes `%XX`."""
    return "".join(chr(byte) if byte in _SAFE_BYTES else f"%{byte:02X}" for byte in rest.encode())


def key_of_file(name: str) -> str:
    """What `file_name` was given.

    Raises:
        ValueError: the name holds bytes that are not UTF-8.
    """
    return unquote(name, errors="strict")


def slugify(name: str) -> str:
    """Slug of a model or an adapter: lower case, `[a-z0-9_-]` kept, else `_`, no `_` in front.

    Dynamo maps different names to one slug (`a.b`, `a/b`); who needs uniqueness keeps the name.
    """
    return _UNSLUGGED.sub("_", name.lower()).lstrip("_")


def _topic_path(endpoint: EndpointId, topic: str) -> str:
    return f"namespace/{endpoint.namespace}/component/{endpoint.component}/endpoint/{endpoint.name}/topic/{topic}"

"""Where to hear each rank: an engine's advertisement, checked as a whole.

A router that hears some ranks and not others would take the silent ones for empty, so it is all ranks or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Final

import msgspec

from openengine_sidecar.messages.engine.kv import KvEventSource

GRPC: Final = ("grpc", "protobuf")
ZMQ: Final = ("zmq", "msgpack")
ZMQ_SCHEMA: Final = 1

_MAX_PORT = 2**16 - 1


class ZmqAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A socket to subscribe to, and one to ask for lost batches, empty without."""

    endpoint: str
    topic: str = ""
    replay_endpoint: str = ""


class RankSource(msgspec.Struct, frozen=True, kw_only=True):
    """The ways to hear one rank, at least one: the engine's own call is the better, a socket the other."""

    grpc: bool = False
    zmq: ZmqAddress | None = None


class SourcePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A source for each rank; none at all where the engine advertises none. `skipped`: transports not known here."""

    ranks: Mapping[int, RankSource] = {}
    skipped: tuple[str, ...] = ()


class SourcesUnusable(msgspec.Struct, frozen=True):
    """The advertisement contradicts itself or the engine's ranks: without KV events it is safer."""

    problem: str


def plan_sources(sources: Iterable[KvEventSource], ranks: Sequence[int]) -> SourcePlan | SourcesUnusable:
    """Find a source for each rank that the engine serves.

    Args:
        sources: as advertised.
        ranks: the data-parallel ranks of the engine.
    """
    known: list[KvEventSource] = []
    skipped: list[str] = []
    for source in sources:
        if (source.transport, source.encoding) in (GRPC, ZMQ):
            known.append(source)
        else:
            skipped.append(f"{source.transport}/{source.encoding}")
    try:
        found = _by_rank(known, ranks)
    except _UnusableError as error:
        return SourcesUnusable(str(error))
    return SourcePlan(ranks=found, skipped=tuple(skipped))


class _UnusableError(Exception):
    """Carries the problem out of the checks."""


def _by_rank(sources: Iterable[KvEventSource], ranks: Sequence[int]) -> dict[int, RankSource]:
    found: dict[int, RankSource] = {}
    for source in sources:
        rank = _rank(source, ranks)
        found[rank] = _joined(found.get(rank, RankSource()), source)
    missing = [rank for rank in ranks if rank not in found]
    if found and missing:
        problem = f"no source of KV events for rank {', '.join(map(str, missing))}"
        raise _UnusableError(problem)
    return found


def _rank(source: KvEventSource, ranks: Sequence[int]) -> int:
    if source.rank is None:
        problem = f"a {source.transport} source of KV events names no rank"
        raise _UnusableError(problem)
    if source.rank not in ranks:
        problem = f"a source of KV events is for rank {source.rank}, the engine serves {', '.join(map(str, ranks))}"
        raise _UnusableError(problem)
    return source.rank


def _joined(rank_source: RankSource, source: KvEventSource) -> RankSource:
    taken = rank_source.grpc if source.transport == GRPC[0] else rank_source.zmq is not None
    if taken:
        problem = f"two {source.transport} sources of KV events for rank {source.rank}"
        raise _UnusableError(problem)
    if source.transport == GRPC[0]:
        return RankSource(grpc=True, zmq=rank_source.zmq)
    return RankSource(grpc=rank_source.grpc, zmq=_zmq_address(source))


def _zmq_address(source: KvEventSource) -> ZmqAddress:
    if source.schema_version not in (None, ZMQ_SCHEMA):
        problem = f"rank {source.rank}: schema version {source.schema_version} of ZMQ events is not {ZMQ_SCHEMA}"
        raise _UnusableError(problem)
    return ZmqAddress(endpoint=_endpoint(source), topic=source.topic, replay_endpoint=source.replay_endpoint)


def _endpoint(source: KvEventSource) -> str:
    protocol = source.protocol or "tcp"
    if protocol != "tcp":
        problem = f"rank {source.rank}: ZMQ over {protocol} is not supported, only tcp"
        raise _UnusableError(problem)
    if not 0 < source.port <= _MAX_PORT:
        problem = f"rank {source.rank}: {source.port} is not a port to connect to"
        raise _UnusableError(problem)
    return f"{protocol}://{_host(source)}:{source.port}"


def _host(source: KvEventSource) -> str:
    """The host as an address spells it: IPv6 in brackets."""
    host = source.host.removeprefix("[").removesuffix("]")
    problem = f"rank {source.rank}: {source.host!r} is not a host to connect to"
    if not host or "*" in host:
        raise _UnusableError(problem)
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        raise _UnusableError(problem)
    return f"[{host}]" if isinstance(address, IPv6Address) else host

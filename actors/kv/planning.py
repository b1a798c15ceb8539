"""Whether an engine's KV events can be followed, and from where."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

import grpc
import msgspec

from openengine_sidecar.actors.engine.client import EngineClient
from openengine_sidecar.actors.kv.rank import DEFAULT_BLOCKS
from openengine_sidecar.actors.kv.sources import RankSource, SourcesUnusable, plan_sources
from openengine_sidecar.messages.engine.discovery import Role
from openengine_sidecar.messages.facts import EngineUp
from openengine_sidecar.proto.dialect import EngineCallError

ZMQ_HINT: Final = "its KV events need pyzmq: pip install 'openengine-sidecar[kv]'"


class KvPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A source for each rank; block size in tokens, and the blocks that a rank has."""

    sources: Mapping[int, RankSource]
    block_size: int
    blocks: int


class KvOff(msgspec.Struct, frozen=True):
    """There is nothing to follow. `fault`: not by choice, somebody should look at it."""

    why: str
    fault: bool = False


async def plan_events(client: EngineClient, up: EngineUp, *, timeout: float) -> KvPlan | KvOff:
    """Ask the engine where its events are.

    Raises:
        EngineCallError: the call failed in a way that may pass.
        EngineLostError: no engine is attached.
    """
    if up.role is Role.DECODE:
        return KvOff("nobody is routed by what a decode engine holds")
    try:
        advertised = await client.kv_sources(timeout=timeout)
    except EngineCallError as error:
        if error.status is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        return KvOff("the engine has no KV events")
    found = plan_sources(advertised, up.discovery.parallelism.ranks)
    if isinstance(found, SourcesUnusable):
        return KvOff(found.problem, fault=True)
    if not found.ranks:
        skipped = f" of a known kind, only {', '.join(found.skipped)}" if found.skipped else ""
        return KvOff(f"the engine advertises no KV events{skipped}", fault=bool(found.skipped))
    return _usable(found.ranks, up)


def _usable(sources: Mapping[int, RankSource], up: EngineUp) -> KvPlan | KvOff:
    limits = up.discovery.limits
    if not limits.kv_block_size:
        return KvOff("the engine does not say how large its KV blocks are", fault=True)
    if find_spec("zmq") is None:
        if not all(source.grpc for source in sources.values()):
            return KvOff(ZMQ_HINT, fault=True)
        sources = {rank: RankSource(grpc=True) for rank in sources}
    return KvPlan(sources=sources, block_size=limits.kv_block_size, blocks=limits.total_kv_blocks or DEFAULT_BLOCKS)

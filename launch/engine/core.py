"""What the calls of one engine share."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from google.protobuf.message import Message

from openengine_sidecar.launch.engine import features
from openengine_sidecar.launch.engine.adapters import Adapters
from openengine_sidecar.launch.engine.admission import Admission, Admitted
from openengine_sidecar.launch.engine.answers import Amendments
from openengine_sidecar.launch.engine.faults.active import FaultSet
from openengine_sidecar.launch.engine.generation import Generator
from openengine_sidecar.launch.engine.health import HealthScript
from openengine_sidecar.launch.engine.kv.encoding import EventWriter
from openengine_sidecar.launch.engine.kv.feed import KvFeed
from openengine_sidecar.launch.engine.model import ToyModel, load_model
from openengine_sidecar.launch.engine.options import EngineOptions
from openengine_sidecar.launch.engine.prefix import PrefixCache
from openengine_sidecar.launch.engine.requests import ActiveRequest, RequestTable
from openengine_sidecar.launch.engine.roles.base import Part
from openengine_sidecar.launch.engine.roles.casting import part_of
from openengine_sidecar.launch.engine.stats import RequestRecord, Stats
from openengine_sidecar.proto.rev2 import engine_pb2, kv_pb2, lifecycle_pb2, lora_pb2, model_pb2, observability_pb2

ANSWERS: dict[str, type[Message]] = {
    "Abort": lifecycle_pb2.AbortResponse,
    "GetEngineInfo": engine_pb2.EngineInfo,
    "GetKvConnectorInfo": kv_pb2.KvConnectorInfo,
    "GetKvEventSources": kv_pb2.GetKvEventSourcesResponse,
    "GetLoad": observability_pb2.LoadInfo,
    "GetModelInfo": model_pb2.ModelInfo,
    "Health": lifecycle_pb2.HealthResponse,
    "ListLoras": lora_pb2.ListLorasResponse,
    "LoadLora": lora_pb2.LoadLoraResponse,
    "UnloadLora": lora_pb2.UnloadLoraResponse,
}


@dataclass(slots=True)
class Core:
    """State of one engine process.

    Attributes:
        has: names of the features it has.
        adapters: LoRA adapters that it holds.
        caches: prefix caches by data-parallel rank.
        feeds: their KV events, likewise.
        zmq_sources: where events are served over ZMQ, as advertised.
        part: what its role adds.
        starting: True until the start delay is over.
        draining: True once a drain stopped the intake; there is no way back.
        stopping: True once the server goes down, when cancelled streams are not the client's doing.
        die: ends the engine as a crash would.
    """

    options: EngineOptions
    model: ToyModel
    has: frozenset[str]
    adapters: Adapters
    admission: Admission
    generator: Generator
    table: RequestTable
    stats: Stats
    health: HealthScript
    faults: FaultSet
    answers: Amendments
    caches: dict[int, PrefixCache]
    feeds: dict[int, KvFeed]
    part: Part
    die: Callable[[], None]
    instance_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    starting: bool = False
    draining: bool = False
    stopping: bool = False
    zmq_sources: list[kv_pb2.KvEventSource] = field(default_factory=list[kv_pb2.KvEventSource])
    _arrivals: count[int] = field(default_factory=count)

    def accept(self, admitted: Admitted) -> ActiveRequest:
        """Take a valid request in: rank, prefix cache, id and record."""
        request = admitted.request
        rank = self._rank(admitted)
        hold = self.caches[rank].hold(admitted.prompt.ids, admitted.namespace(), bypass=request.kv.bypass_prefix_cache)
        record = RequestRecord(
            request_id=request.request_id,
            model=request.model,
            prompt_tokens=len(admitted.prompt.ids),
            rank=rank,
            priority=request.priority if request.HasField("priority") else None,
            cached_tokens=hold.cached_tokens,
        )
        active = ActiveRequest(record, hold)
        self.table.add(active)
        self.stats.record(record)
        return active

    def _rank(self, admitted: Admitted) -> int:
        kv = admitted.request.kv
        if kv.HasField("session"):
            return kv.session.dp_rank
        if kv.HasField("data_parallel_rank"):
            return kv.data_parallel_rank
        return self.options.data_parallel_start_rank + next(self._arrivals) % self.options.data_parallel_size


def build_core(options: EngineOptions, die: Callable[[], None]) -> Core:
    """Put an engine together.

    Raises:
        ConfigurationError: the model directory or a script is unusable.
    """
    model = load_model(options)
    has = features.granted(options)
    stats = Stats(keep_requests=options.keep_requests)
    start = options.data_parallel_start_rank
    writer = EventWriter(options.kv_event_encoding)
    ranks = range(start, start + options.data_parallel_size)
    feeds = {rank: KvFeed(rank, writer, keep=options.kv_history) for rank in ranks}
    adapters = Adapters(options.max_loras, enabled="lora" in has)
    generator, table = Generator(options, model), RequestTable(options.max_running_requests)
    return Core(
        options=options,
        model=model,
        has=has,
        adapters=adapters,
        admission=Admission(options, model, has, adapters),
        generator=generator,
        table=table,
        stats=stats,
        health=HealthScript(options.health),
        answers=Amendments(options.answers, ANSWERS),
        faults=FaultSet(options.faults, stats.faults, in_prompts=options.prompt_faults),
        caches={
            rank: PrefixCache(options.kv_block_size, options.total_kv_blocks, feed.changed)
            for rank, feed in feeds.items()
        },
        feeds=feeds,
        part=part_of(options, generator, table, stats),
        die=die,
    )

"""Health and load."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import grpc
from google.protobuf.message import Message

from openengine_sidecar.launch.engine.core import Core
from openengine_sidecar.launch.engine.health import Answer
from openengine_sidecar.launch.engine.roles.kinds import KINDS
from openengine_sidecar.launch.engine.status import StatusError, invalid, unknown_model
from openengine_sidecar.proto.rev2 import engine_pb2, lifecycle_pb2, observability_pb2

PROBE = "InferenceProbe"


async def health(core: Core, request: lifecycle_pb2.HealthRequest) -> Message:
    """Answer Health: starting and draining come first, then the script; a run of the model has faults of its own.

    Raises:
        StatusError: NOT_FOUND for another model, INVALID_ARGUMENT for another role, or as the script says.
    """
    if not core.model.answers_to(request.model):
        raise unknown_model(request.model)
    if request.role not in {engine_pb2.ENGINE_ROLE_UNSPECIFIED, KINDS[core.options.role].number}:
        role = f"this engine's role is {core.options.role}"
        raise invalid(role)
    if core.starting:
        return _answer(lifecycle_pb2.HEALTH_STATE_STARTING, request)
    if core.draining:
        return _answer(lifecycle_pb2.HEALTH_STATE_DRAINING, request)
    answer = partial(_scripted, core.health.next(), request)
    return await (core.faults.around(PROBE, answer) if request.include_inference_probe else answer())


async def _scripted(answer: Answer, request: lifecycle_pb2.HealthRequest) -> lifecycle_pb2.HealthResponse:
    if answer.refusal == "hang":
        await asyncio.Event().wait()
    if answer.refusal is not None:
        raise StatusError(_status(answer.refusal), f"scripted: {answer.refusal}")
    return _answer(lifecycle_pb2.HEALTH_STATE_UNSPECIFIED if answer.state is None else answer.state, request)


def _status(name: str) -> grpc.StatusCode:
    return grpc.StatusCode.RESOURCE_EXHAUSTED if name == "overloaded" else grpc.StatusCode[name.upper()]


def _answer(state: int, request: lifecycle_pb2.HealthRequest) -> lifecycle_pb2.HealthResponse:
    response = lifecycle_pb2.HealthResponse()
    names = ["grpc", "model", "scheduler", *(["inference_probe"] if request.include_inference_probe else [])]
    response.state = state  # type: ignore[assignment]  # an unknown number is part of the script
    for name in names:
        check = response.checks.add(name=name, state=lifecycle_pb2.HEALTH_STATE_READY)
        if name == names[-1]:
            check.state = response.state
    return response


async def get_load(core: Core, request: observability_pb2.GetLoadRequest) -> observability_pb2.LoadInfo:
    """Answer GetLoad: measured numbers."""
    ranks = [_rank_load(core, rank) for rank in core.caches]
    load = observability_pb2.LoadInfo(
        instance_id=core.instance_id,
        timestamp_unix_nanos=time.time_ns(),
        running_requests=core.table.running,
        queued_requests=core.table.queued,
        active_kv_sessions=core.stats.sessions.live if core.part.sessions is not None else None,
        used_kv_blocks=sum(rank.used_kv_blocks for rank in ranks),
        total_kv_blocks=sum(rank.total_kv_blocks for rank in ranks),
        running_tokens=_tokens(core, running=True),
        waiting_tokens=_tokens(core, running=False),
        prefill_batch_size=0,
        decode_batch_size=core.table.running,
    )
    load.attributes["simulator"] = "true"
    if request.include_per_rank:
        load.ranks.extend(ranks)
    return load


def _rank_load(core: Core, rank: int) -> observability_pb2.RankLoadInfo:
    own = [request for request in core.table.active.values() if request.record.rank == rank]
    running = [request.record for request in own if request.running]
    size = core.options.kv_block_size
    held = core.part.sessions.blocks(rank, size) if core.part.sessions is not None else 0
    return observability_pb2.RankLoadInfo(
        data_parallel_rank=rank,
        running_requests=len(running),
        queued_requests=len(own) - len(running),
        used_kv_blocks=held + sum(-(-(record.prompt_tokens + record.tokens) // size) for record in running),
        total_kv_blocks=core.options.total_kv_blocks,
        prefill_batch_size=0,
        decode_batch_size=len(running),
    )


def _tokens(core: Core, *, running: bool) -> int:
    requests = (request.record for request in core.table.active.values() if request.running == running)
    return sum(record.prompt_tokens + record.tokens for record in requests)

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from openengine_sidecar.messages.engine.control import AbortOutcome, Health, HealthCheck, HealthState, Load, RankLoad
from openengine_sidecar.messages.engine.generation import (
    GenerateCall,
    KvSession,
    Logprobs,
    Sampling,
    Tokens,
)
from openengine_sidecar.messages.errors import InvalidRequestError
from openengine_sidecar.proto.dialect import Dialect, EngineCallError
from openengine_sidecar.proto.fields import FieldError
from openengine_sidecar.proto.handoff.session_pb2 import AbortView
from openengine_sidecar.proto.rev2.error_pb2 import ERROR_CODE_INTERNAL, EngineError
from openengine_sidecar.proto.rev2.generation_pb2 import GenerateResponse, TokenInfo, TokenOutput
from openengine_sidecar.proto.rev2.kv_pb2 import KvSessionRef
from openengine_sidecar.proto.rev2.lifecycle_pb2 import (
    AbortResponse,
    DrainRequest,
    DrainResponse,
    HealthResponse,
)
from openengine_sidecar.proto.rev2.lifecycle_pb2 import HealthCheck as WireCheck
from openengine_sidecar.proto.rev2.observability_pb2 import LoadInfo, RankLoadInfo
from openengine_sidecar.proto.rev2_dialect import Method, Revision2
from tests.proto.engine import Reply, answering, connected, engine_info, refusing, streaming, wire

REV2 = Revision2()
TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}


def test_it_is_a_dialect() -> None:
    dialect: Dialect = REV2
    assert (dialect.name, dialect.own_revision, dialect.floor_revision) == ("rev2", 2, 2)


async def test_c01_every_call_uses_the_paths_of_its_service() -> None:
    handlers = {
        Method.GET_ENGINE_INFO: answering(engine_info()),
        Method.GENERATE: streaming(),
        Method.ABORT: answering(AbortResponse()),
        Method.HEALTH: answering(HealthResponse()),
        Method.GET_LOAD: answering(LoadInfo()),
        Method.DRAIN: streaming(DrainResponse(state=wire(3))),
    }
    async with connected(handlers) as (engine, channel):
        assert await REV2.speaks(channel, timeout=5)
        assert await REV2.generate(channel, GenerateCall(request_id="r", model="m", token_ids=[1])).next_batch() == ()
        await REV2.abort(channel, "r", timeout=5)
        await REV2.health(channel, probe=False, timeout=5)
        await REV2.load(channel, per_rank=False, timeout=5)
        await REV2.drain(channel, deadline_ms=1, timeout=5)
        assert engine.methods == list(handlers)


async def test_c28_trace_headers_travel_with_every_call_of_a_request() -> None:
    call = GenerateCall(request_id="r", model="m", token_ids=[1], trace=TRACE)
    async with connected({Method.GENERATE: streaming(), Method.ABORT: answering(AbortResponse())}) as (engine, channel):
        await REV2.generate(channel, call).next_batch()
        await REV2.abort(channel, "r", timeout=5, trace=TRACE)
        for made in engine.calls:
            assert TRACE.items() <= made.headers.items()
            assert not any(name.startswith("openengine-") for name in made.headers)


@pytest.mark.parametrize("trace", [{"traceparent": "é"}, {"tracestate": "a\nb"}, {"openengine-foo": "x"}])
async def test_c28_a_header_that_cannot_travel_is_refused_here(trace: dict[str, str]) -> None:
    async with connected({}) as (_, channel):
        with pytest.raises(InvalidRequestError, match=r"request r: .*trace\."):
            REV2.generate(channel, GenerateCall(request_id="r", model="m", token_ids=[1], trace=trace))
        with pytest.raises(FieldError):
            await REV2.abort(channel, "r", timeout=5, trace=trace)


async def test_c29_what_the_schema_cannot_carry_is_refused_before_the_engine_hears_of_it() -> None:
    async with connected({Method.GENERATE: streaming()}) as (engine, channel):
        with pytest.raises(InvalidRequestError, match=r"sampling\.seed") as refusal:
            REV2.generate(channel, GenerateCall(request_id="r", model="m", token_ids=[1], sampling=Sampling(seed=-1)))
        assert refusal.value.public is not None
        assert engine.calls == []


@pytest.mark.parametrize("wanted", [None, Logprobs()])
async def test_token_details_come_where_the_call_asked_for_them(wanted: Logprobs | None) -> None:
    event = GenerateResponse(token=TokenOutput(output_index=0, tokens=[TokenInfo(token_id=1, logprob=-1.0)]))
    call = GenerateCall(request_id="r", model="m", token_ids=[1], output_logprobs=wanted)
    async with connected({Method.GENERATE: streaming(event)}) as (_, channel):
        ((received),) = await REV2.generate(channel, call).next_batch()
    assert isinstance(received.body, Tokens)
    assert (received.body.details is None) == (wanted is None)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (0, AbortOutcome.UNSPECIFIED),
        (1, AbortOutcome.ABORTED),
        (2, AbortOutcome.GONE),
        (77, AbortOutcome.UNSPECIFIED),
    ],
)
async def test_c70_abort_statuses(status: int, outcome: AbortOutcome) -> None:
    answer = AbortResponse(status=wire(status))
    async with connected({Method.ABORT: answering(answer)}) as (engine, channel):
        assert await REV2.abort(channel, "r.1", timeout=5) is outcome
        assert engine.calls[0].request.request_id == "r.1"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(grpc.StatusCode.NOT_FOUND, AbortOutcome.GONE), (grpc.StatusCode.UNIMPLEMENTED, AbortOutcome.UNSUPPORTED)],
)
async def test_c62_abort_refusals_that_are_answers(code: grpc.StatusCode, outcome: AbortOutcome) -> None:
    async with connected({Method.ABORT: refusing(code)}) as (_, channel):
        assert await REV2.abort(channel, "r", timeout=5) is outcome


async def test_c62_other_abort_refusals_are_errors() -> None:
    async with connected({Method.ABORT: refusing(grpc.StatusCode.UNAVAILABLE)}) as (_, channel):
        with pytest.raises(EngineCallError) as failure:
            await REV2.abort(channel, "r", timeout=5)
        assert failure.value.status is grpc.StatusCode.UNAVAILABLE


async def test_c42_an_abort_by_session_carries_its_bytes() -> None:
    wire_bytes = b"\x4a\x03new" + KvSessionRef(session_id="s", dp_rank=3).SerializeToString()
    session = KvSession(session_id="s", transfer_backend="", dp_rank=3, wire=wire_bytes)
    async with connected({Method.ABORT: answering(AbortResponse(status=wire(1)))}) as (engine, channel):
        assert await REV2.abort_session(channel, session, timeout=5, trace=TRACE) is AbortOutcome.ABORTED
        [call] = engine.calls
    assert call.request.WhichOneof("target") == "kv_session"
    assert AbortView.FromString(call.raw).kv_session == wire_bytes
    assert TRACE.items() <= call.headers.items()


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(grpc.StatusCode.NOT_FOUND, AbortOutcome.GONE), (grpc.StatusCode.UNIMPLEMENTED, AbortOutcome.UNSUPPORTED)],
)
async def test_c42_refusals_of_an_abort_by_session_are_answers(code: grpc.StatusCode, outcome: AbortOutcome) -> None:
    session = KvSession(session_id="", transfer_backend="", dp_rank=0, wire=b"")
    async with connected({Method.ABORT: refusing(code)}) as (engine, channel):
        assert await REV2.abort_session(channel, session, timeout=5) is outcome
        assert engine.calls[0].request.WhichOneof("target") == "kv_session"


@pytest.mark.parametrize("probe", [False, True])
async def test_c60_health_and_its_checks(*, probe: bool) -> None:
    checks = [WireCheck(name="grpc", state=wire(2)), WireCheck(name="model\n", state=wire(77), message="\x1b[31mred")]
    answer = HealthResponse(state=wire(3), checks=checks)
    async with connected({Method.HEALTH: answering(answer)}) as (engine, channel):
        assert await REV2.health(channel, probe=probe, timeout=5) == Health(
            HealthState.DEGRADED,
            (
                HealthCheck("grpc", HealthState.READY),
                HealthCheck(r"model\n", HealthState.UNKNOWN, r"\x1b[31mred"),
            ),
        )
        assert engine.calls[0].request.include_inference_probe is probe


@pytest.mark.parametrize(
    ("number", "state"),
    [
        (0, HealthState.UNKNOWN),
        (1, HealthState.STARTING),
        (2, HealthState.READY),
        (3, HealthState.DEGRADED),
        (4, HealthState.DRAINING),
        (5, HealthState.NOT_READY),
        (77, HealthState.UNKNOWN),
    ],
)
async def test_c60_health_states(number: int, state: HealthState) -> None:
    answer = HealthResponse(state=wire(number))
    async with connected({Method.HEALTH: answering(answer)}) as (_, channel):
        assert (await REV2.health(channel, probe=False, timeout=5)).state is state


async def test_control_calls_end_at_their_timeout() -> None:
    async def silent(_request: Any, _context: Any) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    async with connected({Method.HEALTH: silent}) as (_, channel):
        with pytest.raises(EngineCallError) as failure:
            await REV2.health(channel, probe=False, timeout=0.01)
        assert failure.value.status is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_c61_load_absent_is_not_zero_and_attributes_decode() -> None:
    answer = LoadInfo(
        instance_id="i",
        timestamp_unix_nanos=5,
        running_requests=0,
        queued_requests=1,
        active_kv_sessions=2,
        used_kv_blocks=3,
        total_kv_blocks=4,
        ranks=[
            RankLoadInfo(),
            RankLoadInfo(
                data_parallel_rank=0, running_requests=1, queued_requests=2, used_kv_blocks=3, total_kv_blocks=4
            ),
        ],
        attributes={"a": "b"},
    )
    async with connected({Method.GET_LOAD: answering(answer)}) as (engine, channel):
        assert await REV2.load(channel, per_rank=True, timeout=5) == Load(
            instance_id="i",
            timestamp_unix_nanos=5,
            running_requests=0,
            queued_requests=1,
            active_kv_sessions=2,
            used_kv_blocks=3,
            total_kv_blocks=4,
            ranks=(
                RankLoad(),
                RankLoad(rank=0, running_requests=1, queued_requests=2, used_kv_blocks=3, total_kv_blocks=4),
            ),
        )
        assert engine.calls[0].request.include_per_rank is True
    async with connected({Method.GET_LOAD: answering(LoadInfo())}) as (_, channel):
        assert await REV2.load(channel, per_rank=False, timeout=5) == Load()


async def test_c65_drain_reports_progress_until_it_is_complete() -> None:
    reports = [DrainResponse(state=wire(number)) for number in (1, 2, 9, 3)]
    async with connected({Method.DRAIN: streaming(*reports)}) as (engine, channel):
        await REV2.drain(channel, deadline_ms=1500, timeout=5)
        assert engine.calls[0].request == DrainRequest(stop_accepting_new_requests=True, deadline_ms=1500)


@pytest.mark.parametrize(
    ("replies", "problem"),
    [
        ((DrainResponse(state=wire(1)),), "closed without COMPLETE"),
        (
            (
                DrainResponse(state=wire(1)),
                DrainResponse(error=EngineError(code=ERROR_CODE_INTERNAL, message="bo\nom")),
            ),
            r"internal: bo\\nom",
        ),
        ((b"\xff",), "not of this schema"),
    ],
    ids=["no-complete", "error", "undecodable"],
)
async def test_c65_a_drain_that_does_not_complete_is_an_error(replies: tuple[Reply, ...], problem: str) -> None:
    async with connected({Method.DRAIN: streaming(*replies)}) as (_, channel):
        with pytest.raises(EngineCallError, match=problem) as failure:
            await REV2.drain(channel, deadline_ms=0, timeout=5)
        assert failure.value.status is grpc.StatusCode.INTERNAL


async def test_an_engine_without_drain_says_so() -> None:
    async with connected({}) as (_, channel):
        with pytest.raises(EngineCallError) as failure:
            await REV2.drain(channel, deadline_ms=2**40, timeout=5)
        assert failure.value.status is grpc.StatusCode.UNIMPLEMENTED

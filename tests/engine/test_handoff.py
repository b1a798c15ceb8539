from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.proto.rev2 import (
    engine_pb2,
    error_pb2,
    generation_pb2,
    kv_pb2,
    lifecycle_pb2,
    observability_pb2,
)
from tests.engine.caller import Answer, Caller, ask, serving

ECHO = 'You said: "hello".'
Session = kv_pb2.KvSessionRef


class Pair:
    """A prefill and a decode engine, each with its caller."""

    def __init__(self, prefill: ReferenceEngine, first: Caller, decode: ReferenceEngine, second: Caller) -> None:
        self.prefill = prefill
        self.decode = decode
        self.first = first
        self.second = second

    async def hand_over(self, fault: str = "", **fields: Any) -> Session:
        answer = await self.prefilled(fault, **fields)
        return answer.last.prefill_ready.kv_session

    async def prefilled(self, fault: str = "", **fields: Any) -> Answer:
        return await self.first.generate(ask(metadata={"fault": fault} if fault else {}, **fields))

    async def decoded(self, session: Session, text: str = "hello", request_id: str = "d") -> Answer:
        return await self.second.generate(ask(text, request_id, kv={"session": session}))

    async def abort(self, caller: Caller, session: Session) -> lifecycle_pb2.AbortResponse:
        request = lifecycle_pb2.AbortRequest(kv_session=session)
        response: lifecycle_pb2.AbortResponse = await caller.unary("Abort", request, lifecycle_pb2.AbortResponse)
        return response

    async def load(self) -> observability_pb2.LoadInfo:
        request = observability_pb2.GetLoadRequest(include_per_rank=True)
        load: observability_pb2.LoadInfo = await self.first.unary("GetLoad", request, observability_pb2.LoadInfo)
        return load

    def sessions(self) -> dict[str, int]:
        return {name: count for name, count in self.prefill.stats.sessions.as_dict().items() if count}


@asynccontextmanager
async def pair(decode: dict[str, Any] | None = None, **prefill: Any) -> AsyncIterator[Pair]:
    async with (
        serving(role="prefill", **prefill) as (engine, caller),
        serving(role="decode", **(decode or {})) as (other, second),
    ):
        yield Pair(engine, caller, other, second)


@pytest.fixture
async def engines() -> AsyncIterator[Pair]:
    async with pair() as engines:
        yield engines


async def test_a_session_goes_from_one_engine_to_the_other(engines: Pair) -> None:
    session = await engines.hand_over()
    assert engines.sessions() == {"created": 1, "live": 1}
    answer = await engines.decoded(session)
    assert (answer.text(), answer.last.finished.reason) == (ECHO, generation_pb2.FINISH_REASON_STOP)
    assert engines.sessions() == {"created": 1, "taken": 1}
    assert engines.decode.stats.sessions.pulled == 1
    records = engines.prefill.stats.records["r"], engines.decode.stats.records["d"]
    assert [record.session for record in records] == [session.session_id] * 2
    assert engines.prefill.stats.records["r"].ended == "handoff"


async def test_usage_stands_on_the_handoff_and_cached_tokens_only_there(engines: Pair) -> None:
    await engines.hand_over()
    ready = (await engines.prefilled(request_id="again")).last
    assert (ready.usage.prompt_tokens, ready.usage.completion_tokens) == (9, 0)
    assert ready.usage.HasField("cached_prompt_tokens")
    answer = await engines.decoded(ready.prefill_ready.kv_session)
    assert not answer.last.usage.HasField("cached_prompt_tokens")


async def test_a_session_is_taken_once(engines: Pair) -> None:
    session = await engines.hand_over()
    await engines.decoded(session)
    again = await engines.decoded(session, request_id="e")
    assert again.last.error.code == error_pb2.ERROR_CODE_KV_SESSION_NOT_FOUND
    assert engines.decode.stats.sessions.failed == 1


async def test_a_session_of_another_prompt_is_refused_and_stays(engines: Pair) -> None:
    session = await engines.hand_over()
    answer = await engines.decoded(session, "other")
    assert answer.last.error.code == error_pb2.ERROR_CODE_KV_TRANSFER_FAILED
    assert engines.sessions() == {"created": 1, "live": 1}


async def test_a_peer_that_is_gone_fails_the_transfer(engines: Pair) -> None:
    session = await engines.hand_over()
    await engines.prefill.stop()
    answer = await engines.decoded(session)
    assert answer.last.error.code == error_pb2.ERROR_CODE_KV_TRANSFER_FAILED


@pytest.mark.parametrize("role", ["aggregated", "prefill"])
async def test_only_decode_engines_take_sessions(role: str) -> None:
    async with serving(role=role) as (_, caller):
        answer = await caller.generate(ask(kv={"session": Session(session_id="s")}))
    assert answer.status is grpc.StatusCode.FAILED_PRECONDITION


async def test_decode_engines_take_nothing_else(engines: Pair) -> None:
    assert (await engines.second.generate(ask())).status is grpc.StatusCode.FAILED_PRECONDITION


async def test_an_untaken_session_ends_by_itself() -> None:
    async with pair(kv_session_ttl=0.05) as engines:
        session = await engines.hand_over()
        await asyncio.wait_for(engines.prefill.stats.until(lambda stats: stats.sessions.live == 0), 10)
        assert engines.sessions() == {"created": 1, "expired": 1}
        answer = await engines.decoded(session)
    assert answer.last.error.code == error_pb2.ERROR_CODE_KV_SESSION_NOT_FOUND


async def test_live_sessions_are_load(engines: Pair) -> None:
    session = await engines.hand_over()
    load = await engines.load()
    assert (load.running_requests, load.active_kv_sessions, load.used_kv_blocks) == (0, 1, 1)
    await engines.decoded(session)
    load = await engines.load()
    assert (load.HasField("active_kv_sessions"), load.active_kv_sessions, load.used_kv_blocks) == (True, 0, 0)


async def test_abort_by_session_at_the_prefill_engine(engines: Pair) -> None:
    session = await engines.hand_over()
    assert (await engines.abort(engines.first, session)).status == lifecycle_pb2.ABORT_STATUS_ABORTED
    assert (await engines.abort(engines.first, session)).status == lifecycle_pb2.ABORT_STATUS_ALREADY_FINISHED
    assert engines.sessions() == {"created": 1, "released": 1}
    assert engines.prefill.stats.session_aborts == {"aborted": 1, "already_finished": 1}


async def test_abort_by_session_at_the_decode_engine_frees_it_where_it_lies(engines: Pair) -> None:
    session = await engines.hand_over()
    assert (await engines.abort(engines.second, session)).status == lifecycle_pb2.ABORT_STATUS_ABORTED
    assert (await engines.abort(engines.second, session)).status == lifecycle_pb2.ABORT_STATUS_ALREADY_FINISHED
    assert engines.sessions() == {"created": 1, "released": 1}
    assert engines.decode.stats.sessions.given_back == 1


@pytest.mark.parametrize("side", ["first", "second"])
async def test_abort_of_a_session_that_never_was(engines: Pair, side: str) -> None:
    session = await engines.hand_over()
    session.session_id = "unseen"
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await engines.abort(getattr(engines, side), session)
    assert error.value.code() is grpc.StatusCode.NOT_FOUND


async def test_abort_by_session_may_be_unknown() -> None:
    async with pair({"kv_abort_cleanup": False}, kv_abort_cleanup=False) as engines:
        session = await engines.hand_over()
        for caller in (engines.first, engines.second):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await engines.abort(caller, session)
            assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
            info = await caller.unary("GetKvConnectorInfo", kv_pb2.GetKvConnectorInfoRequest(), kv_pb2.KvConnectorInfo)
            assert info.supports_abort_cleanup is False
        assert engines.sessions() == {"created": 1, "live": 1}


async def test_an_abort_by_id_during_the_transfer_strands_the_session(engines: Pair) -> None:
    session = await engines.hand_over("slow-transfer:3600")
    decoding = asyncio.create_task(engines.decoded(session))
    await asyncio.wait_for(engines.decode.stats.until(lambda stats: stats.active == 1), 10)
    request = lifecycle_pb2.AbortRequest(request_id="d")
    await engines.second.unary("Abort", request, lifecycle_pb2.AbortResponse)
    answer = await asyncio.wait_for(decoding, 10)
    assert answer.last.finished.reason == generation_pb2.FINISH_REASON_CANCELLED
    assert engines.sessions() == {"created": 1, "live": 1}


async def test_an_abort_by_session_during_the_transfer_ends_both(engines: Pair) -> None:
    session = await engines.hand_over("slow-transfer:3600")
    decoding = asyncio.create_task(engines.decoded(session))
    await asyncio.wait_for(engines.decode.stats.until(lambda stats: "d" in stats.records), 10)
    assert (await engines.abort(engines.second, session)).status == lifecycle_pb2.ABORT_STATUS_ABORTED
    answer = await asyncio.wait_for(decoding, 10)
    assert answer.last.finished.reason == generation_pb2.FINISH_REASON_CANCELLED
    assert engines.sessions() == {"created": 1, "released": 1}


async def test_a_slow_transfer_is_only_slow(engines: Pair) -> None:
    session = await engines.hand_over("slow-transfer:0.01")
    assert (await engines.decoded(session)).text() == ECHO


@pytest.mark.parametrize(
    ("fault", "code", "left"),
    [
        ("lose-session", error_pb2.ERROR_CODE_KV_SESSION_NOT_FOUND, {"created": 1, "lost": 1}),
        ("refuse-handoff", error_pb2.ERROR_CODE_KV_TRANSFER_FAILED, {"created": 1, "live": 1}),
        ("session-odd:protocol", error_pb2.ERROR_CODE_KV_TRANSFER_FAILED, {"created": 1, "live": 1}),
    ],
)
async def test_sessions_that_cannot_be_had(engines: Pair, fault: str, code: int, left: dict[str, int]) -> None:
    session = await engines.hand_over(fault)
    assert (await engines.decoded(session)).last.error.code == code
    assert engines.sessions() == left


@pytest.mark.parametrize("reason", ["cancelled", "stop", "length"])
async def test_a_prefill_may_finish_without_handoff(engines: Pair, reason: str) -> None:
    answer = await engines.prefilled(f"prefill-finished:{reason}")
    assert answer.kinds == ["finished"]
    wanted = generation_pb2.FinishReason.Value(f"FINISH_REASON_{reason.upper()}")
    assert answer.last.finished.reason == wanted
    assert engines.sessions() == {"created": 1, "lost": 1}


async def test_a_handoff_may_lack_its_session_or_its_usage(engines: Pair) -> None:
    assert not (await engines.prefilled("missing-session")).last.prefill_ready.HasField("kv_session")
    assert not (await engines.prefilled("usage-missing")).last.HasField("usage")


@pytest.mark.parametrize("fault", ["error:internal", "no-terminal", "status:internal", "prefill-finished"])
async def test_a_session_that_was_never_handed_out_is_not_held(engines: Pair, fault: str) -> None:
    await engines.prefilled(fault)
    assert "live" not in engines.sessions()


async def test_tokens_may_come_before_the_handoff(engines: Pair) -> None:
    answer = await engines.prefilled("prefill-tokens:2")
    assert answer.kinds == ["token", "token", "prefill_ready"]
    assert answer.last.usage.completion_tokens == 2


async def test_a_session_may_carry_a_field_of_a_newer_schema(engines: Pair) -> None:
    session = await engines.hand_over("session-field:3")
    assert session.SerializeToString().endswith(b"\x4a\x03xxx")
    assert (await engines.decoded(session)).text() == ECHO


@pytest.mark.parametrize("kind", ["number", "nan", "port", "rank", "backend", "huge"])
async def test_sessions_may_be_odd(engines: Pair, kind: str) -> None:
    plain, odd = await engines.hand_over(), await engines.hand_over(f"session-odd:{kind}")
    odd.session_id = plain.session_id
    assert odd != plain


async def test_ranks_of_sessions() -> None:
    async with pair({"data_parallel_size": 2}, data_parallel_size=2) as engines:
        session = await engines.hand_over(kv={"data_parallel_rank": 1})
        assert session.dp_rank == 1
        disagreeing = ask(kv={"session": session, "data_parallel_rank": 0})
        assert (await engines.second.generate(disagreeing)).status is grpc.StatusCode.INVALID_ARGUMENT
        foreign = Session(session_id="s", dp_rank=2)
        assert (await engines.decoded(foreign)).status is grpc.StatusCode.INVALID_ARGUMENT
        await engines.decoded(session, request_id="e")
        assert engines.decode.stats.records["e"].rank == 1


async def test_an_aborted_prefill_hands_nothing_over() -> None:
    async with pair(token_delay=3600.0) as engines:
        task = asyncio.create_task(engines.prefilled())
        await asyncio.wait_for(engines.prefill.stats.until(lambda stats: stats.active == 1), 10)
        request = lifecycle_pb2.AbortRequest(request_id="r")
        await engines.first.unary("Abort", request, lifecycle_pb2.AbortResponse)
        answer = await asyncio.wait_for(task, 10)
        assert answer.kinds == ["finished"]
        assert engines.sessions() == {}


@pytest.mark.parametrize(("role", "number"), [("aggregated", 1), ("prefill", 2), ("decode", 3)])
async def test_roles_are_advertised(role: str, number: int) -> None:
    async with serving(role=role) as (_, caller):
        info = await caller.unary("GetEngineInfo", engine_pb2.GetEngineInfoRequest(), engine_pb2.EngineInfo)
        assert info.role == number
        connector = await caller.unary("GetKvConnectorInfo", kv_pb2.GetKvConnectorInfoRequest(), kv_pb2.KvConnectorInfo)
    assert connector.enabled is (role != "aggregated")
    assert connector.supports_remote_prefill is (role == "prefill")
    assert connector.supports_decode_pull is (role == "decode")


async def test_prompt_logprobs_come_before_the_handoff(engines: Pair) -> None:
    answer = await engines.prefilled(response={"return_prompt_logprobs": True})
    assert answer.kinds == ["prompt", "prefill_ready"]

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import DecodeError

from openengine_sidecar.launch.engine import ReferenceEngine
from openengine_sidecar.launch.engine.faults import FAULTS, FaultScriptError, parse
from openengine_sidecar.launch.engine.wire import UNDECODABLE, serialize
from openengine_sidecar.proto.rev2 import error_pb2, generation_pb2, lifecycle_pb2, observability_pb2
from tests.engine.caller import Answer, Caller, ask, serving

ECHO = 'You said: "hello".'
LOGPROBS = {"return_output_logprobs": True, "output_candidates": {"top_n": 1}}


async def with_fault(caller: Caller, fault: str, **fields: Any) -> Answer:
    return await caller.generate(ask(metadata={"fault": fault}, **fields))


async def other_is_fine(caller: Caller) -> bool:
    return (await caller.generate(ask(request_id="other"))).text() == ECHO


async def test_wrong_id(caller: Caller) -> None:
    answer = await with_fault(caller, "wrong-id:3")
    assert [event.request_id for event in answer.events[:3]] == ["r", "r", "r-of-another"]


async def test_missing_index(caller: Caller) -> None:
    answer = await with_fault(caller, "missing-index:2")
    indexed = [
        (event.token if event.HasField("token") else event.finished).HasField("output_index") for event in answer.events
    ]
    assert indexed == [True] + [False] * (len(indexed) - 1)


async def test_index_out_of_range(caller: Caller) -> None:
    answer = await with_fault(caller, "index-out-of-range", sampling={"num_sequences": 2})
    assert {event.token.output_index for event in answer.events if event.HasField("token")} == {2, 3}
    assert {event.finished.output_index for event in answer.events if event.HasField("finished")} == {2, 3}


async def test_empty_event(caller: Caller) -> None:
    assert (await with_fault(caller, "empty-event:2")).kinds[:3] == ["token", None, "token"]


@pytest.mark.parametrize("asked", [False, True])
async def test_prompt_events(caller: Caller, *, asked: bool) -> None:
    response = {"return_prompt_logprobs": asked}
    assert (await with_fault(caller, "second-prompt", response=response)).kinds[:3] == ["prompt", "prompt", "token"]
    assert (await with_fault(caller, "unasked-prompt", response=response)).kinds[:2] == ["prompt", "token"]


async def test_token_after_finished(caller: Caller) -> None:
    answer = await with_fault(caller, "token-after-finished", sampling={"num_sequences": 2})
    place = answer.kinds.index("finished")
    late = answer.events[place + 1].token
    assert late.output_index == answer.events[place].finished.output_index
    assert late.text == "!"


async def test_finished_twice(caller: Caller) -> None:
    answer = await with_fault(caller, "finished-twice", sampling={"num_sequences": 2})
    assert answer.kinds.count("finished") == 4


async def test_after_terminal(caller: Caller) -> None:
    assert (await with_fault(caller, "after-terminal")).kinds[-2:] == ["finished", "token"]


async def test_no_terminal(caller: Caller) -> None:
    whole = await with_fault(caller, "no-terminal")
    assert (whole.status, whole.text(), whole.kinds[-1]) == (grpc.StatusCode.OK, ECHO, "token")
    cut = await with_fault(caller, "no-terminal:4")
    assert (cut.status, cut.kinds) == (grpc.StatusCode.OK, ["token"] * 4)


async def test_prefill_ready(caller: Caller) -> None:
    assert (await with_fault(caller, "prefill-ready")).kinds[:2] == ["prefill_ready", "token"]


async def test_usage_missing(caller: Caller) -> None:
    assert not any(event.HasField("usage") for event in (await with_fault(caller, "usage-missing")).events)


async def test_usage_twice(caller: Caller) -> None:
    answer = await with_fault(caller, "usage-twice")
    assert all(event.HasField("usage") for event in answer.events)
    assert answer.events[0].usage.completion_tokens < answer.last.usage.completion_tokens


async def test_usage_early(caller: Caller) -> None:
    answer = await with_fault(caller, "usage-early", sampling={"num_sequences": 2})
    assert [event.HasField("usage") for event in answer.events if event.HasField("finished")] == [True, False]


@pytest.mark.parametrize("kind", ["completion", "cached", "reasoning", "total"])
async def test_usage_mismatch(caller: Caller, kind: str) -> None:
    usage = (await with_fault(caller, f"usage-mismatch:{kind}")).last.usage
    wrong = {
        "completion": usage.completion_tokens != len(ECHO),
        "cached": usage.cached_prompt_tokens > usage.prompt_tokens,
        "reasoning": usage.reasoning_tokens > usage.completion_tokens,
        "total": usage.total_tokens != usage.prompt_tokens + usage.completion_tokens,
    }
    assert wrong[kind]


@pytest.mark.parametrize("count", [0, 5])
async def test_reasoning_tokens(caller: Caller, count: int) -> None:
    usage = (await with_fault(caller, f"reasoning-tokens:{count}")).last.usage
    assert usage.HasField("reasoning_tokens")
    assert usage.reasoning_tokens == count


async def test_cumulative(caller: Caller) -> None:
    answer = await with_fault(caller, "cumulative")
    assert [event.token.text for event in answer.events[:3]] == ["Y", "Yo", "You"]
    assert [info.token_id for info in answer.events[2].token.tokens] == list(b"You")


async def test_split_text_is_the_same_text(caller: Caller) -> None:
    answer = await with_fault(caller, "split-text")
    assert (answer.text(), bytes(answer.ids())) == (ECHO, ECHO.encode())
    assert not any(event.token.text and event.token.tokens for event in answer.events)


async def test_no_text(caller: Caller) -> None:
    answer = await with_fault(caller, "no-text")
    assert (answer.text(), bytes(answer.ids())) == ("", ECHO.encode())


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
async def test_logprob(caller: Caller, value: str) -> None:
    for info in (await with_fault(caller, f"logprob:{value}", response=LOGPROBS)).infos():
        for logprob in (info.logprob, info.candidates[0].logprob):
            assert math.isnan(logprob) if value == "nan" else logprob == float(value)


async def test_missing_logprob(caller: Caller) -> None:
    answer = await with_fault(caller, "missing-logprob", response=LOGPROBS)
    assert not any(info.HasField("logprob") or info.candidates for info in answer.infos())


@pytest.mark.parametrize(("fault", "number"), [("reason", 9), ("reason:0", 0), ("reason:77", 77)])
async def test_reason(caller: Caller, fault: str, number: int) -> None:
    assert (await with_fault(caller, fault)).finished().reason == number


async def test_no_stop_match(caller: Caller) -> None:
    finished = (await with_fault(caller, "no-stop-match")).finished()
    assert finished.reason == generation_pb2.FINISH_REASON_STOP
    assert not finished.HasField("stop_match")


async def test_extra_tokens(caller: Caller) -> None:
    answer = await with_fault(caller, "extra-tokens:3", stopping={"max_tokens": 2})
    assert answer.text() == "Yo+++"
    assert answer.finished().reason == generation_pb2.FINISH_REASON_LENGTH


@pytest.mark.parametrize("size", [0, 100, 5_000_000])
async def test_huge_is_a_valid_message(caller: Caller, size: int) -> None:
    answer = await with_fault(caller, f"huge:{size}")
    assert size < answer.events[0].ByteSize() < size + 100
    assert answer.text() == ECHO


async def test_garbage_does_not_decode(caller: Caller) -> None:
    with pytest.raises(DecodeError):
        generation_pb2.GenerateResponse.FromString(serialize(UNDECODABLE))
    call: Any = caller.channel.unary_stream("/openengine.v1.OpenEngine/Generate", None, None)
    data = [event async for event in call(ask(metadata={"fault": "garbage:3"}).SerializeToString())]
    assert data[2] == serialize(UNDECODABLE)
    assert generation_pb2.GenerateResponse.FromString(data[3]).token.text == " "


async def test_die_ends_every_stream_after_n_tokens(engine: ReferenceEngine, caller: Caller) -> None:
    bystander = asyncio.create_task(with_fault(caller, "hang:1", request_id="bystander"))
    await asyncio.wait_for(engine.stats.until(lambda stats: stats.tokens == 1), 10)
    answer = await with_fault(caller, "die:3")
    assert answer.text() == "You"
    assert answer.status is grpc.StatusCode.UNAVAILABLE
    assert (await bystander).status is grpc.StatusCode.UNAVAILABLE
    assert engine.died.is_set()
    assert engine.stats.cancels == 0
    assert engine.stats.records["bystander"].ended == "stopped"


@pytest.mark.parametrize(("fault", "tokens"), [("silent", 0), ("hang:4", 4), ("silent:3600", 0), ("slow:3600", 0)])
async def test_stalls_last_until_an_abort(engine: ReferenceEngine, caller: Caller, fault: str, tokens: int) -> None:
    task = asyncio.create_task(with_fault(caller, fault))
    await asyncio.wait_for(engine.stats.until(lambda stats: stats.active == 1 and stats.tokens == tokens), 10)
    await caller.unary("Abort", lifecycle_pb2.AbortRequest(request_id="r"), lifecycle_pb2.AbortResponse)
    answer = await asyncio.wait_for(task, 10)
    assert answer.last.finished.reason == generation_pb2.FINISH_REASON_CANCELLED
    assert len(answer.ids()) <= tokens + 1


async def test_silence_may_end_by_itself(caller: Caller) -> None:
    assert (await with_fault(caller, "silent:0.01")).text() == ECHO
    assert (await with_fault(caller, "slow:0.001")).text() == ECHO


async def test_silent_sends_no_headers(caller: Caller) -> None:
    call = caller.start(ask(metadata={"fault": "silent"}))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call.initial_metadata(), 0.05)
    call.cancel()


@pytest.mark.parametrize(
    ("fault", "code", "tokens"),
    [
        ("error", error_pb2.ERROR_CODE_INTERNAL, 0),
        ("error:overloaded,after=5", error_pb2.ERROR_CODE_OVERLOADED, 5),
        ("error:42", 42, 0),
        ("error:unspecified,after=1000", 0, len(ECHO)),
    ],
)
async def test_error(engine: ReferenceEngine, caller: Caller, fault: str, code: int, tokens: int) -> None:
    answer = await with_fault(caller, fault)
    assert answer.status is grpc.StatusCode.OK
    assert answer.kinds == ["token"] * tokens + ["error"]
    assert answer.last.error.code == code
    assert not answer.last.error.retryable
    assert not answer.last.error.HasField("retry_after_ms")
    assert not answer.last.HasField("usage")
    ended = engine.stats.records["r"].ended or ""
    assert ended.startswith("error:")


async def test_error_details(caller: Caller) -> None:
    answer = await with_fault(caller, "error:overloaded,after=2,retryable,retry_after_ms=0,usage,message=try later")
    error = answer.last.error
    assert (error.retryable, error.HasField("retry_after_ms"), error.retry_after_ms) == (True, True, 0)
    assert error.message == "try later"
    assert answer.last.usage.completion_tokens == 2


@pytest.mark.parametrize("status", ["unavailable", "invalid_argument", "resource_exhausted"])
@pytest.mark.parametrize("after", [0, 3])
async def test_status(engine: ReferenceEngine, caller: Caller, status: str, after: int) -> None:
    answer = await with_fault(caller, f"status:{status},after={after},message=because")
    assert answer.status is grpc.StatusCode[status.upper()]
    assert (answer.reason, answer.kinds) == ("because", ["token"] * after)
    assert engine.stats.records["r"].ended == f"status:{status.upper()}"


async def test_trailers(caller: Caller) -> None:
    answer = await with_fault(caller, "trailers:data_loss")
    assert (answer.status, answer.kinds[-1], answer.text()) == (grpc.StatusCode.DATA_LOSS, "finished", ECHO)


async def test_cancelled_by_the_engine(engine: ReferenceEngine, caller: Caller) -> None:
    answer = await with_fault(caller, "cancelled:3")
    assert answer.text() == "You"
    assert answer.finished().reason == generation_pb2.FINISH_REASON_CANCELLED
    assert engine.stats.aborted == 0


@pytest.mark.parametrize(
    ("fault", "status", "last"),
    [
        ("abort-ends:error", grpc.StatusCode.OK, "error"),
        ("abort-ends:status", grpc.StatusCode.CANCELLED, "token"),
    ],
)
async def test_abort_ends(
    engine: ReferenceEngine, caller: Caller, fault: str, status: grpc.StatusCode, last: str
) -> None:
    task = asyncio.create_task(with_fault(caller, f"{fault};hang:2"))
    await asyncio.wait_for(engine.stats.until(lambda stats: stats.tokens == 2), 10)
    await caller.unary("Abort", lifecycle_pb2.AbortRequest(request_id="r"), lifecycle_pb2.AbortResponse)
    answer = await task
    assert (answer.status, answer.kinds[-1]) == (status, last)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("refuse", grpc.StatusCode.RESOURCE_EXHAUSTED),
        ("refuse:permission_denied", grpc.StatusCode.PERMISSION_DENIED),
        ("draining", grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_refusals(engine: ReferenceEngine, caller: Caller, fault: str, status: grpc.StatusCode) -> None:
    answer = await with_fault(caller, fault)
    assert (answer.status, answer.events) == (status, [])
    assert (engine.stats.requests, engine.stats.refused) == (0, {status.name: 1})
    assert await other_is_fine(caller)


async def load_status(caller: Caller, **options: Any) -> grpc.StatusCode:
    try:
        await caller.unary("GetLoad", observability_pb2.GetLoadRequest(), observability_pb2.LoadInfo, **options)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_unary_calls_fail_as_often_as_told() -> None:
    async with serving(faults=("rpc:GetLoad,status=unavailable@2",)) as (engine, caller):
        await caller.unary("Health", lifecycle_pb2.HealthRequest(), lifecycle_pb2.HealthResponse)
        found = [await load_status(caller) for _ in range(3)]
        assert engine.stats.faults == {"rpc": 2}
    assert found == [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK]


async def test_unary_calls_may_hang_or_be_late() -> None:
    async with serving(faults=("rpc:GetLoad,hang@1", "rpc:GetLoad,delay=10")) as (_, caller):
        assert await load_status(caller, timeout=0.05) is grpc.StatusCode.DEADLINE_EXCEEDED
        asked = time.monotonic()
        assert await load_status(caller) is grpc.StatusCode.OK
        assert time.monotonic() - asked >= 0.01


async def test_abort_status() -> None:
    async with serving(faults=("abort-status",)) as (_, caller):
        await caller.generate(ask())
        response = await caller.unary("Abort", lifecycle_pb2.AbortRequest(request_id="r"), lifecycle_pb2.AbortResponse)
    assert response.status == 9


async def test_an_engines_fault_concerns_the_first_n_requests() -> None:
    async with serving(faults=("refuse@1", "no-terminal:1@1")) as (engine, caller):
        answers = [await caller.generate(ask()) for _ in range(3)]
        assert engine.stats.faults == {"refuse": 1, "no-terminal": 1}
    assert [answer.status.name for answer in answers] == ["RESOURCE_EXHAUSTED", "OK", "OK"]
    assert [answer.text() for answer in answers] == ["", "Y", ECHO]


async def test_faults_may_be_replaced_while_it_runs(engine: ReferenceEngine, caller: Caller) -> None:
    engine.core.faults.play(["no_terminal:2"])
    assert (await caller.generate(ask())).text() == "Yo"
    engine.core.faults.play([])
    assert (await caller.generate(ask())).text() == ECHO


async def test_faults_combine(caller: Caller) -> None:
    answer = await with_fault(caller, "no-text; wrong-id; no-terminal:3")
    assert [(event.request_id, event.token.text) for event in answer.events] == [("r-of-another", "")] * 3


async def test_prompts_carry_faults_only_where_allowed(caller: Caller) -> None:
    text = "hi <<fault no-terminal:2>>"
    assert (await caller.generate(ask(text))).text() == f'You said: "{text}".'
    async with serving(prompt_faults=True) as (_, other):
        assert (await other.generate(ask(text))).text() == "Yo"
        assert (await other.generate(ask("<<fault what>>"))).status is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("name", sorted(FAULTS.keys() - {"die", "rpc", "abort-status"}))
async def test_one_request_with_a_fault_leaves_the_next_alone(caller: Caller, name: str) -> None:
    stalls = {"silent": ":0.01", "slow": ":0.001", "hang": ":1000"}
    answer = await with_fault(caller, name + stalls.get(name, ""))
    assert answer.events or answer.status is not grpc.StatusCode.OK
    assert await other_is_fine(caller)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "one of"),
        ("unheard-of", "wrong-id"),
        ("die:x", "a number"),
        ("die:-1", "a number"),
        ("silent:soon", "a number of seconds"),
        ("status:fine", "a gRPC status"),
        ("error:fine", "an error code"),
        ("usage-mismatch:fine", "completion, cached"),
        ("rpc:Generate", "Abort"),
        ("rpc", "Abort"),
        ("die:1@many", "one of"),
    ],
)
def test_bad_fault_scripts_are_refused(text: str, problem: str) -> None:
    with pytest.raises(FaultScriptError, match=problem):
        parse(text)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_every_fault_is_documented(name: str) -> None:
    assert FAULTS[name].help
    assert parse(name if name != "rpc" else "rpc:abort").name == name

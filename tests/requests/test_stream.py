from __future__ import annotations

import dataclasses
import socket
from typing import Any

import pytest

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.requests.exchange import Phase
from openengine_sidecar.launch.stack.ports import free_port
from openengine_sidecar.messages.facts import Outcome
from tests.requests.streams import CONFIG, MAX_TOKENS, Streams
from tests.support.wire import Caller


def only_error(caller: Caller) -> dict[str, object]:
    assert caller.ended_once
    assert caller.prologue == {"error": None}
    [error] = caller.errors
    assert caller.items[-1].get("error") is error
    return error


async def test_a_whole_answer(streams: Streams) -> None:
    subject = await streams.open()
    told = await subject.ended()
    assert subject.caller.ended_once
    assert subject.caller.prologue == {"error": None}
    assert len(subject.caller.token_ids) == MAX_TOKENS == told.output_tokens
    assert subject.caller.items[-1]["data"]["finish_reason"] == "length"
    assert told.outcome is Outcome.FINISHED
    assert (told.error, told.rule, told.aborts) == ("", "", 0)
    assert told.usage is not None
    assert told.usage.completion_tokens == MAX_TOKENS
    assert subject.heard.aborts == 0
    assert not subject.heard.cancelled


async def test_phases_go_forward(streams: Streams) -> None:
    subject = await streams.open()
    seen = [subject.exchange.phase]
    while subject.ref.is_alive:
        await streams.backstage.stage.clock.settle()
        if subject.exchange.phase is not seen[-1]:
            seen.append(subject.exchange.phase)
    order = list(Phase)
    assert seen == sorted(seen, key=order.index)
    assert seen[-1] is Phase.ENDED


@pytest.mark.parametrize(
    ("fault", "rule", "tokens"),
    [
        ("wrong-id:4", "wrong_request_id", 3),
        ("missing-index:4", "missing_index", 3),
        ("index-out-of-range:4", "index_out_of_range", 3),
        ("empty-event:4", "empty_event", 3),
        ("no-terminal:3", "no_terminal", 3),
        ("garbage:4", "undecodable", 3),
        ("unasked-prompt", "unasked_prompt", 0),
        ("prefill-ready", "unasked_handoff", 0),
        ("extra-tokens:3", "too_many_tokens", MAX_TOKENS),
    ],
)
async def test_c68_tokens_come_first_then_one_error_and_one_abort(
    streams: Streams, fault: str, rule: str, tokens: int
) -> None:
    subject = await streams.open(fault=fault)
    told = await subject.ended()
    assert len(subject.caller.token_ids) == tokens
    assert only_error(subject.caller)["error_type"] == {"Backend": "Disconnected"}
    assert (told.outcome, told.error, told.rule) == (Outcome.FAILED, "EngineProtocolError", rule)
    assert told.aborts == subject.heard.aborts == 1
    await streams.serves()


@pytest.mark.parametrize("fault", ["after-terminal", "trailers", "trailers:unavailable"])
async def test_c69_what_comes_behind_the_terminal_changes_nothing(streams: Streams, fault: str) -> None:
    subject = await streams.open(fault=fault)
    told = await subject.ended()
    assert subject.caller.ended_once
    assert subject.caller.errors == []
    assert len(subject.caller.token_ids) == MAX_TOKENS
    assert (told.outcome, told.aborts) == (Outcome.FINISHED, 0)


@pytest.mark.parametrize(
    ("fault", "error", "kind", "aborts"),
    [
        ("error:internal,after=3", "EngineFailureError", {"Backend": "Unknown"}, 0),
        ("error:overloaded,after=3", "OverloadedError", "WorkerOverloaded", 0),
        ("error:invalid_argument", "InvalidRequestError", {"Backend": "InvalidArgument"}, 0),
        ("cancelled:3", "EngineCancelledError", {"Backend": "Cancelled"}, 0),
        ("refuse", "OverloadedError", "WorkerOverloaded", 0),
        ("refuse:invalid_argument", "InvalidRequestError", {"Backend": "InvalidArgument"}, 0),
        ("status:unavailable", "EngineUnreachableError", {"Backend": "CannotConnect"}, 1),
        ("status:unavailable,after=3", "StreamBrokenError", {"Backend": "Disconnected"}, 1),
        ("status:deadline_exceeded,after=3", "EngineTimeoutError", {"Backend": "ConnectionTimeout"}, 1),
        ("status:internal,after=3", "EngineFailureError", {"Backend": "Unknown"}, 1),
    ],
)
async def test_c23_c24_an_engine_that_fails_one_stream(
    streams: Streams, fault: str, error: str, kind: object, aborts: int
) -> None:
    subject = await streams.open(fault=fault)
    told = await subject.ended()
    assert only_error(subject.caller)["error_type"] == kind
    assert (told.outcome, told.error, told.aborts) == (Outcome.FAILED, error, aborts)
    assert streams.engine.stats.calls["Abort"] == aborts
    await streams.serves()


async def test_c72_headers_that_never_come_are_a_time_out(streams: Streams) -> None:
    config = _config(opening_timeout=0.1)
    subject = await streams.open(fault="silent", config=config)
    told = await subject.ended()
    assert only_error(subject.caller)["error_type"] == {"Backend": "ConnectionTimeout"}
    assert (told.error, told.aborts) == ("EngineTimeoutError", 1)
    assert subject.heard.cancelled


async def test_c72_silence_between_two_events_is_a_time_out_only_by_option(streams: Streams) -> None:
    patient = await streams.open(fault="hang:3")
    subject = await streams.open(fault="hang:3", config=_config(idle_timeout=0.1))
    told = await subject.ended()
    assert len(subject.caller.token_ids) == 3
    assert only_error(subject.caller)["error_type"] == {"Backend": "ConnectionTimeout"}
    assert told.aborts == 1
    assert patient.ref.is_alive
    patient.cancel()
    await patient.ended()


async def test_a_frontend_that_does_not_answer_costs_its_request_only(streams: Streams) -> None:
    subject = await streams.open(header={"address": f"127.0.0.1:{free_port()}"})
    told = await subject.ended()
    assert (told.outcome, told.error, told.aborts) == (Outcome.FAILED, "StreamBrokenError", 0)
    assert subject.exchange.dialled.done()
    assert subject.record is None
    assert streams.engine.stats.calls["Generate"] == 0
    await streams.serves()


@pytest.mark.parametrize("host", ["no..host", "a" * 70, "nul\0byte", "no-such-host.invalid"])
async def test_a_frontend_whose_host_is_none_costs_its_request_only(streams: Streams, host: str) -> None:
    subject = await streams.open(header={"address": f"{host}:1234"})
    told = await subject.ended()
    assert (told.outcome, told.error) == (Outcome.FAILED, "StreamBrokenError")
    assert subject.exchange.dialled.done()
    await streams.serves()


async def test_a_frontend_that_takes_nobody_in_is_given_up_in_time(streams: Streams) -> None:
    with socket.socket() as full, socket.socket() as filler:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        filler.settimeout(0)
        filler.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        subject = await streams.open(header={"address": f"127.0.0.1:{port}"}, config=_config(dial_timeout=0.1))
        told = await subject.ended()
    assert told.error == "StreamBrokenError"
    assert streams.engine.stats.calls["Generate"] == 0


async def test_without_an_engine_it_says_so(streams: Streams) -> None:
    streams.backstage.client.detach()
    subject = await streams.open()
    told = await subject.ended()
    assert only_error(subject.caller)["error_type"] == {"Backend": "EngineShutdown"}
    assert (told.error, told.aborts) == ("EngineLostError", 0)


async def test_a_client_fault_is_the_clients(streams: Streams) -> None:
    subject = await streams.open(max_tokens=10_000_000, sampling_options={"seed": -1})
    told = await subject.ended()
    caller = subject.caller
    assert caller.ended_once
    assert caller.prologue is not None
    assert caller.refusal is not None
    assert caller.refusal["error_type"] == {"Backend": "InvalidArgument"}
    assert caller.refusal["public"] == {"type": "message", "message": caller.prologue["error"]}
    assert told.error == "InvalidRequestError"
    assert streams.engine.stats.calls["Generate"] == 0


async def test_two_outputs_interleaved(streams: Streams) -> None:
    subject = await streams.open(sampling_options={"n": 2, "temperature": 1.0})
    told = await subject.ended()
    assert told.outcome is Outcome.FINISHED
    assert {item["data"]["index"] for item in subject.caller.items} == {0, 1}
    assert told.output_tokens == 2 * MAX_TOKENS
    assert subject.caller.ended_once


def _config(**changes: Any) -> RequestConfig:
    return dataclasses.replace(CONFIG, **changes)

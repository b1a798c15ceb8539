from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from openengine_sidecar.actors.requests.protocol import CancelReason
from openengine_sidecar.messages.facts import KvEnd, Outcome, StreamEnded
from tests.requests.halves import half, held, session_in
from tests.requests.streams import CONFIG, HeldExchange, Streams, Subject
from tests.support.waiting import eventually
from tests.support.wire import CallHomeServer

OURS = [CancelReason.CLIENT_GONE, CancelReason.DRAIN_DEADLINE]


@pytest.fixture
async def prefill(ears: CallHomeServer) -> AsyncIterator[Streams]:
    async with half("prefill", ears) as streams:
        yield streams


async def ended(subject: Subject) -> StreamEnded:
    told = await subject.ended()
    await eventually(lambda: subject.record is None or subject.heard.ended, "end at the engine")
    return told


async def test_c33_a_prefill_ends_with_length_and_the_session(prefill: Streams) -> None:
    subject = await prefill.open(stop_conditions={"min_tokens": 9})
    told = await ended(subject)
    assert subject.caller.ended_once
    [item] = subject.caller.items
    chunk = item["data"]
    assert (chunk["token_ids"], chunk["finish_reason"]) == ([], "length")
    assert chunk["completion_usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    params = chunk["disaggregated_params"]
    assert session_in(params).session_id == subject.heard.session == params["readable"]["session_id"]
    assert (told.outcome, told.kv, told.aborts) == (Outcome.FINISHED, KvEnd.DELIVERED, 0)
    assert held(prefill.engine) == {"created": 1, "live": 1}
    stopping = prefill.engine.stats.received[-1].request.stopping
    assert (stopping.max_tokens, stopping.HasField("min_tokens")) == (1, False)


async def test_c34_tokens_before_the_handoff_are_dropped(prefill: Streams) -> None:
    subject = await prefill.open(fault="prefill-tokens:1")
    told = await ended(subject)
    assert (subject.caller.token_ids, subject.caller.error) == ([], None)
    assert (told.outcome, told.kv) == (Outcome.FINISHED, KvEnd.DELIVERED)


@pytest.mark.parametrize(
    ("fault", "kind", "rule"),
    [
        ("prefill-finished:cancelled", "Cancelled", ""),
        ("prefill-finished:stop", "Disconnected", "finished_prefill"),
        ("prefill-finished:length", "Disconnected", "finished_prefill"),
        ("error:overloaded", "", ""),
        ("no-terminal", "Disconnected", "no_terminal"),
    ],
)
async def test_c35_a_prefill_without_handoff_is_an_error(prefill: Streams, fault: str, kind: str, rule: str) -> None:
    subject = await prefill.open(fault=fault)
    told = await ended(subject)
    [error] = subject.caller.errors
    assert error["error_type"] == ({"Backend": kind} if kind else "WorkerOverloaded")
    assert (told.outcome, told.rule) == (Outcome.FAILED, rule)
    await prefill.serves()


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("missing-session", "missing_session"),
        ("usage-missing", "missing_usage"),
        ("session-odd:number", "unfit_session"),
        ("session-odd:nan", "unfit_session"),
        ("session-odd:port", "unfit_session"),
        ("session-odd:rank", "foreign_session"),
        ("session-odd:backend", "foreign_session"),
        ("session-odd:protocol", "foreign_session"),
        ("session-odd:huge", ""),
    ],
)
async def test_c36_c38_f35_a_handoff_that_cannot_be_carried_fails_the_request_and_is_let_go(
    prefill: Streams, fault: str, rule: str
) -> None:
    subject = await prefill.open(fault=fault)
    told = await ended(subject)
    assert len(subject.caller.errors) == 1
    assert (told.outcome, told.rule) == (Outcome.FAILED, rule)
    assert held(prefill.engine).get("live") is None
    assert told.kv is (KvEnd.ABORTED if fault == "missing-session" else KvEnd.RELEASED)
    await prefill.serves()


async def test_c37_a_field_of_a_newer_schema_goes_on(prefill: Streams) -> None:
    subject = await prefill.open(fault="session-field:3")
    await ended(subject)
    params = subject.caller.items[0]["data"]["disaggregated_params"]
    assert session_in(params).SerializeToString().endswith(b"\x4a\x03xxx")


@pytest.mark.parametrize("reason", OURS)
async def test_killed_during_prefill_is_one_abort_by_id(prefill: Streams, reason: CancelReason) -> None:
    subject = await prefill.open(fault="silent")
    await subject.at_engine()
    subject.cancel(reason)
    told = await ended(subject)
    assert (told.aborts, told.kv, subject.heard.aborts) == (1, KvEnd.ABORTED, 1)
    assert held(prefill.engine) == {}
    assert prefill.engine.stats.session_aborts == {}


async def test_c42_a_handoff_that_crosses_the_abort_is_let_go_by_session(prefill: Streams) -> None:
    subject = await prefill.open(fault="deaf;silent:0.05")
    await subject.at_engine()
    subject.cancel()
    told = await ended(subject)
    assert (told.aborts, told.kv) == (1, KvEnd.RELEASED)
    assert prefill.engine.stats.session_aborts == {"aborted": 1}
    assert held(prefill.engine) == {"created": 1, "released": 1}


async def test_c42_a_frontend_that_does_not_take_the_handoff_leaves_it_to_be_let_go(prefill: Streams) -> None:
    subject = await prefill.open(fault="slow:0.05")
    await eventually(lambda: subject.caller.writer, "the dial")
    assert subject.caller.writer is not None
    subject.caller.writer.transport.abort()
    told = await ended(subject)
    assert told.kv in {KvEnd.ABORTED, KvEnd.RELEASED}
    assert held(prefill.engine).get("live") is None


async def test_c42_a_handoff_that_was_lost_on_its_way_is_let_go(ears: CallHomeServer) -> None:
    roomy = replace(CONFIG, max_session_bytes=32 * 1024 * 1024)
    async with half("prefill", ears, roomy) as prefill:
        subject = await prefill.open(fault="session-odd:huge,bytes=16000000;silent:0.1")
        subject.caller.listening.clear()
        await eventually(lambda: unsent(subject), "more is written than the frontend reads")
        assert subject.caller.writer is not None
        subject.caller.writer.transport.abort()
        subject.caller.listening.set()
        told = await ended(subject)
        assert told.kv is KvEnd.RELEASED
        assert held(prefill.engine) == {"created": 1, "released": 1}


def unsent(subject: Subject) -> bool:
    call_home = subject.exchange._call_home
    return call_home is not None and call_home._transport.get_write_buffer_size() > 0


async def test_c42_without_abort_clean_up_nothing_is_asked_and_it_is_counted(ears: CallHomeServer) -> None:
    async with half("prefill", ears, kv_abort_cleanup=False) as prefill:
        for _ in range(2):
            told = await ended(await prefill.open(fault="usage-missing"))
            assert told.kv is KvEnd.LEFT
        assert prefill.engine.stats.session_aborts == {}
        assert held(prefill.engine) == {"created": 2, "live": 2}


async def test_c42_unimplemented_is_remembered(ears: CallHomeServer) -> None:
    advert = 'GetKvConnectorInfo={"supports_abort_cleanup": true}'
    async with half("prefill", ears, kv_abort_cleanup=False, answers=(advert,)) as prefill:
        for _ in range(3):
            told = await ended(await prefill.open(fault="usage-missing"))
            assert told.kv is KvEnd.LEFT
        assert prefill.engine.stats.session_aborts == {"unimplemented": 1}
        subject = await prefill.open(fault="silent")
        await subject.at_engine()
        subject.cancel()
        assert (await ended(subject)).aborts == 1
        assert subject.heard.aborts == 1


async def test_an_abort_by_session_is_tried_again_where_it_did_not_arrive(prefill: Streams) -> None:
    prefill.engine.core.faults.play(["rpc:Abort,status=unavailable@1"])
    told = await ended(await prefill.open(fault="usage-missing"))
    assert told.kv is KvEnd.RELEASED
    assert prefill.engine.stats.calls["Abort"] == 2


async def test_an_engine_that_does_not_know_the_session_any_more_is_no_failure(ears: CallHomeServer) -> None:
    async with half("prefill", ears, kv_session_ttl=1e-9) as prefill:
        told = await ended(await prefill.open(fault="session-odd:nan"))
        assert told.kv is KvEnd.GONE


async def test_c39_a_session_on_a_prefill_worker_is_refused(prefill: Streams) -> None:
    subject = await prefill.open(prefill_result={"disaggregated_params": {}})
    told = await ended(subject)
    assert (told.error, subject.record) == ("HandoffError", None)


async def test_c63_cancelled_before_it_dials_reaches_no_engine(prefill: Streams) -> None:
    subject = await prefill.open(exchange=HeldExchange)
    subject.cancel(CancelReason.DRAIN_DEADLINE)
    await prefill.backstage.stage.clock.settle()
    subject.exchange.gate.open()
    told = await ended(subject)
    assert (told.kv, told.aborts) == (None, 0)
    assert prefill.engine.stats.calls["Generate"] == 0

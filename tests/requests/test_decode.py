from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from openengine_sidecar.actors.requests.protocol import CancelReason
from openengine_sidecar.messages.errors import StreamBrokenError
from openengine_sidecar.messages.facts import HoldEnd, KvEnd, Outcome
from tests.requests.halves import SLOW, Pair, half, pair, result_of
from tests.requests.streams import CONFIG, MAX_TOKENS, HeldExchange
from tests.support.waiting import eventually
from tests.support.wire import CallHomeServer

HOLD = CONFIG.decode_cancel_hold


@pytest.fixture
async def decode(ears: CallHomeServer) -> AsyncIterator[Pair]:
    async with pair(ears) as pair_:
        yield pair_


@pytest.fixture
async def holding(ears: CallHomeServer) -> AsyncIterator[Pair]:
    """With engines that do not abort by session."""
    async with pair(ears, kv_abort_cleanup=False) as pair_:
        yield pair_


async def test_a_decode_goes_on_from_the_session(decode: Pair) -> None:
    session = await decode.session()
    details = {"prompt_tokens_details": {"cached_tokens": 16}}
    subject = await decode.streams.open(prefill_result=result_of(session, **details))
    told = await subject.ended()
    assert subject.caller.ended_once
    assert len(subject.caller.token_ids) == MAX_TOKENS
    assert (told.outcome, told.kv, told.hold) == (Outcome.FINISHED, KvEnd.TAKEN, None)
    assert decode.sessions == {"created": 1, "taken": 1}
    sent = decode.streams.engine.stats.received[-1].request.kv
    assert sent.session == session
    assert not sent.HasField("data_parallel_rank")
    usage = subject.caller.items[-1]["data"]["completion_usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 16}


async def test_c39_f36_a_decode_without_session_is_refused_here(decode: Pair) -> None:
    subject = await decode.streams.open()
    told = await subject.ended()
    [error] = subject.caller.errors
    assert error["error_type"] == {"Backend": "Unknown"}
    assert "prefill" in error["message"]
    assert (told.error, told.kv, decode.streams.engine.stats.calls["Generate"]) == ("HandoffError", None, 0)


async def test_f36_an_unknown_session_is_a_typed_error_and_costs_one_request(decode: Pair) -> None:
    subject = await decode.open("lose-session")
    told = await subject.ended()
    [error] = subject.caller.errors
    assert error["error_type"] == {"Backend": "Unknown"}
    assert (told.error, told.kv) == ("EngineFailureError", KvEnd.GONE)
    assert decode.streams.engine.stats.session_aborts == {}
    assert (await (await decode.open()).ended()).outcome is Outcome.FINISHED


async def test_f36_a_decode_that_ends_without_terminal_is_incomplete(decode: Pair) -> None:
    subject = await decode.open(fault="no-terminal:3")
    told = await subject.ended()
    assert (len(subject.caller.token_ids), told.rule, told.kv) == (3, "no_terminal", KvEnd.TAKEN)
    assert len(subject.caller.errors) == 1


@pytest.mark.parametrize("fault", ["refuse:invalid_argument", "status:internal", "wrong-id", ""])
async def test_a_decode_that_failed_before_it_took_the_session_lets_it_go(decode: Pair, fault: str) -> None:
    told = await (await decode.open("refuse-handoff", fault=fault)).ended()
    assert (told.outcome, told.kv) == (Outcome.FAILED, KvEnd.RELEASED)
    assert decode.sessions == {"created": 1, "released": 1}


async def test_a_refused_decode_lets_its_session_go(decode: Pair) -> None:
    subject = await decode.open(stop_conditions={"min_tokens": 10_000})
    told = await subject.ended()
    assert (told.error, told.kv) == ("InvalidRequestError", KvEnd.RELEASED)
    assert decode.sessions == {"created": 1, "released": 1}
    assert decode.streams.engine.stats.calls["Generate"] == 0


async def test_a_refused_decode_may_have_to_leave_its_session(holding: Pair) -> None:
    told = await (await holding.open(max_tokens=0)).ended()
    assert told.kv is KvEnd.LEFT
    assert holding.streams.engine.stats.calls["Abort"] == 0


async def test_a_decode_cancelled_while_the_worker_dials_strands_no_session(decode: Pair) -> None:
    subject = await decode.open(exchange=HeldExchange)
    await subject.exchange.gate.reached()
    subject.cancel(CancelReason.DRAIN_DEADLINE)
    await decode.streams.backstage.stage.clock.settle()
    subject.exchange.gate.open()
    told = await subject.ended()
    assert (told.outcome, told.kv) == (Outcome.FAILED, KvEnd.RELEASED)
    assert decode.streams.engine.stats.calls["Generate"] == 0


async def test_c41_cancelled_before_the_first_token_is_one_abort_by_session(decode: Pair) -> None:
    subject = await decode.open(SLOW)
    await subject.at_engine()
    subject.cancel()
    told = await subject.ended()
    assert (told.outcome, told.kv, told.hold, told.aborts) == (Outcome.CANCELLED, KvEnd.RELEASED, None, 0)
    assert decode.sessions == {"created": 1, "released": 1}
    assert decode.streams.engine.stats.session_aborts == {"aborted": 1}
    assert subject.heard.ended == "cancelled"
    assert decode.streams.backstage.stage.clock.monotonic() == 0.0


async def test_f04_c41_cancelled_before_the_first_token_is_held_until_it_comes(holding: Pair) -> None:
    subject = await holding.open("slow-transfer:0.2", fault="slow:0.01", max_tokens=2_000)
    await subject.at_engine()
    subject.cancel()
    other = await holding.open()
    assert (await other.ended()).outcome is Outcome.FINISHED
    told = await subject.ended()
    assert (told.outcome, told.kv, told.hold, told.aborts) == (
        Outcome.CANCELLED,
        KvEnd.TAKEN,
        HoldEnd.FIRST_TOKEN,
        1,
    )
    assert holding.sessions == {"created": 2, "taken": 2}
    assert subject.heard.tokens < 2_000
    assert subject.caller.token_ids == []


async def test_f04_c41_held_until_the_terminal(holding: Pair) -> None:
    subject = await holding.open("refuse-handoff", fault="silent:0.1")
    await subject.at_engine()
    subject.cancel()
    told = await subject.ended()
    assert (told.hold, told.aborts, told.kv) == (HoldEnd.TERMINAL, 0, KvEnd.LEFT)


async def test_f04_c41_not_held_for_ever(holding: Pair) -> None:
    subject = await holding.open(SLOW)
    await subject.at_engine()
    subject.cancel()
    clock = holding.streams.backstage.stage.clock
    await clock.settle()
    await clock.advance(HOLD - 0.1)
    assert holding.streams.engine.stats.calls["Abort"] == 0
    await clock.advance(0.2)
    told = await subject.ended()
    assert (told.hold, told.aborts, told.kv) == (HoldEnd.DEADLINE, 1, KvEnd.LEFT)
    assert holding.sessions == {"created": 1, "live": 1}


async def test_c41_after_the_first_token_at_once(holding: Pair) -> None:
    subject = await holding.open(fault="slow:0.01", max_tokens=2_000)
    await subject.flows()
    subject.cancel()
    told = await subject.ended()
    assert (told.hold, told.aborts, told.kv) == (None, 1, KvEnd.TAKEN)
    assert holding.streams.backstage.stage.clock.monotonic() == 0.0


async def test_c41_at_shutdown_at_once(holding: Pair) -> None:
    subject = await holding.open(SLOW)
    await subject.at_engine()
    subject.cancel(CancelReason.DRAIN_DEADLINE)
    told = await subject.ended()
    assert (told.hold, told.aborts, told.kv) == (None, 1, KvEnd.LEFT)
    assert holding.streams.backstage.stage.clock.monotonic() == 0.0


async def test_c41_a_shutdown_ends_a_hold(holding: Pair) -> None:
    subject = await holding.open(SLOW)
    await subject.at_engine()
    subject.cancel()
    await holding.streams.backstage.stage.clock.settle()
    subject.cancel(CancelReason.DRAIN_DEADLINE)
    told = await subject.ended()
    assert (told.outcome, told.hold, told.aborts) == (Outcome.CANCELLED, HoldEnd.SHUTDOWN, 1)
    assert holding.streams.backstage.stage.clock.monotonic() == 0.0


async def test_c41_a_stream_that_is_given_up_ends_its_hold(holding: Pair) -> None:
    subject = await holding.open(SLOW)
    await subject.at_engine()
    subject.cancel()
    await holding.streams.backstage.stage.clock.settle()
    await subject.exchange.conclude(StreamBrokenError("r", "given up"))
    told = await subject.ended()
    assert (told.hold, told.aborts) == (HoldEnd.SHUTDOWN, 1)


async def test_an_engine_that_only_says_so_is_asked_once_and_then_held(ears: CallHomeServer) -> None:
    advert = 'GetKvConnectorInfo={"supports_abort_cleanup": true}'
    async with pair(ears, kv_abort_cleanup=False, answers=(advert,)) as decode:
        for _ in range(2):
            subject = await decode.open("slow-transfer:0.05", max_tokens=2_000, fault="slow:0.01")
            await subject.at_engine()
            subject.cancel()
            told = await subject.ended()
            assert (told.hold, told.kv) == (HoldEnd.FIRST_TOKEN, KvEnd.TAKEN)
        assert decode.streams.engine.stats.session_aborts == {"unimplemented": 1}


async def test_an_engine_that_is_lost_frees_nothing_and_holds_nobody_up(decode: Pair) -> None:
    subject = await decode.open(SLOW)
    await subject.at_engine()
    decode.streams.backstage.client.detach()
    subject.cancel(CancelReason.ENGINE_LOST)
    told = await subject.ended()
    assert (told.aborts, told.kv) == (0, KvEnd.LEFT)


async def test_c39_a_session_on_an_aggregated_worker_is_refused(ears: CallHomeServer) -> None:
    async with half("aggregated", ears) as streams:
        subject = await streams.open(prefill_result={"disaggregated_params": {"anything": 1}})
        told = await subject.ended()
    assert (told.error, told.kv) == ("HandoffError", None)


async def test_c42_a_frontend_that_never_takes_a_decode_strands_nothing(decode: Pair) -> None:
    subject = await decode.open(header={"connection_info": decode_nowhere(decode)})
    told = await subject.ended()
    assert (told.error, told.kv) == ("StreamBrokenError", KvEnd.RELEASED)


def decode_nowhere(decode: Pair) -> dict[str, str]:
    del decode
    info = '{"address": "127.0.0.1:1", "subject": "s", "context": "s", "stream_type": "response"}'
    return {"transport": "tcp_server", "info": info}


async def test_every_session_of_many_is_taken_once(decode: Pair) -> None:
    subjects = [await decode.open() for _ in range(16)]
    tolds = [await subject.ended() for subject in subjects]
    assert {told.kv for told in tolds} == {KvEnd.TAKEN}
    await eventually(lambda: decode.sessions == {"created": 16, "taken": 16}, "all sessions are taken")

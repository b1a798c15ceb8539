from __future__ import annotations

import pytest

from openengine_sidecar.actors.requests.exchange import Phase
from openengine_sidecar.actors.requests.protocol import CancelReason
from openengine_sidecar.messages.facts import Outcome
from tests.requests.streams import CONFIG, Streams, Subject
from tests.support.backstage import log_lines
from tests.support.waiting import eventually

LONG = 20_000


async def cancelled(streams: Streams, *faults: str) -> Subject:
    """A stream that flows, then is cancelled by an engine with these faults."""
    subject = await streams.open(max_tokens=LONG)
    await subject.flows()
    streams.engine.core.faults.play(faults)
    subject.cancel()
    return subject


async def test_c62_aborted(streams: Streams) -> None:
    subject = await cancelled(streams)
    assert (await subject.ended()).aborts == 1
    assert streams.engine.stats.abort_outcomes == {"aborted": 1}
    assert subject.heard.ended == "cancelled"
    assert not subject.heard.cancelled
    assert streams.backstage.stage.clock.monotonic() == 0.0


@pytest.mark.parametrize("times", [1, 2])
async def test_c62_an_unreachable_engine_is_asked_again(streams: Streams, times: int) -> None:
    subject = await cancelled(streams, f"rpc:Abort,status=unavailable@{times}")
    assert (await subject.ended()).aborts == 1
    assert streams.engine.stats.calls["Abort"] == times + 1
    assert streams.engine.stats.abort_outcomes == {"aborted": 1}


async def test_c62_not_for_ever(streams: Streams) -> None:
    with log_lines("WARNING") as lines:
        subject = await cancelled(streams, "rpc:Abort,status=unavailable")
        told = await subject.ended()
    assert (told.outcome, told.aborts) == (Outcome.CANCELLED, 1)
    assert streams.engine.stats.calls["Abort"] == CONFIG.abort_attempts
    assert subject.heard.cancelled
    assert any(subject.exchange.engine_id in line for line in lines)


@pytest.mark.parametrize("status", ["internal", "permission_denied", "invalid_argument", "resource_exhausted"])
async def test_c62_an_engine_that_answers_is_not_asked_again(streams: Streams, status: str) -> None:
    subject = await cancelled(streams, f"rpc:Abort,status={status}")
    assert (await subject.ended()).aborts == 1
    assert streams.engine.stats.calls["Abort"] == 1
    assert subject.heard.cancelled


@pytest.mark.parametrize("fault", ["rpc:Abort,status=not_found", "abort-status:2", "abort-status:9"])
async def test_c62_already_over_is_done(streams: Streams, fault: str) -> None:
    with log_lines("WARNING") as lines:
        subject = await cancelled(streams, fault)
        assert (await subject.ended()).outcome is Outcome.CANCELLED
    assert streams.engine.stats.calls["Abort"] == 1
    assert not any("abort" in line for line in lines if fault != "abort-status:9")


async def test_c62_no_status_is_warned_of(streams: Streams) -> None:
    with log_lines("WARNING") as lines:
        subject = await cancelled(streams, "abort-status:0")
        await subject.ended()
    assert streams.engine.stats.calls["Abort"] == 1
    assert any("without a status" in line for line in lines)


async def test_c62_without_the_method_the_call_is_cancelled_at_once_and_none_is_sent_again(streams: Streams) -> None:
    for number in (1, 2):
        subject = await cancelled(streams, "rpc:Abort,status=unimplemented")
        assert (await subject.ended()).outcome is Outcome.CANCELLED
        assert subject.heard.cancelled
        assert streams.engine.stats.cancels == number
    assert streams.engine.stats.calls["Abort"] == 1
    assert streams.backstage.stage.clock.monotonic() == 0.0


@pytest.mark.parametrize("fault", ["deaf", "hang:3"])
async def test_a_stream_that_outlives_its_abort_is_cancelled_in_time(streams: Streams, fault: str) -> None:
    subject = await streams.open(max_tokens=LONG, fault=f"{fault};deaf" if fault != "deaf" else fault)
    await subject.flows()
    subject.cancel()
    await eventually(lambda: subject.heard.aborts, "the abort")
    await streams.backstage.stage.clock.settle()
    assert subject.ref.is_alive
    await streams.backstage.stage.clock.advance(CONFIG.cancel_timeout)
    await subject.ended()
    assert subject.heard.cancelled
    assert streams.engine.stats.calls["Abort"] == 1


async def test_what_the_engine_says_after_a_cancellation_is_not_passed_on(streams: Streams) -> None:
    subject = await streams.open(max_tokens=LONG, fault="deaf")
    await subject.flows()
    subject.cancel(CancelReason.DRAIN_DEADLINE)
    await eventually(lambda: subject.exchange.phase is Phase.ENDED, "the end is decided")
    said = subject.heard.tokens
    await eventually(lambda: subject.heard.tokens > said + 10, "the engine goes on")
    assert subject.exchange.phase is Phase.ENDED
    await streams.backstage.stage.clock.advance(CONFIG.cancel_timeout)
    await subject.ended()
    assert subject.caller.ended_once
    assert len(subject.caller.token_ids) <= said


async def test_f01_an_abort_that_hangs_does_not_hold_the_cancellation_up(streams: Streams) -> None:
    subject = await cancelled(streams, "rpc:Abort,hang")
    await eventually(lambda: streams.engine.stats.calls["Abort"], "the abort")
    await streams.backstage.stage.clock.advance(CONFIG.cancel_timeout)
    await eventually(lambda: subject.heard.cancelled, "the call is cancelled while the abort hangs")
    assert (await subject.ended()).aborts == 1


@pytest.mark.parametrize("way", ["error", "status"])
async def test_an_aborted_stream_may_end_in_any_way(streams: Streams, way: str) -> None:
    subject = await streams.open(max_tokens=LONG, fault=f"abort-ends:{way}")
    await subject.flows()
    subject.cancel()
    told = await subject.ended()
    assert (told.outcome, told.error, told.aborts) == (Outcome.CANCELLED, "", 1)
    assert not subject.heard.cancelled


async def test_a_failed_stream_is_aborted_and_cancelled_without_waiting(streams: Streams) -> None:
    subject = await streams.open(max_tokens=LONG, fault="deaf;wrong-id:3")
    assert (await subject.ended()).aborts == 1
    assert subject.heard.cancelled
    assert streams.backstage.stage.clock.monotonic() == 0.0

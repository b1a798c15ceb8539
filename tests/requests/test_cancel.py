from __future__ import annotations

import asyncio

import pytest

from openengine_sidecar.actors.requests.exchange import Phase
from openengine_sidecar.actors.requests.protocol import CancelReason
from openengine_sidecar.messages.facts import Outcome, StreamEnded
from tests.requests.streams import MAX_TOKENS, HeldExchange, Streams, Subject

LONG = 20_000
FOREVER = {"ignore_eos": True}
OURS = [CancelReason.ENGINE_LOST, CancelReason.DRAIN_DEADLINE]


def told_its_client(subject: Subject, told: StreamEnded, reason: CancelReason) -> None:
    """The worker's own cancellations are failures that the frontend may take elsewhere."""
    assert subject.caller.ended_once
    [error] = subject.caller.errors
    assert error["error_type"] == {"Backend": "EngineShutdown"}
    assert (told.outcome, told.error, told.reason) == (Outcome.FAILED, "EngineLostError", reason)


async def test_c63_cancelled_before_it_dials(streams: Streams) -> None:
    subject = await streams.open(exchange=HeldExchange)
    subject.cancel(CancelReason.DRAIN_DEADLINE)
    await streams.backstage.stage.clock.settle()
    assert subject.exchange.phase is Phase.ENDED
    subject.exchange.gate.open()
    told_its_client(subject, await subject.ended(), CancelReason.DRAIN_DEADLINE)
    assert streams.engine.stats.calls["Generate"] == streams.engine.stats.calls["Abort"] == 0


@pytest.mark.parametrize("reason", OURS)
async def test_c63_cancelled_while_dialling_reaches_no_engine_and_is_still_told(
    streams: Streams, reason: CancelReason
) -> None:
    subject = await streams.open(exchange=HeldExchange)
    await subject.exchange.gate.reached()
    subject.cancel(reason)
    await streams.backstage.stage.clock.settle()
    subject.exchange.gate.open()
    told = await subject.ended()
    told_its_client(subject, told, reason)
    assert told.aborts == 0
    assert streams.engine.stats.calls["Generate"] == streams.engine.stats.calls["Abort"] == 0


async def test_c63_a_client_that_left_while_dialling_reaches_no_engine(streams: Streams) -> None:
    subject = await streams.open(exchange=HeldExchange)
    await subject.exchange.gate.reached()
    subject.cancel()
    await streams.backstage.stage.clock.settle()
    subject.exchange.gate.open()
    told = await subject.ended()
    assert (told.outcome, told.aborts) == (Outcome.CANCELLED, 0)
    assert subject.caller.items == []
    assert streams.engine.stats.calls["Generate"] == streams.engine.stats.calls["Abort"] == 0


async def test_f01_c63_cancelled_while_headers_are_pending(streams: Streams) -> None:
    subject = await streams.open(fault="silent")
    await subject.at_engine()
    assert subject.exchange.phase is Phase.OPENING
    subject.cancel()
    told = await subject.ended()
    assert (told.outcome, told.aborts, subject.heard.aborts) == (Outcome.CANCELLED, 1, 1)
    assert (told.error, told.output_tokens) == ("", 0)
    assert streams.engine.stats.calls["Abort"] == 1


@pytest.mark.parametrize("reason", [CancelReason.CLIENT_GONE, CancelReason.DRAIN_DEADLINE])
async def test_c62_cancelled_mid_way_is_one_abort(streams: Streams, reason: CancelReason) -> None:
    subject = await streams.open(max_tokens=LONG)
    await subject.flows()
    subject.cancel(reason)
    told = await subject.ended()
    assert (told.aborts, subject.heard.aborts, streams.engine.stats.calls["Abort"]) == (1, 1, 1)
    assert streams.engine.stats.aborted == 1
    assert subject.heard.tokens < LONG
    if reason is CancelReason.CLIENT_GONE:
        assert told.outcome is Outcome.CANCELLED
        assert (subject.caller.finals, subject.caller.errors) == (0, [])
    else:
        told_its_client(subject, told, reason)


async def test_f20_a_lost_engine_is_not_asked_to_abort(streams: Streams) -> None:
    subject = await streams.open(max_tokens=LONG)
    await subject.flows()
    subject.cancel(CancelReason.ENGINE_LOST)
    told = await subject.ended()
    told_its_client(subject, told, CancelReason.ENGINE_LOST)
    assert (told.aborts, streams.engine.stats.calls["Abort"]) == (0, 0)
    assert subject.heard.cancelled


@pytest.mark.parametrize("how", ["kill", "fin", "reset", "half-close", "garbage"])
async def test_c62_however_the_frontend_leaves_it_is_one_abort(streams: Streams, how: str) -> None:
    subject = await streams.open(max_tokens=LONG)
    await subject.flows()
    writer = subject.caller.writer
    assert writer is not None
    match how:
        case "kill":
            subject.caller.kill()
        case "fin":
            writer.close()
        case "reset":
            writer.transport.abort()
        case "half-close":
            writer.write_eof()
        case _:
            writer.write(b"\xff" * 64)
    told = await subject.ended()
    assert (told.outcome, told.aborts, subject.heard.aborts) == (Outcome.CANCELLED, 1, 1)
    assert subject.caller.finals == 0
    await streams.serves()


async def test_c63_what_comes_after_the_terminal_is_no_cancellation(streams: Streams) -> None:
    subject = await streams.open(fault="trailers")
    await subject.caller.closed.wait()
    subject.cancel()
    told = await subject.ended()
    assert (told.outcome, told.aborts) == (Outcome.FINISHED, 0)
    assert subject.caller.ended_once
    assert streams.engine.stats.calls["Abort"] == 0


async def test_only_the_first_reason_counts(streams: Streams) -> None:
    subject = await streams.open(max_tokens=LONG)
    await subject.flows()
    for reason in (CancelReason.DRAIN_DEADLINE, CancelReason.CLIENT_GONE, CancelReason.ENGINE_LOST):
        subject.cancel(reason)
    told = await subject.ended()
    told_its_client(subject, told, CancelReason.DRAIN_DEADLINE)
    assert streams.engine.stats.calls["Abort"] == 1


async def test_c64_cancelling_one_leaves_the_others_on_its_channel_alone(streams: Streams) -> None:
    subjects = [await streams.open(max_tokens=40, stop_conditions=FOREVER) for _ in range(8)]
    for subject in subjects:
        await subject.flows()
    for subject in subjects[::2]:
        subject.cancel()
    told = await asyncio.gather(*(subject.ended() for subject in subjects))
    assert [end.outcome for end in told] == [Outcome.CANCELLED, Outcome.FINISHED] * 4
    assert all(len(subject.caller.token_ids) == 40 for subject in subjects[1::2])
    assert [subject.heard.aborts for subject in subjects] == [1, 0] * 4


@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_c62_c63_cancelled_at_any_turn_it_ends_once(streams: Streams, steps: int) -> None:
    streams.engine.core.faults.play(["slow:0.001"])
    subject = await streams.open()
    for _ in range(steps):
        await asyncio.sleep(0)
    subject.cancel(CancelReason.DRAIN_DEADLINE)
    told = await subject.ended()
    assert subject.caller.ended_once
    assert len(subject.caller.errors) == (told.outcome is Outcome.FAILED)
    assert streams.engine.stats.calls["Abort"] == told.aborts
    assert told.aborts <= 1
    assert told.outcome is Outcome.FAILED or len(subject.caller.token_ids) == MAX_TOKENS

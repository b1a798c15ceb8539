from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from openengine_sidecar.actors.requests import stream
from openengine_sidecar.actors.requests.call_home import HIGH_WATER
from openengine_sidecar.actors.requests.exchange import Phase
from openengine_sidecar.actors.requests.protocol import CancelReason
from openengine_sidecar.messages.facts import Outcome
from tests.requests.firehose import TOKENS, Firehose
from tests.requests.streams import Streams, Subject
from tests.support.backstage import Backstage
from tests.support.waiting import eventually, unchanging
from tests.support.wire import LOOPBACK, CallHomeServer

NEVER = 1e9
WITHOUT_END = 10**9
KERNEL = 64 * 1024


class SmallEars(CallHomeServer):
    """Ears with little room in the kernel, so that a reader that does not read is noticed soon."""

    def listening_socket(self) -> socket.socket:
        ear = socket.socket()
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL)
        ear.bind((LOOPBACK, 0))
        return ear


@pytest.fixture
def firehose() -> Firehose:
    return Firehose()


@pytest.fixture
async def streams(firehose: Firehose) -> AsyncIterator[Streams]:
    async with SmallEars() as ears, firehose.serve() as engine, Backstage.opened() as backstage:
        await backstage.connect(engine.endpoint, health_interval=NEVER)
        yield Streams(backstage, cast("Any", firehose), ears)


async def stalled(firehose: Firehose) -> int:
    """Waits until the engine gets no more events rid, and returns how many went out."""
    await eventually(lambda: firehose.events, "events flow")
    return await unchanging(lambda: firehose.events, "the engine's events")


async def timed_out(streams: Streams, subject: Subject) -> None:
    """An engine whose events nobody takes cannot end a stream by itself: the call is cancelled in time."""
    await eventually(lambda: subject.exchange.aborts, "the abort")
    await streams.backstage.stage.clock.advance(streams.config.cancel_timeout)


async def test_c72_a_slow_reader_holds_the_engine_back(streams: Streams, firehose: Firehose) -> None:
    subject = await streams.open(max_tokens=WITHOUT_END)
    subject.caller.listening.clear()
    held = await stalled(firehose)
    transport = subject.exchange._call_home._transport
    assert HIGH_WATER <= transport.get_write_buffer_size() < 2 * HIGH_WATER
    subject.caller.listening.set()
    await eventually(lambda: firehose.events > 2 * held, "the engine goes on")
    subject.cancel()
    await timed_out(streams, subject)
    assert (await subject.ended()).outcome is Outcome.CANCELLED
    tokens = subject.caller.token_ids
    assert tokens[: 2 * TOKENS] == [*range(TOKENS), *range(TOKENS)]


async def test_c72_streams_held_back_hold_little(streams: Streams, firehose: Firehose) -> None:
    subjects = [await streams.open(max_tokens=WITHOUT_END) for _ in range(8)]
    for subject in subjects:
        subject.caller.listening.clear()
    await stalled(firehose)
    for subject in subjects:
        assert subject.exchange._call_home._transport.get_write_buffer_size() < 2 * HIGH_WATER
        subject.cancel()
    await timed_out(streams, subjects[-1])
    for subject in subjects:
        assert (await subject.ended()).aborts == 1


@pytest.mark.parametrize("reason", list(CancelReason))
async def test_c63_a_stream_held_back_can_be_cancelled(
    streams: Streams, firehose: Firehose, reason: CancelReason
) -> None:
    subject = await streams.open(max_tokens=WITHOUT_END)
    subject.caller.listening.clear()
    await stalled(firehose)
    subject.cancel(reason)
    await eventually(lambda: subject.exchange.phase is Phase.ENDED, "the end is decided")
    if reason is not CancelReason.ENGINE_LOST:
        await timed_out(streams, subject)
    await eventually(lambda: subject.heard.ended, "the engine is free while nobody reads")
    subject.caller.listening.set()
    told = await subject.ended()
    assert told.reason == reason
    assert subject.caller.finals == (reason is not CancelReason.CLIENT_GONE)


async def test_a_frontend_that_never_reads_again_holds_no_actor(
    streams: Streams, firehose: Firehose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "FIN_TIMEOUT", 0.1)
    subject = await streams.open(max_tokens=WITHOUT_END)
    subject.caller.listening.clear()
    await stalled(firehose)
    subject.cancel(CancelReason.DRAIN_DEADLINE)
    await timed_out(streams, subject)
    assert (await subject.ended()).outcome is Outcome.FAILED


async def test_a_frontend_that_closes_while_it_does_not_read_is_noticed(streams: Streams, firehose: Firehose) -> None:
    subject = await streams.open(max_tokens=WITHOUT_END)
    subject.caller.listening.clear()
    await stalled(firehose)
    assert subject.caller.writer is not None
    subject.caller.writer.write_eof()
    await timed_out(streams, subject)
    await eventually(lambda: subject.heard.ended, "the engine is free")
    told = await subject.ended()
    assert (told.outcome, told.aborts) == (Outcome.CANCELLED, 1)

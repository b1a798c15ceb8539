from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field

import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from tests.interop.streams import FOREVER, PACE, begun
from tests.support.openai import OpenAIClient
from tests.support.site import Lab
from tests.support.waiting import eventually
from tests.support.wire import RawFrontend, request_body

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90)]

STREAMS = 20
TOKENS = 150
NEVER = "600"
SHORT_GRACE = ("--grace-period-secs", "0.5")


@dataclass(slots=True)
class Watch:
    """Every state the records went through, as (instance there, card there)."""

    lab: Lab
    states: list[tuple[bool, bool]] = field(default_factory=list)

    async def __call__(self) -> None:
        while True:
            # Instance first: a card seen afterwards was surely there while the instance was not.
            state = (bool(self.lab.instances()), bool(self.lab.cards()))
            if not self.states or self.states[-1] != state:
                self.states.append(state)
            await asyncio.sleep(0)


async def test_f07_streams_in_flight_finish_and_the_card_goes_first(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    _, worker = lab.serve(frontend, *SHORT_GRACE, engine_options=PACE)
    streams = await begun(client, STREAMS, max_tokens=TOKENS, ignore_eos=True)
    watch = Watch(lab)
    watching = asyncio.create_task(watch())
    await eventually(lambda: watch.states, "the watch looks")
    worker.terminate()
    await eventually(lambda: watch.states[-1] == (False, False), "records withdrawn")
    watching.cancel()
    assert worker.process.exit_code is None
    assert not any(task.done() for task, _ in streams)
    answers = await asyncio.gather(*(task for task, _ in streams))
    assert await worker.ended() == 0
    assert [(answer.finish_reason, answer.completion_tokens) for answer in answers] == [("length", TOKENS)] * STREAMS
    assert watch.states[0] == (True, True)
    assert (False, True) not in watch.states


async def test_f08_tokens_keep_their_pace_while_draining(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    _, worker = lab.serve(frontend, *SHORT_GRACE, engine_options=PACE)
    [(task, answer)] = await begun(client, 1, max_tokens=TOKENS, ignore_eos=True)
    worker.terminate()
    await eventually(lambda: "draining: 1" in worker.process.output(), "the grace period is over")
    seen = len(answer.pieces)
    await eventually(lambda: len(answer.pieces) >= seen + 10, "more pieces come while draining")
    assert not task.done()
    await task
    assert answer.finish_reason == "length"
    assert answer.completion_tokens == TOKENS
    assert await worker.ended() == 0


async def test_what_arrives_in_the_grace_period_is_served(
    lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient
) -> None:
    _, worker = lab.serve(frontend, "--grace-period-secs", "3", engine_options=PACE)
    subject = lab.site.store.records("instances", lab.namespace)[0]["transport"]["nats_tcp"]
    [(task, answer)] = await begun(client, 1, max_tokens=TOKENS, ignore_eos=True)
    async with RawFrontend(lab.site.planes.nats_url) as raw:
        worker.terminate()
        await eventually(lambda: not lab.instances(), "records withdrawn")
        acknowledgement, late = await raw.ask(subject, request_body([72, 105], max_tokens=4))
        assert acknowledgement == b""
        await late.closed.wait()
    assert late.complete
    assert len(late.token_ids) == 4
    await task
    assert answer.finish_reason == "length"
    assert await worker.ended() == 0


async def test_an_idle_worker_skips_the_grace_period(lab: Lab, frontend: OpenAIEndpoint) -> None:
    _, worker = lab.serve(frontend, "--grace-period-secs", NEVER, "--drain-timeout-secs", "900")
    worker.terminate()
    assert await worker.ended() == 0
    assert lab.instances() == []


async def test_a_timeout_too_short_cancels_the_rest(lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient) -> None:
    engine, worker = lab.serve(frontend, "--grace-period-secs", "0", "--drain-timeout-secs", "1", engine_options=PACE)
    streams = await begun(client, 5, **FOREVER)
    worker.terminate()
    answers = await asyncio.gather(*(task for task, _ in streams))
    await worker.ended()
    assert all(answer.error for answer in answers)
    records = (await engine.settled())["records"]
    assert [record["aborts"] for record in records] == [1] * 5


async def test_f11_a_second_signal_ends_at_once(lab: Lab, frontend: OpenAIEndpoint, client: OpenAIClient) -> None:
    _, worker = lab.serve(frontend, "--drain-timeout-secs", NEVER, engine_options=PACE)
    streams = await begun(client, 3, **FOREVER)
    worker.terminate()
    await eventually(lambda: not lab.instances(), "records withdrawn")
    worker.terminate()
    assert await worker.ended() == 128 + signal.SIGTERM
    answers = await asyncio.gather(*(task for task, _ in streams))
    assert all(answer.error for answer in answers)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_f11_a_signal_while_waiting_for_the_engine_ends_the_wait(lab: Lab, number: signal.Signals) -> None:
    worker = lab.worker("127.0.0.1:1")
    await eventually(lambda: "127.0.0.1:1" in worker.process.output(), "worker says what it waits for")
    worker.signal(number)
    assert await worker.ended() == 0
    assert lab.instances() == []


async def test_f11_as_process_one_of_a_container(lab: Lab, frontend: OpenAIEndpoint) -> None:
    engine = lab.engine()
    worker = lab.worker_as_process_one(engine)
    lab.await_listed(frontend, worker)
    worker.terminate()
    assert await worker.ended() == 0
    assert lab.instances() == []

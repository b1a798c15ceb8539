from __future__ import annotations

import asyncio
from typing import Any

import pytest

from openengine_sidecar.supervision import (
    Actor,
    ActorGoneError,
    AskTimeoutError,
    Backoff,
    ChildSpec,
    Count,
    Mailbox,
    MailboxFullError,
    Strategy,
    Supervisor,
    ThreadActor,
)
from openengine_sidecar.supervision.testing import Gate, Stage
from tests.supervision.cast import Cast, Fail, Say, Who, answer, incarnation


class HarmlessError(Exception):
    pass


class Door(Actor[str]):
    """Opens and closes; what comes while it is closed waits."""

    async def on_start(self) -> None:
        self.become(self.closed)

    async def closed(self, message: str) -> str | None:
        if message == "open":
            self.become(self.opened)
            self.unstash()
            return "opened"
        if message == "slam":
            raise HarmlessError
        self.stash(message)
        return None

    async def opened(self, message: str) -> str:
        if message == "close":
            self.become(self.closed)
        return f"{message} passed"


class ThreadDoor(ThreadActor[str]):
    def on_start(self) -> None:
        self.become(self.closed)

    def closed(self, message: str) -> str | None:
        if message == "open":
            self.become(self.opened)
            self.unstash()
            return "opened"
        if message == "slam":
            raise HarmlessError
        self.stash(message)
        return None

    def opened(self, message: str) -> str:
        if message == "close":
            self.become(self.closed)
        return f"{message} passed"


@pytest.fixture(params=[Door, ThreadDoor])
def door(request: pytest.FixtureRequest) -> type[Any]:
    kind: type[Any] = request.param
    return kind


async def test_an_actor_is_a_state_machine_that_postpones(stage: Stage, door: type[Any]) -> None:
    ref = await stage.spawn(ChildSpec(name="door", factory=door))
    waiting = [ref.ask(name, timeout=60.0) for name in ("one", "two")]
    await stage.clock.settle()
    assert not any(one.done for one in waiting)
    assert await ref.ask("open", timeout=1.0) == "opened"
    assert [await one for one in waiting] == ["one passed", "two passed"]
    assert await ref.ask("close", timeout=1.0) == "close passed"
    third = ref.ask("three", timeout=60.0)
    await stage.clock.settle()
    assert not third.done
    ref.tell("open")
    assert await third == "three passed"


async def test_what_is_postponed_is_bounded(stage: Stage, door: type[Any]) -> None:
    ref = await stage.spawn(ChildSpec(name="door", factory=door, mailbox=Mailbox(capacity=2)))
    for name in ("one", "two"):
        ref.tell(name)
        await stage.clock.settle()
    ref.tell("three")
    assert isinstance((await ref.stopped()).error, MailboxFullError)


async def test_what_was_postponed_survives_the_life(stage: Stage, door: type[Any]) -> None:
    spec = ChildSpec(name="door", factory=door, backoff=Backoff(minimum=0.0, maximum=0.0))
    await stage.spawn(ChildSpec(name="sup", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=[spec])))
    ref = stage.ref("sup/door")
    first, second = ref.ask("one", timeout=60.0), ref.ask("two", timeout=60.0)
    await stage.clock.settle()
    ref.tell("slam")
    await stage.clock.settle()
    ref.tell("open")
    assert (await first, await second) == ("one passed", "two passed")


async def test_postponed_asks_of_an_actor_that_ends_are_refused(stage: Stage, door: type[Any]) -> None:
    ref = await stage.spawn(ChildSpec(name="door", factory=door))
    asked = ref.ask("one", timeout=60.0)
    ref.tell("two")
    await stage.clock.settle()
    ref.cancel("end")
    with pytest.raises(ActorGoneError):
        await asked
    assert [letter.message for letter in stage.system.dead_letters] == ["two"]


async def test_some_errors_may_cost_no_more_than_the_message(stage: Stage, cast: Cast) -> None:
    state: list[Any] = []

    def handle(actor: Any, message: object) -> Any:
        state.append(message)
        return answer(actor, message)

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=handle), resume=(HarmlessError,)))
    ref.tell(Fail(HarmlessError("told")))
    with pytest.raises(HarmlessError, match="asked"):
        await ref.ask(Fail(HarmlessError("asked")), timeout=1.0)
    assert await incarnation(ref) == 1
    assert len(state) == 3
    assert stage.system.counters[Count.RESUMED] == 2
    assert stage.system.snapshot()[-1].last_failure == "failed: HarmlessError: asked"
    ref.tell(Fail(ValueError("another kind")))
    assert isinstance((await ref.stopped()).error, ValueError)


async def test_a_resumed_handler_may_have_waited(stage: Stage) -> None:
    gate = Gate()

    class Slow(Actor[str]):
        async def on_message(self, message: str) -> str:
            if message == "fail":
                await gate.passage()
                raise HarmlessError
            return message

    ref = await stage.spawn(ChildSpec(name="a", factory=Slow, resume=(HarmlessError,)))
    asked = ref.ask("fail", timeout=60.0)
    waiting = stage.background(_value(asked))
    await gate.reached()
    gate.open()
    with pytest.raises(HarmlessError):
        await waiting
    assert await ref.ask("fine", timeout=1.0) == "fine"


async def _value(asked: Any) -> Any:
    return await asked


async def _clogged(stage: Stage, cast: Cast, capacity: int = 1) -> tuple[Any, Gate, list[object]]:
    gate, handled = Gate(), []

    def handle(_: Any, message: object) -> Any:
        yield gate
        handled.append(message)

    spec = ChildSpec(name="a", factory=cast(on_message=handle), mailbox=Mailbox(capacity=capacity))
    ref = await stage.spawn(spec)
    ref.tell(0)
    await gate.reached()
    ref.tell(1)
    return ref, gate, handled


async def test_an_offer_waits_for_room_in_the_order_of_the_line(stage: Stage, cast: Cast) -> None:
    ref, gate, handled = await _clogged(stage, cast)
    offers = [stage.background(ref.offer(n, timeout=60.0)) for n in (2, 3, 4)]
    await stage.clock.settle()
    assert not any(offer.done() for offer in offers)
    gate.open()
    await asyncio.gather(*offers)
    await ref.offer(5, timeout=60.0)
    await stage.clock.settle()
    assert handled == [0, 1, 2, 3, 4, 5]
    assert stage.system.snapshot()[-1].high_water == 1
    assert stage.system.counters[Count.REJECTIONS] == 0


async def test_an_offer_with_room_is_put_in_at_once(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    await ref.offer(Say("x"), timeout=0.0)
    assert await ref.ask(Who(), timeout=1.0) == 1


async def test_an_offer_gives_up_in_time_and_leaves_the_line(stage: Stage, cast: Cast) -> None:
    ref, gate, handled = await _clogged(stage, cast)
    impatient = stage.background(ref.offer("impatient", timeout=5.0))
    patient = stage.background(ref.offer("patient", timeout=60.0))
    cancelled = stage.background(ref.offer("cancelled", timeout=60.0))
    await stage.clock.advance(5.0)
    cancelled.cancel()
    with pytest.raises(AskTimeoutError):
        await impatient
    gate.open()
    await patient
    await stage.clock.settle()
    assert handled == [0, 1, "patient"]


async def test_an_offer_to_somebody_who_goes_is_refused(stage: Stage, cast: Cast) -> None:
    ref, gate, _ = await _clogged(stage, cast)
    offer = stage.background(ref.offer("too late", timeout=60.0))
    await stage.clock.settle()
    ref.cancel("end")
    gate.open()
    with pytest.raises(ActorGoneError):
        await offer
    with pytest.raises(ActorGoneError):
        await ref.offer("far too late", timeout=60.0)


async def test_a_line_survives_the_life_it_waits_for(stage: Stage, cast: Cast) -> None:
    gate, handled = Gate(), []

    def handle(actor: Any, message: object) -> Any:
        yield gate
        handled.append((actor.incarnation, message))
        answer(actor, message)

    spec = ChildSpec(
        name="a",
        factory=cast(on_message=handle),
        mailbox=Mailbox(capacity=1),
        backoff=Backoff(minimum=0.0, maximum=0.0),
    )
    await stage.spawn(ChildSpec(name="sup", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=[spec])))
    ref = stage.ref("sup/a")
    crash = Fail(HarmlessError())
    ref.tell(crash)
    await gate.reached()
    ref.tell(1)
    offers = [stage.background(ref.offer(n, timeout=60.0)) for n in (2, 3)]
    await stage.clock.settle()
    gate.open()
    await asyncio.gather(*offers)
    await stage.clock.settle()
    assert handled == [(1, crash), (2, 1), (2, 2), (2, 3)]


async def test_a_line_moves_on_also_when_what_it_waited_for_is_not_handled(stage: Stage, cast: Cast) -> None:
    gate, handled = Gate(), []

    def handle(_: Any, message: object) -> Any:
        yield gate
        handled.append(message)

    spec = ChildSpec(name="a", factory=cast(on_message=handle), mailbox=Mailbox(capacity=1))
    ref = await stage.spawn(spec)
    ref.tell(0)
    await gate.reached()
    expired = stage.background(_value(ref.ask("expires", timeout=1.0)))
    offer = stage.background(ref.offer(2, timeout=60.0))
    await stage.clock.advance(2.0)
    gate.open()
    await offer
    await stage.clock.settle()
    assert handled == [0, 2]
    assert isinstance(expired.exception(), AskTimeoutError)

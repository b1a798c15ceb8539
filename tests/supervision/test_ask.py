from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any

import pykka
import pytest

from openengine_sidecar.supervision import (
    Actor,
    ActorGoneError,
    AskDeadlockError,
    AskFuture,
    AskTimeoutError,
    ChildSpec,
    Count,
    ThreadActor,
    UnknownMessageError,
)
from openengine_sidecar.supervision.testing import Gate, Stage
from tests.supervision.cast import Cast, Fail, Say, held_by


class BrokenError(Exception):
    pass


async def test_an_ask_is_answered_with_what_the_handler_returns(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    assert await ref.ask(Say("x"), timeout=1.0) == "x"


async def test_asks_and_tells_keep_their_order(stage: Stage, cast: Cast) -> None:
    handled: list[int] = []

    def handle(_: Any, message: int) -> int:
        handled.append(message)
        return message

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=handle)))
    for n in range(0, 300, 3):
        ref.tell(n)
        asked = ref.ask(n + 1, timeout=1.0)
        ref.tell(n + 2)
        assert await asked == n + 1
    await stage.clock.settle()
    assert handled == list(range(300))


async def test_a_reply_may_be_awaited_by_many_and_more_than_once(stage: Stage, cast: Cast) -> None:
    gate = Gate()

    def handle(_: Any, message: object) -> Any:
        yield gate
        return message

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=handle)))
    asked = ref.ask(7, timeout=1.0)
    waiting = [stage.background(_value(asked)) for _ in range(3)]
    await gate.reached()
    gate.open()
    assert [await task for task in waiting] == [7, 7, 7]
    assert await asked == 7


async def _value(asked: AskFuture[Any]) -> Any:
    return await asked


async def test_an_ask_times_out_on_the_systems_clock(stage: Stage, cast: Cast) -> None:
    gate = Gate()
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=held_by(gate))))
    waiting = stage.background(_value(ref.ask(Say("x"), timeout=5.0)))
    await gate.reached()
    await stage.clock.advance(4.9)
    assert not waiting.done()
    await stage.clock.advance(0.2)
    with pytest.raises(AskTimeoutError, match="/stage/a did not answer within 5 s") as caught:
        await waiting
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, pykka.Timeout)


async def test_a_late_reply_is_dropped_and_counted(stage: Stage, cast: Cast) -> None:
    gate = Gate()
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=held_by(gate))))
    waiting = stage.background(_value(ref.ask(Say("x"), timeout=1.0)))
    await gate.reached()
    await stage.clock.advance(1.0)
    gate.open()
    await stage.clock.settle()
    with pytest.raises(AskTimeoutError):
        await waiting
    assert stage.system.counters[Count.LATE_REPLIES] == 1


async def test_an_expired_ask_is_not_handled_and_counted(stage: Stage, cast: Cast) -> None:
    gate, handled = Gate(), []

    def handle(_: Any, message: object) -> Any:
        yield gate
        handled.append(message)

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=handle)))
    ref.tell("first")
    await gate.reached()
    waiting = stage.background(_value(ref.ask("second", timeout=1.0)))
    await stage.clock.advance(2.0)
    gate.open()
    with pytest.raises(AskTimeoutError):
        await waiting
    await stage.clock.settle()
    assert handled == ["first"]
    assert stage.system.counters[Count.EXPIRED_ASKS] == 1
    assert stage.system.counters[Count.LATE_REPLIES] == 0


async def test_an_ask_nobody_waits_for_expires_all_the_same(stage: Stage, cast: Cast) -> None:
    gate, handled = Gate(), []

    def handle(_: Any, message: object) -> Any:
        yield gate
        handled.append(message)

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=handle)))
    ref.tell("first")
    await gate.reached()
    asked = ref.ask("second", timeout=1.0)
    await stage.clock.advance(2.0)
    gate.open()
    await stage.clock.settle()
    assert handled == ["first"]
    with pytest.raises(AskTimeoutError):
        await asked


async def test_the_callee_sees_the_deadline(stage: Stage, cast: Cast) -> None:
    await stage.clock.advance(100.0)
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=lambda actor, _: actor.deadline)))
    assert await ref.ask("when?", timeout=7.0) == 107.0
    seen: list[Any] = []
    teller = cast(on_message=lambda actor, _: seen.append(actor.deadline))
    other = await stage.spawn(ChildSpec(name="b", factory=teller))
    other.tell("when?")
    await stage.clock.settle()
    assert seen == [None]


async def test_a_failing_handler_fails_the_ask_and_the_actor(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    error = BrokenError()
    with pytest.raises(BrokenError) as caught:
        await ref.ask(Fail(error), timeout=1.0)
    assert caught.value is error
    assert (await ref.stopped()).error is error


async def test_asks_still_waiting_when_the_actor_ends_are_refused(stage: Stage, cast: Cast) -> None:
    gate = Gate()
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=held_by(gate))))
    ref.tell("first")
    await gate.reached()
    asked = [ref.ask(n, timeout=60.0) for n in range(3)]
    ref.cancel("end")
    gate.open()
    for one in asked:
        with pytest.raises(ActorGoneError):
            await one


async def test_asking_somebody_who_is_gone_fails_at_once(stage: Stage, cast: Cast) -> None:
    with pytest.raises(ActorGoneError) as caught:
        await stage.ref("nobody").ask("?", timeout=60.0)
    assert isinstance(caught.value, pykka.ActorDeadError)
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    ref.cancel("end")
    await ref.stopped()
    with pytest.raises(ActorGoneError):
        await ref.ask("?", timeout=60.0)


class Narrow(Actor[Say]):
    async def on_message(self, message: Say) -> str:
        return message.text


class NarrowThread(ThreadActor[Say]):
    def on_message(self, message: Say) -> str:
        return message.text


@pytest.mark.parametrize("actor", [Narrow, NarrowThread])
async def test_asking_what_is_not_understood_fails_at_once(stage: Stage, actor: type[Any]) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=actor))
    with pytest.raises(UnknownMessageError, match="/stage/a does not understand int"):
        await ref.ask(42, timeout=60.0)
    assert await ref.ask(Say("fine"), timeout=1.0) == "fine"


async def test_a_deferred_reply_leaves_the_mailbox_open(stage: Stage, cast: Cast) -> None:
    promise: concurrent.futures.Future[str] = concurrent.futures.Future()

    def handle(_: Any, message: object) -> object:
        return promise if message == "later" else message

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=handle)))
    waiting = stage.background(_value(ref.ask("later", timeout=60.0)))
    await stage.clock.settle()
    assert await ref.ask("now", timeout=1.0) == "now"
    promise.set_result("at last")
    assert await waiting == "at last"


async def test_a_deferred_reply_may_fail_without_failing_the_actor(stage: Stage, cast: Cast) -> None:
    promise: concurrent.futures.Future[str] = concurrent.futures.Future()
    promise.set_exception(BrokenError())
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=lambda *_: promise)))
    with pytest.raises(BrokenError):
        await ref.ask("later", timeout=60.0)
    assert ref.is_alive


async def test_a_reply_may_be_delegated(stage: Stage, cast: Cast) -> None:
    expert = await stage.spawn(ChildSpec(name="expert", factory=cast.echo()))
    clerk = await stage.spawn(
        ChildSpec(name="clerk", factory=cast(on_message=lambda _, message: expert.ask(message, timeout=1.0)))
    )
    assert await clerk.ask(Say("passed on"), timeout=1.0) == "passed on"
    with pytest.raises(BrokenError):
        await clerk.ask(Fail(BrokenError()), timeout=1.0)
    assert clerk.is_alive


async def test_a_task_is_a_deferred_reply(stage: Stage) -> None:
    gate = Gate()

    class Slow(Actor[object]):
        async def on_message(self, message: object) -> object:
            return self.background(self._think(message), name="think") if message != "quick" else message

        async def _think(self, message: object) -> object:
            await gate.passage()
            return message

    ref = await stage.spawn(ChildSpec(name="a", factory=Slow))
    asked = ref.ask("slow", timeout=60.0)
    given_up = ref.ask("given up", timeout=60.0)
    assert await ref.ask("quick", timeout=60.0) == "quick"
    gate.open()
    assert await asked == "slow"
    assert await given_up == "given up"


async def test_a_deferred_reply_of_an_actor_that_ends_is_refused(stage: Stage) -> None:
    class Slow(Actor[object]):
        async def on_message(self, message: object) -> object:
            return self.background(asyncio.Event().wait(), name=f"for ever on {message}")

    ref = await stage.spawn(ChildSpec(name="a", factory=Slow))
    asked = ref.ask("x", timeout=60.0)
    await stage.clock.settle()
    ref.cancel("end")
    with pytest.raises(ActorGoneError, match="gave the answer up"):
        await asked


async def test_a_thread_may_ask_and_block(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    assert await asyncio.to_thread(lambda: ref.ask(Say("x"), timeout=30.0).get()) == "x"


async def test_a_blocked_thread_is_woken_by_the_deadline(stage: Stage, cast: Cast) -> None:
    gate = Gate()
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=held_by(gate))))
    blocked = stage.background(asyncio.to_thread(lambda: ref.ask(Say("x"), timeout=20.0).get()))
    await gate.reached()
    await stage.clock.advance(20.0)
    with pytest.raises(AskTimeoutError):
        await blocked


async def test_an_asker_may_live_on_another_loop(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))

    async def elsewhere() -> list[Any]:
        return [await ref.ask(n, timeout=30.0) for n in range(20)]

    assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == list(range(20))


async def test_many_threads_may_ask_at_once(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    replies: list[list[int]] = []

    def run(base: int) -> None:
        replies.append([ref.ask(base + n, timeout=30.0).get() for n in range(50)])

    threads = [threading.Thread(target=run, args=(base,)) for base in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert sorted(reply for one in replies for reply in one) == [*range(50), *range(100, 150), *range(200, 250)]


async def test_waiting_for_a_deferred_reply_is_no_deadlock(stage: Stage) -> None:
    promise: concurrent.futures.Future[str] = concurrent.futures.Future()

    class Asks(Actor[str]):
        async def on_message(self, message: str) -> object:
            return await stage.ref("b").ask("later", timeout=60.0) if message == "go" else "here"

    class Defers(Actor[str]):
        async def on_message(self, message: str) -> object:
            return promise if message == "later" else await stage.ref("a").ask("anybody?", timeout=60.0)

    await stage.spawn(ChildSpec(name="a", factory=Asks))
    await stage.spawn(ChildSpec(name="b", factory=Defers))
    first = stage.background(_value(stage.ref("a").ask("go", timeout=60.0)))
    await stage.clock.settle()
    second = stage.background(_value(stage.ref("b").ask("ask back", timeout=60.0)))
    await stage.clock.settle()
    promise.set_result("at last")
    assert await first == "at last"
    assert await second == "here"


async def test_a_cancelled_asker_costs_the_callee_nothing(stage: Stage, cast: Cast) -> None:
    gate = Gate()

    def handle(_: Any, message: object) -> Any:
        yield gate
        return message

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=handle)))
    waiting = stage.background(_value(ref.ask("x", timeout=60.0)))
    await gate.reached()
    waiting.cancel()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await ref.ask("y", timeout=60.0) == "y"


async def test_askers_that_wait_for_each_other_are_told(stage: Stage) -> None:
    class Asks(Actor[object]):
        async def on_message(self, message: object) -> object:
            return await stage.ref(str(message)).ask("a", timeout=60.0)

    await stage.spawn(ChildSpec(name="a", factory=Asks))
    b = await stage.spawn(ChildSpec(name="b", factory=Asks))
    with pytest.raises(AskDeadlockError, match=r"/stage/(a|b) -> /stage/(a|b) -> /stage/(a|b)"):
        await stage.ref("a").ask("b", timeout=60.0)
    assert isinstance((await b.stopped()).error, AskDeadlockError)
    assert stage.clock.monotonic() == 0.0

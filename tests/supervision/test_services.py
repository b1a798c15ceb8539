from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from openengine_sidecar.messages.signals import Cause, CauseKind
from openengine_sidecar.supervision import (
    Actor,
    ActorSystem,
    Backoff,
    ChildSpec,
    DeadReason,
    Mailbox,
    Strategy,
    SupervisionError,
    Supervisor,
)
from openengine_sidecar.supervision.testing import Gate, Probe, Stage
from tests.supervision.cast import Cast, Fail, Say, Who, answer, held_by, incarnation


class BrokenError(Exception):
    pass


class Fact(msgspec.Struct, frozen=True):
    n: int


class SpecialFact(Fact, frozen=True):
    pass


class OtherFact(msgspec.Struct, frozen=True):
    pass


async def _supervised(stage: Stage, spec: ChildSpec) -> Any:
    await stage.spawn(ChildSpec(name="sup", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=[spec])))
    return stage.ref(f"sup/{spec.name}")


async def test_a_timer_sends_the_actor_its_own_mail(stage: Stage, cast: Cast) -> None:
    handled: list[Any] = []

    def start(actor: Any) -> None:
        actor.schedule("tick", 5.0, Say("tick"))

    await stage.spawn(ChildSpec(name="a", factory=cast(on_start=start, on_message=lambda _, m: handled.append(m))))
    await stage.clock.advance(4.9)
    assert handled == []
    await stage.clock.advance(0.2)
    assert handled == [Say("tick")]
    await stage.clock.advance(100.0)
    assert handled == [Say("tick")]


async def test_a_timer_set_anew_replaces_the_old_one(stage: Stage, cast: Cast) -> None:
    handled: list[Any] = []

    def start(actor: Any) -> None:
        actor.schedule("a", 1.0, Say("old"))
        actor.schedule("b", 2.0, Say("other"))
        actor.schedule("a", 3.0, Say("new"))

    await stage.spawn(ChildSpec(name="a", factory=cast(on_start=start, on_message=lambda _, m: handled.append(m))))
    await stage.clock.settle()
    assert stage.clock.next_timer == 2.0
    await stage.clock.advance(10.0)
    assert handled == [Say("other"), Say("new")]


async def test_a_cancelled_timer_is_silent_even_from_the_mailbox(stage: Stage, cast: Cast) -> None:
    gate, handled = Gate(), []

    def handle(actor: Any, message: object) -> Any:
        actor.schedule("tick", 1.0, Say("tick"))
        yield gate
        actor.cancel_timer("tick")
        handled.append(message)

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=handle)))
    ref.tell(Say("go"))
    await gate.reached()
    await stage.clock.advance(2.0)
    gate.open()
    await stage.clock.settle()
    assert handled == [Say("go")]
    assert stage.system.dead_letters.total == 0


async def test_timers_end_with_the_life_that_set_them(stage: Stage, cast: Cast) -> None:
    handled: list[Any] = []

    def handle(actor: Any, message: object) -> Any:
        if message == Say("arm"):
            actor.schedule("tick", 5.0, Say("tick"))
        handled.append(message)
        return answer(actor, message)

    ref = await _supervised(stage, ChildSpec(name="a", factory=cast(on_message=handle)))
    ref.tell(Say("arm"))
    ref.tell(Fail(BrokenError()))
    await stage.clock.advance(20.0)
    assert await incarnation(ref) == 2
    assert Say("tick") not in handled


async def test_a_failing_background_task_fails_the_actor_and_interrupts_it(stage: Stage, cast: Cast) -> None:
    gate, crash = Gate(), Gate()

    async def work() -> None:
        await crash.passage()
        raise BrokenError

    def handle(actor: Any, _: object) -> Any:
        actor.background(work(), name="work")
        yield gate

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=handle)))
    ref.tell(Say("go"))
    await gate.reached()
    crash.open()
    cause = await ref.stopped()
    assert isinstance(cause.error, BrokenError)
    assert stage.clock.monotonic() == 0.0


async def test_background_tasks_are_cancelled_before_on_stop(stage: Stage, cast: Cast) -> None:
    log: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            log.append("background ended")

    factory = cast(
        on_start=lambda actor: actor.background(work(), name="work") and None,
        on_stop=lambda *_: log.append("on_stop"),
    )
    ref = await stage.spawn(ChildSpec(name="a", factory=factory))
    await stage.clock.settle()
    ref.cancel("end")
    await ref.stopped()
    assert log == ["background ended", "on_stop"]


async def test_a_background_task_has_a_result(stage: Stage, cast: Cast) -> None:
    async def work() -> str:
        return "done"

    factory = cast(on_message=lambda actor, _: actor.background(work(), name="work"))
    ref = await stage.spawn(ChildSpec(name="a", factory=factory))
    assert await ref.ask(Say("go"), timeout=1.0) == "done"


async def test_facts_reach_their_subscribers_in_order(stage: Stage, cast: Cast, probe: Probe) -> None:
    publisher = await stage.spawn(ChildSpec(name="p", factory=cast(on_message=lambda actor, m: actor.publish(m))))
    probe.subscribe(Fact, OtherFact)
    for n in range(5):
        publisher.tell(Fact(n))
        publisher.tell(Say("not a fact anybody wants"))
    publisher.tell(OtherFact())
    await stage.clock.settle()
    assert probe.heard == [*(Fact(n) for n in range(5)), OtherFact()]


async def test_a_subscriber_gets_the_last_fact_of_each_type_oldest_first(stage: Stage, cast: Cast) -> None:
    heard: list[Any] = []
    for fact in (Fact(1), OtherFact(), Fact(2)):
        stage.system.facts.publish(fact)

    def start(actor: Any) -> None:
        actor.subscribe(Fact, OtherFact)
        actor.subscribe(Fact)

    await stage.spawn(ChildSpec(name="a", factory=cast(on_start=start, on_message=lambda _, m: heard.append(m))))
    stage.system.facts.publish(Fact(3))
    await stage.clock.settle()
    assert heard == [OtherFact(), Fact(2), Fact(3)]
    assert stage.system.facts.last(Fact) == Fact(3)
    assert stage.system.facts.last(SpecialFact) is None


async def test_subscribing_to_a_class_means_its_subclasses_too(stage: Stage, probe: Probe) -> None:
    probe.subscribe(Fact, SpecialFact)
    stage.system.facts.publish(SpecialFact(1))
    await stage.clock.settle()
    assert probe.heard == [SpecialFact(1)]


async def test_a_new_life_subscribes_anew_and_catches_up(stage: Stage, cast: Cast) -> None:
    heard: list[Any] = []

    def handle(actor: Any, message: object) -> Any:
        heard.append((actor.incarnation, message))
        return answer(actor, message)

    factory = cast(on_start=lambda actor: actor.subscribe(Fact), on_message=handle)
    ref = await _supervised(
        stage, ChildSpec(name="a", factory=factory, backoff=Backoff(minimum=5.0, maximum=5.0, jitter=0.0))
    )
    error = Fail(BrokenError())
    ref.tell(error)
    await stage.clock.settle()
    stage.system.facts.publish(Fact(1))
    stage.system.facts.publish(Fact(2))
    await stage.clock.advance(5.0)
    assert heard == [(1, error), (2, Fact(2))]


async def test_a_full_subscriber_costs_the_publisher_nothing(stage: Stage, cast: Cast, probe: Probe) -> None:
    gate = Gate()
    spec = ChildSpec(
        name="slow",
        factory=cast(on_start=lambda actor: actor.subscribe(Fact), on_message=held_by(gate)),
        mailbox=Mailbox(capacity=1),
    )
    await stage.spawn(spec)
    probe.subscribe(Fact)
    stage.system.facts.publish(Fact(0))
    await gate.reached()
    for n in range(1, 4):
        stage.system.facts.publish(Fact(n))
    await stage.clock.settle()
    assert probe.heard == [Fact(n) for n in range(4)]
    assert stage.system.dead_letters.counts[DeadReason.DROPPED_NEW] == 2


async def test_facts_may_be_published_from_any_thread(stage: Stage, probe: Probe) -> None:
    probe.subscribe(Fact)
    await asyncio.to_thread(stage.system.facts.publish, Fact(1))
    assert await probe.next(Fact) == Fact(1)


async def test_an_actor_knows_who_and_where_it_is(stage: Stage, cast: Cast) -> None:
    def describe(actor: Any, _: object) -> Any:
        return (actor.name, actor.path, actor.incarnation, actor.ref, actor.system, actor.clock, actor.mailbox_empty)

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=describe)))
    assert await ref.ask(Who(), timeout=1.0) == ("a", "/stage/a", 1, ref, stage.system, stage.clock, True)


async def test_the_log_knows_its_actor_and_may_be_replaced(stage: Stage) -> None:
    class Logs(Actor[object]):
        async def on_start(self) -> None:
            self.log = self.log.bind(request_id="r-1")

        async def on_message(self, message: object) -> object:
            del message
            return self.log._options[-1]  # type: ignore[attr-defined] # loguru's own place for what was bound

    ref = await stage.spawn(ChildSpec(name="a", factory=Logs))
    assert await ref.ask(Who(), timeout=1.0) == {"actor": "/stage/a", "request_id": "r-1"}


async def test_the_snapshot_shows_the_whole_tree(stage: Stage, cast: Cast) -> None:
    await _supervised(stage, ChildSpec(name="a", factory=cast.echo()))
    await stage.clock.advance(7.0)
    rows = [(status.path, status.state.value, status.incarnation, status.age) for status in stage.system.snapshot()]
    assert rows == [
        ("/stage", "running", 1, 7.0),
        ("/stage/sup", "running", 1, 7.0),
        ("/stage/sup/a", "running", 1, 7.0),
    ]
    assert [status.kind for status in stage.system.snapshot()][:2] == ["Floor", "Supervisor"]


async def test_a_system_has_one_root_and_may_be_stopped_twice(cast: Cast) -> None:
    system = ActorSystem()
    with pytest.raises(SupervisionError, match="not started"):
        await system.terminated()
    await system.stop()
    await system.start(ChildSpec(name="root", factory=cast.echo()))
    with pytest.raises(SupervisionError, match="has a root already"):
        await system.start(ChildSpec(name="root", factory=cast.echo()))
    await asyncio.gather(system.stop(), system.stop())
    await system.stop()
    assert (await system.terminated()).kind is CauseKind.STOPPED
    assert system.snapshot()[0].state.value == "gone"


async def test_a_loop_that_ends_first_still_runs_every_on_stop(cast: Cast) -> None:
    log: list[Any] = []

    def program() -> None:
        async def main() -> None:
            system = ActorSystem()
            children = [ChildSpec(name=name, factory=cast(on_stop=note_end)) for name in "ab"]
            await system.start(
                ChildSpec(name="root", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=children))
            )

        asyncio.run(main())

    def note_end(actor: Any, cause: Cause) -> None:
        log.append((actor.name, cause.kind))

    await asyncio.to_thread(program)
    assert sorted(log) == [("a", CauseKind.KILLED), ("b", CauseKind.KILLED)]


async def test_giving_up_a_start_stops_what_was_started(cast: Cast) -> None:
    system, gate, stopped = ActorSystem(), Gate(), []
    factory = cast(on_start=held_by(gate), on_stop=lambda *_: stopped.append(True))
    starting = asyncio.ensure_future(system.start(ChildSpec(name="root", factory=factory)))
    await gate.reached()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert stopped == [True]


async def test_giving_up_a_spawn_stops_the_child(stage: Stage, cast: Cast) -> None:
    gate, stopped = Gate(), []
    factory = cast(on_start=held_by(gate), on_stop=lambda *_: stopped.append(True))
    spawning = stage.background(stage.spawn(ChildSpec(name="a", factory=factory)))
    await gate.reached()
    spawning.cancel()
    await stage.clock.settle()
    assert stopped == [True]
    assert not stage.ref("a").is_alive


async def test_a_background_task_begun_while_stopping_does_not_outlive_its_actor(stage: Stage, cast: Cast) -> None:
    def stop(actor: Any, _: object) -> None:
        actor.background(asyncio.Event().wait(), name="late")

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_stop=stop)))
    ref.cancel("end")
    await ref.stopped()
    await stage.clock.settle()
    assert [task for task in asyncio.all_tasks() if "late" in task.get_name()] == []


async def test_an_actor_that_swallows_its_interruption_ends_all_the_same(stage: Stage) -> None:
    gate, crash = Gate(), Gate()

    async def work() -> None:
        await crash.passage()
        raise BrokenError

    class Stubborn(Actor[str]):
        async def on_message(self, message: str) -> None:
            self.background(work(), name=message)
            with contextlib.suppress(asyncio.CancelledError):
                await gate.passage()

    ref = await stage.spawn(ChildSpec(name="a", factory=Stubborn))
    ref.tell("work")
    ref.tell("never handled")
    await gate.reached()
    crash.open()
    assert isinstance((await ref.stopped()).error, BrokenError)
    assert [letter.message for letter in stage.system.dead_letters] == ["never handled"]


async def test_an_interruption_is_over_before_on_stop_runs(stage: Stage) -> None:
    cancelling: list[int] = []

    async def work() -> None:
        raise BrokenError

    class Fails(Actor[str]):
        async def on_start(self) -> None:
            self.background(work(), name="work")

        async def on_stop(self, cause: Cause) -> None:
            del cause
            task = asyncio.current_task()
            cancelling.append(task.cancelling() if task is not None else -1)

    ref = await stage.spawn(ChildSpec(name="a", factory=Fails))
    await ref.stopped()
    assert cancelling == [0]

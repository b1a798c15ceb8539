from __future__ import annotations

import concurrent.futures
import contextlib
from typing import Any

import pytest

from openengine_sidecar.messages.signals import Cancel, CauseKind, Drain, Drained
from openengine_sidecar.supervision import (
    INFINITY,
    Actor,
    Backoff,
    ChildSpec,
    Restart,
    Strategy,
    Supervisor,
)
from openengine_sidecar.supervision.testing import Gate, Probe, Stage
from tests.supervision.cast import Cast, Fail, Say, held_by


class BrokenError(Exception):
    pass


def note(log: list[Any], what: str) -> Any:
    return lambda actor, _: log.append((what, actor.name))


def tree(cast: Cast, log: list[Any], **gates: Gate) -> ChildSpec:
    """top(one_for_one) of low and mid(rest_for_one) of left and right."""

    def leaf(name: str) -> ChildSpec:
        def drain(*_: object) -> Any:
            log.append(("drain", name))
            if name in gates:
                yield gates[name]

        factory = cast(on_drain=drain, on_stop=note(log, "stop"))
        return ChildSpec(name=name, factory=factory, drain_reserve=1.0)

    mid = ChildSpec(
        name="mid",
        factory=lambda: Supervisor(strategy=Strategy.REST_FOR_ONE, children=[leaf("left"), leaf("right")]),
        drain_reserve=2.0,
    )
    return ChildSpec(
        name="top",
        factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=[leaf("low"), mid]),
        ready_timeout=INFINITY,
    )


async def test_a_drain_goes_bottom_to_top_each_stopped_before_the_next(stage: Stage, cast: Cast) -> None:
    log: list[Any] = []
    await stage.spawn(tree(cast, log))
    await stage.system.drain(timeout=30.0, reason="bye")
    assert log == [(what, name) for name in ("right", "left", "low") for what in ("drain", "stop")]
    assert stage.clock.monotonic() == 0.0
    assert (await stage.system.terminated()).normal


async def test_the_next_child_waits_until_the_one_before_is_drained(stage: Stage, cast: Cast) -> None:
    log: list[Any] = []
    right, left = Gate(), Gate()
    await stage.spawn(tree(cast, log, right=right, left=left))
    draining = stage.background(stage.system.drain(timeout=30.0, reason="bye"))
    await right.reached()
    await stage.clock.advance(5.0)
    assert log == [("drain", "right")]
    right.open()
    await left.reached()
    await stage.clock.settle()
    assert log == [("drain", "right"), ("stop", "right"), ("drain", "left")]
    left.open()
    await draining


async def test_a_drain_can_be_followed_through_the_tree(stage: Stage, cast: Cast) -> None:
    await stage.spawn(tree(cast, []))
    await stage.system.drain(timeout=30.0, reason="bye")
    seen = [
        (trace.path, type(trace.signal).__name__)
        for trace in stage.system.signals.recent()
        if isinstance(trace.signal, (Drain, Drained))
    ]
    assert seen == [
        ("/stage", "Drain"),
        ("/stage/top", "Drain"),
        ("/stage/top/mid", "Drain"),
        ("/stage/top/mid/right", "Drain"),
        ("/stage/top/mid/right", "Drained"),
        ("/stage/top/mid/left", "Drain"),
        ("/stage/top/mid/left", "Drained"),
        ("/stage/top/mid", "Drained"),
        ("/stage/top/low", "Drain"),
        ("/stage/top/low", "Drained"),
        ("/stage/top", "Drained"),
        ("/stage", "Drained"),
    ]
    assert {trace.signal.reason for trace in stage.system.signals.recent() if isinstance(trace.signal, Drain)} == {
        "bye"
    }


async def test_the_deadline_is_cut_so_that_each_child_keeps_its_reserve(stage: Stage, cast: Cast) -> None:
    await stage.spawn(tree(cast, []))
    await stage.system.drain(timeout=30.0, reason="bye")
    deadlines = {
        trace.path: trace.signal.deadline for trace in stage.system.signals.recent() if isinstance(trace.signal, Drain)
    }
    assert deadlines == {
        "/stage": 30.0,
        "/stage/top": 30.0,
        "/stage/top/mid": 29.0,
        "/stage/top/mid/right": 28.0,
        "/stage/top/mid/left": 29.0,
        "/stage/top/low": 30.0,
    }


async def test_reserves_never_take_more_than_half_of_what_is_left(stage: Stage, cast: Cast) -> None:
    await stage.spawn(tree(cast, []))
    await stage.system.drain(timeout=1.0, reason="bye")
    deadlines = [trace.signal.deadline for trace in stage.system.signals.recent() if isinstance(trace.signal, Drain)]
    assert deadlines == [1.0, 1.0, 0.5, 0.25, 0.5, 1.0]


async def test_what_is_not_drained_by_its_deadline_is_stopped(stage: Stage, cast: Cast) -> None:
    log: list[Any] = []
    never = Gate()
    await stage.spawn(tree(cast, log, right=never, left=never, low=never))
    draining = stage.background(stage.system.drain(timeout=30.0, reason="bye"))
    await stage.clock.advance(27.9)
    assert log == [("drain", "right")]
    await stage.clock.advance(0.1)
    assert log == [("drain", "right"), ("stop", "right"), ("drain", "left")]
    await stage.clock.advance(2.0)
    assert draining.done()
    assert log[-2:] == [("drain", "low"), ("stop", "low")]


async def test_a_second_request_brings_the_deadline_closer(stage: Stage, cast: Cast) -> None:
    log: list[Any] = []
    never = Gate()
    await stage.spawn(tree(cast, log, right=never))
    first = stage.background(stage.system.drain(timeout=100.0, reason="slowly"))
    await never.reached()
    await stage.clock.advance(10.0)
    second = stage.background(stage.system.drain(timeout=5.0, reason="hurry"))
    await stage.clock.advance(1.9)
    assert not first.done()
    await stage.clock.advance(3.1)
    assert first.done()
    assert second.done()
    assert log[:2] == [("drain", "right"), ("stop", "right")]
    assert stage.clock.monotonic() == 15.0


async def test_a_second_request_never_moves_the_deadline_away(stage: Stage, cast: Cast) -> None:
    never = Gate()
    await stage.spawn(tree(cast, [], right=never, left=never, low=never))
    first = stage.background(stage.system.drain(timeout=10.0, reason="soon"))
    await never.reached()
    second = stage.background(stage.system.drain(timeout=1000.0, reason="later"))
    await stage.clock.advance(10.0)
    assert first.done()
    assert second.done()


async def test_an_actor_knows_the_shortest_drain_it_heard(stage: Stage, cast: Cast) -> None:
    gate, seen = Gate(), []

    def drain(actor: Any, _: Drain) -> Any:
        yield gate
        seen.append(actor.draining.deadline)

    await stage.spawn(ChildSpec(name="a", factory=cast(on_drain=drain)))
    first = stage.background(stage.system.drain(timeout=100.0, reason="slowly"))
    await gate.reached()
    for timeout in (20.0, 50.0):
        stage.background(stage.system.drain(timeout=timeout, reason="hurry"))
    await stage.clock.settle()
    gate.open()
    await first
    assert seen == [20.0]


async def test_draining_again_after_the_end_does_nothing(stage: Stage, cast: Cast) -> None:
    await stage.spawn(tree(cast, []))
    await stage.system.drain(timeout=1.0, reason="bye")
    await stage.system.drain(timeout=1.0, reason="bye")
    assert (await stage.system.terminated()).kind is CauseKind.STOPPED


async def test_mail_flows_while_an_actor_drains(stage: Stage) -> None:
    gate = Gate()

    class Busy(Actor[object]):
        async def on_message(self, message: object) -> object:
            return message

        async def on_drain(self, drain: Drain) -> None:
            del drain
            await gate.passage()

    ref = await stage.spawn(ChildSpec(name="a", factory=Busy))
    draining = stage.background(stage.system.drain(timeout=100.0, reason="bye"))
    await gate.reached()
    assert await ref.ask("still there", timeout=1.0) == "still there"
    assert stage.system.snapshot()[-1].state.value == "draining"
    gate.open()
    await draining


async def test_mail_flows_while_a_thread_actor_drains_with_a_promise(stage: Stage) -> None:
    promise: concurrent.futures.Future[None] = concurrent.futures.Future()
    factory = Cast("thread")(on_message=lambda _, message: message, on_drain=lambda *_: promise)
    ref = await stage.spawn(ChildSpec(name="a", factory=factory))
    draining = stage.background(stage.system.drain(timeout=100.0, reason="bye"))
    await stage.clock.settle()
    assert await ref.ask("still there", timeout=1.0) == "still there"
    assert not draining.done()
    promise.set_result(None)
    await draining


async def test_a_failing_drain_fails_the_actor_and_holds_nobody_up(stage: Stage, cast: Cast) -> None:
    def drain(*_: object) -> None:
        raise BrokenError

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_drain=drain)))
    await stage.system.drain(timeout=100.0, reason="bye")
    assert isinstance((await ref.stopped()).error, BrokenError)
    assert stage.clock.monotonic() == 0.0


async def test_spawned_children_drain_with_their_parent_which_hears_first(stage: Stage, cast: Cast) -> None:
    log: list[Any] = []
    gate = Gate()

    def drain(actor: Any, _: Drain) -> Any:
        log.append(actor.name)
        yield gate

    class Parent(Probe):
        async def on_drain(self, drain: Drain) -> None:
            del drain
            log.append(self.name)

    parent = Parent()
    await stage.spawn(ChildSpec(name="p", factory=lambda: parent))
    for name in "xy":
        await parent.spawn(ChildSpec(name=name, factory=cast(on_drain=drain)))
    draining = stage.background(stage.system.drain(timeout=100.0, reason="bye"))
    await gate.reached(2)
    await parent.spawn(ChildSpec(name="z", factory=cast(on_drain=drain)))
    await gate.reached(3)
    assert sorted(log) == ["p", "x", "y", "z"]
    assert log[0] == "p"
    assert not draining.done()
    gate.open()
    await draining


async def test_a_drain_restarts_nothing(stage: Stage, cast: Cast) -> None:
    starts: list[str] = []
    gate = Gate()
    children = [
        ChildSpec(
            name="a",
            factory=cast(on_start=lambda actor: starts.append(actor.name), on_message=_raise),
            backoff=Backoff(minimum=0.0, maximum=0.0),
        ),
        ChildSpec(name="b", factory=cast(on_drain=held_by(gate)), restart=Restart.TRANSIENT),
    ]
    await stage.spawn(
        ChildSpec(name="sup", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ALL, children=children))
    )
    draining = stage.background(stage.system.drain(timeout=100.0, reason="bye"))
    await gate.reached()
    stage.ref("sup/a").tell(Fail(BrokenError()))
    await stage.clock.settle()
    gate.open()
    await draining
    assert starts == ["a"]


def _raise(_: Any, message: Fail) -> None:
    raise message.error


async def test_a_drain_does_not_wait_for_a_back_off_or_a_start(stage: Stage, cast: Cast) -> None:
    gate, stopped = Gate(), []
    children = [
        ChildSpec(name="a", factory=cast(on_message=_raise), backoff=Backoff(minimum=1e6, maximum=1e6)),
        ChildSpec(
            name="b",
            factory=cast(on_start=held_by(gate), on_stop=lambda *_: stopped.append("b")),
            ready_timeout=INFINITY,
        ),
    ]
    starting = stage.background(
        stage.spawn(
            ChildSpec(
                name="sup",
                factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=children),
                ready_timeout=INFINITY,
            )
        )
    )
    await gate.reached()
    stage.ref("sup/a").tell(Fail(BrokenError()))
    await stage.clock.settle()
    await stage.system.drain(timeout=100.0, reason="bye")
    assert stopped == ["b"]
    assert stage.clock.monotonic() == 0.0
    assert starting.done()


async def test_a_drain_of_a_system_that_still_starts_reaches_the_children_at_work(cast: Cast) -> None:
    async with Stage() as stage:
        log: list[Any] = []
        gate = Gate()
        system = type(stage.system)(clock=stage.clock)
        children = [
            ChildSpec(name="up", factory=cast(on_drain=note(log, "drain"), on_stop=note(log, "stop"))),
            ChildSpec(name="slow", factory=cast(on_start=held_by(gate)), ready_timeout=INFINITY),
        ]
        root = ChildSpec(
            name="root",
            factory=lambda: Supervisor(strategy=Strategy.REST_FOR_ONE, children=children),
            ready_timeout=INFINITY,
        )
        starting = stage.background(system.start(root))
        await gate.reached()
        await system.drain(timeout=100.0, reason="bye")
        assert log == [("drain", "up"), ("stop", "up")]
        with pytest.raises(Exception, match="did not start"):
            await starting


async def test_a_drain_ends_by_its_deadline_even_if_nobody_listens(stage: Stage, cast: Cast) -> None:
    never = Gate()

    def stubborn(*_: object) -> Any:
        while not never_mind:
            with contextlib.suppress(BaseException):  # as rude as can be
                yield never

    never_mind: list[bool] = []
    spec = ChildSpec(name="a", factory=cast(on_message=stubborn), shutdown=1e6)
    await stage.spawn(ChildSpec(name="sup", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=[spec])))
    stage.ref("sup/a").tell(Say("hang"))
    await never.reached()
    draining = stage.background(stage.system.drain(timeout=10.0, reason="bye"))
    await stage.clock.advance(11.5)
    ended = draining.done()
    never_mind.append(True)
    never.open()
    assert ended


async def test_cancel_goes_down_the_tree(stage: Stage, cast: Cast) -> None:
    log: list[Any] = []
    children = [ChildSpec(name=name, factory=cast(on_stop=note(log, "stop"))) for name in "ab"]
    await stage.spawn(
        ChildSpec(name="sup", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=children))
    )
    stage.ref("sup").cancel("client gone")
    assert (await stage.ref("sup").stopped()).normal
    assert sorted(log) == [("stop", "a"), ("stop", "b")]
    seen = [trace.path for trace in stage.system.signals.recent() if trace.signal == Cancel("client gone")]
    assert seen[0] == "/stage/sup"
    assert sorted(seen) == ["/stage/sup", "/stage/sup/a", "/stage/sup/b"]


async def test_cancel_need_not_be_the_end(stage: Stage, cast: Cast) -> None:
    heard: list[Any] = []
    factory = cast(on_cancel=lambda _, cancel: heard.append(cancel.reason), on_message=lambda _, message: message)
    ref = await stage.spawn(ChildSpec(name="a", factory=factory))
    ref.cancel("never mind")
    assert await ref.ask("still there", timeout=1.0) == "still there"
    assert heard == ["never mind"]


async def test_signals_to_nobody_are_harmless(stage: Stage, cast: Cast) -> None:
    stage.ref("nobody").cancel("hello?")
    stage.ref("nobody").drain(1.0, "hello?")
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    ref.drain(100.0, "just you")
    await stage.clock.settle()
    assert [type(trace.signal) for trace in stage.system.signals.recent()] == [Drain, Drained]
    assert ref.is_alive


async def test_a_drain_leaves_alone_who_is_stopping_anyway(stage: Stage, cast: Cast) -> None:
    gate, drained = Gate(), []
    children = [
        ChildSpec(name="a", factory=cast(on_drain=lambda *_: drained.append("a"), on_message=_raise)),
        ChildSpec(name="b", factory=cast(on_stop=held_by(gate)), shutdown=INFINITY),
    ]
    await stage.spawn(
        ChildSpec(
            name="sup",
            factory=lambda: Supervisor(
                strategy=Strategy.ONE_FOR_ONE, children=children, programming_errors=(BrokenError,)
            ),
        )
    )
    stage.ref("sup/a").tell(Fail(BrokenError()))
    await gate.reached()
    draining = stage.background(stage.system.drain(timeout=100.0, reason="bye"))
    await stage.clock.settle()
    assert not draining.done()
    gate.open()
    await draining
    assert drained == []
    assert stage.clock.monotonic() == 0.0


async def test_a_longer_drain_sent_to_one_actor_changes_nothing(stage: Stage, cast: Cast) -> None:
    gate, seen = Gate(), []

    def drain(actor: Any, _: Drain) -> Any:
        yield gate
        seen.append(actor.draining)

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_drain=drain)))
    ref.drain(10.0, "soon")
    await gate.reached()
    ref.drain(100.0, "later")
    await stage.clock.settle()
    gate.open()
    await stage.clock.settle()
    assert seen == [Drain(10.0, "soon")]


async def _rooted(stage: Stage, factory: Any) -> Any:
    system = type(stage.system)(clock=stage.clock)
    await system.start(ChildSpec(name="root", factory=factory, shutdown=1e6))
    return system


async def test_a_second_request_hurries_a_root_that_is_stuck_in_on_drain(stage: Stage) -> None:
    never = Gate()
    system = await _rooted(stage, Cast("loop")(on_drain=held_by(never)))
    first = stage.background(system.drain(timeout=1000.0, reason="slowly"))
    await never.reached()
    stage.background(system.drain(timeout=5.0, reason="hurry"))
    await stage.clock.advance(5.0)
    assert first.done()


async def test_a_root_that_hangs_is_ended_by_the_deadline_of_the_drain(stage: Stage, cast: Cast) -> None:
    never = Gate()
    system = await _rooted(stage, cast(on_message=held_by(never)))
    system.ref("/root").tell(Say("hang"))
    await never.reached()
    draining = stage.background(system.drain(timeout=10.0, reason="bye"))
    await stage.clock.advance(11.5)
    assert draining.done()

from __future__ import annotations

from typing import Any

import pytest

from openengine_sidecar.messages.signals import Address, CauseKind, Terminated
from openengine_sidecar.supervision import Backoff, ChildSpec, Strategy, Supervisor
from openengine_sidecar.supervision.testing import Gate, Probe, Stage
from tests.supervision.cast import Cast, Fail, Say, held_by, tell_of


class BrokenError(Exception):
    pass


async def test_a_watcher_hears_of_the_end_with_its_cause(stage: Stage, cast: Cast, probe: Probe) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    probe.watch(ref)
    ref.tell(Fail(BrokenError()))
    terminated = await probe.next(Terminated)
    assert terminated.address == Address("/stage/a", 1)
    assert terminated.cause.kind is CauseKind.FAILED


async def test_watching_somebody_already_dead_tells_at_once(stage: Stage, cast: Cast, probe: Probe) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    ref.cancel("end")
    await ref.stopped()
    probe.watch(ref)
    assert (await probe.end_of("/stage/a")).normal


async def test_watching_somebody_who_never_lived_tells_at_once(stage: Stage, probe: Probe) -> None:
    probe.watch(stage.ref("nobody"))
    terminated = await probe.next(Terminated)
    assert terminated.address == Address("/stage/nobody", 0)
    assert terminated.cause.kind is CauseKind.NEVER_LIVED


async def test_a_restart_is_not_an_end(stage: Stage, cast: Cast, probe: Probe) -> None:
    spec = ChildSpec(name="a", factory=cast.echo(), backoff=Backoff(minimum=1.0, maximum=1.0))
    await stage.spawn(ChildSpec(name="sup", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=[spec])))
    probe.watch(stage.ref("sup/a"))
    stage.ref("sup/a").tell(Fail(BrokenError()))
    await stage.clock.advance(5.0)
    assert probe.heard == []
    stage.ref("sup").cancel("end")
    await stage.clock.settle()
    terminated = await probe.next(Terminated)
    assert terminated.address == Address("/stage/sup/a", 2)


async def test_unwatch_takes_back_what_is_on_its_way(stage: Stage, cast: Cast) -> None:
    gate, heard = Gate(), []
    watched = await stage.spawn(ChildSpec(name="watched", factory=cast.echo()))

    def handle(actor: Any, _: object) -> Any:
        actor.watch(watched)
        yield gate
        actor.unwatch(watched)

    factory = cast(on_message=handle, on_terminated=lambda _, terminated: heard.append(terminated))
    ref = await stage.spawn(ChildSpec(name="a", factory=factory))
    ref.tell(Say("watch"))
    await gate.reached()
    await stage.clock.settle()
    watched.cancel("end")
    await watched.stopped()
    gate.open()
    await stage.clock.settle()
    assert heard == []


async def test_a_parent_hears_of_the_end_of_a_child_once(stage: Stage, cast: Cast, probe: Probe) -> None:
    ref = await probe.spawn(ChildSpec(name="child", factory=cast.echo()))
    probe.watch(ref)
    ref.cancel("end")
    await ref.stopped()
    await stage.clock.settle()
    assert [type(heard) for heard in probe.heard] == [Terminated]


async def test_a_watcher_that_is_gone_is_forgotten(stage: Stage, cast: Cast, probe: Probe) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    probe.watch(ref)
    probe.stop()
    await stage.ref("probe").stopped()
    ref.cancel("end")
    assert (await ref.stopped()).normal
    assert probe.heard == []


async def test_no_message_is_handled_after_terminated(stage: Stage, cast: Cast, probe: Probe) -> None:
    gate, handled = Gate(), []

    def handle(_: Any, message: object) -> Any:
        yield gate
        handled.append((message, list(probe.heard)))

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=handle)))
    probe.watch(ref)
    for n in range(5):
        ref.tell(n)
    await gate.reached()
    ref.cancel("end")
    gate.open()
    await probe.end_of("/stage/a")
    assert handled == [(0, [])]


async def test_whoever_waits_for_an_end_gets_its_cause(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    waiting = [stage.background(ref.stopped()) for _ in range(3)]
    await stage.clock.settle()
    assert not any(task.done() for task in waiting)
    ref.cancel("end")
    assert {(await task).kind for task in waiting} == {CauseKind.STOPPED}
    assert (await ref.stopped()).kind is CauseKind.STOPPED
    assert (await stage.ref("nobody").stopped()).kind is CauseKind.NEVER_LIVED


@pytest.mark.parametrize("how", ["cancel", "crash"])
async def test_the_children_of_an_actor_end_with_it(stage: Stage, cast: Cast, how: str) -> None:
    log: list[Any] = []
    parent = Probe()
    ref = await stage.spawn(ChildSpec(name="p", factory=lambda: parent))
    for name in "xyz":
        await parent.spawn(ChildSpec(name=name, factory=cast(on_stop=tell_of(log, "stop"))))
    if how == "cancel":
        ref.cancel("end")
    else:
        parent.background(_crash(), name="crash")
    await ref.stopped()
    assert sorted(log) == [("stop", "x"), ("stop", "y"), ("stop", "z")]
    assert not stage.ref("p/x").is_alive


async def _crash() -> None:
    raise BrokenError


async def test_a_child_spawned_while_its_parent_ends_is_refused(stage: Stage, cast: Cast) -> None:
    gate = Gate()
    parent = Probe()
    await stage.spawn(ChildSpec(name="p", factory=lambda: parent))
    await parent.spawn(ChildSpec(name="slow", factory=cast(on_stop=held_by(gate))))
    parent.stop()
    await gate.reached()
    with pytest.raises(Exception, match="its parent is stopping"):
        await parent.spawn(ChildSpec(name="late", factory=cast.echo()))
    gate.open()
    await stage.ref("p").stopped()


async def test_word_of_an_end_is_not_taken_for_that_of_a_namesake(stage: Stage, cast: Cast) -> None:
    gate, heard = Gate(), []
    first = await stage.spawn(ChildSpec(name="twin", factory=cast.echo()))

    def handle(actor: Any, _: object) -> Any:
        actor.watch(first)
        yield gate
        actor.watch(stage.ref("twin"))

    factory = cast(on_message=handle, on_terminated=lambda _, terminated: heard.append(terminated))
    ref = await stage.spawn(ChildSpec(name="a", factory=factory))
    ref.tell(Say("watch"))
    await gate.reached()
    await stage.clock.settle()
    first.cancel("end")
    await first.stopped()
    second = await stage.spawn(ChildSpec(name="twin", factory=cast.echo()))
    gate.open()
    await stage.clock.settle()
    assert heard == []
    second.cancel("end")
    await stage.clock.settle()
    assert len(heard) == 1

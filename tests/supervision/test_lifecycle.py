from __future__ import annotations

import asyncio
from typing import Any

import pytest

from openengine_sidecar.messages.signals import CauseKind
from openengine_sidecar.supervision import (
    INFINITY,
    KILL,
    ActorGoneError,
    ActorState,
    ActorSystem,
    ChildSpec,
    ChildSpecError,
    Count,
    NotReadyError,
    StartError,
    Strategy,
    Supervisor,
)
from openengine_sidecar.supervision.testing import Gate, Probe, Stage
from tests.supervision.cast import Cast, Fail, Say, answer, held_by, incarnation, tell_of


class BrokenError(Exception):
    pass


def fail(_actor: Any, *_: object) -> None:
    raise BrokenError


async def test_a_spawned_actor_is_ready_when_spawn_returns(stage: Stage, cast: Cast) -> None:
    log: list[Any] = []
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_start=tell_of(log, "start"), on_message=answer)))
    assert log == [("start", "a")]
    assert await ref.ask(Say("hello"), timeout=1.0) == "hello"
    assert ref.is_alive
    assert (ref.name, ref.path) == ("a", "/stage/a")


async def test_spawn_waits_for_an_on_start_that_waits(stage: Stage, cast: Cast) -> None:
    gate = Gate()
    spawning = asyncio.ensure_future(stage.spawn(ChildSpec(name="a", factory=cast(on_start=held_by(gate)))))
    await gate.reached()
    await stage.clock.settle()
    assert not spawning.done()
    assert stage.system.snapshot()[1].state is ActorState.STARTING
    gate.open()
    assert (await spawning).is_alive


async def test_a_failed_start_is_raised_by_spawn_and_runs_on_stop(stage: Stage, cast: Cast) -> None:
    causes: list[Any] = []
    factory = cast(on_start=fail, on_stop=lambda _, cause: causes.append(cause.kind))
    with pytest.raises(BrokenError) as caught:
        await stage.spawn(ChildSpec(name="a", factory=factory))
    assert caught.value.__notes__ == ["while /stage/a was starting"]
    assert causes == [CauseKind.FAILED]
    assert not stage.ref("a").is_alive
    assert stage.system.counters[Count.FAILURES] == 1


def no_actor() -> Any:
    return 1 // 0


async def test_a_failed_factory_is_raised_by_spawn_and_frees_the_name(stage: Stage, cast: Cast) -> None:
    with pytest.raises(ZeroDivisionError):
        await stage.spawn(ChildSpec(name="a", factory=no_actor))
    assert (await stage.spawn(ChildSpec(name="a", factory=cast.echo()))).is_alive


async def test_a_start_that_takes_too_long_is_ended(stage: Stage, cast: Cast) -> None:
    gate, causes = Gate(), []
    factory = cast(on_start=held_by(gate), on_stop=lambda _, cause: causes.append(cause.kind))
    spawning = asyncio.ensure_future(stage.spawn(ChildSpec(name="a", factory=factory, ready_timeout=3.0)))
    await gate.reached()
    await stage.clock.advance(2.9)
    assert not spawning.done()
    await stage.clock.advance(0.2)
    with pytest.raises(NotReadyError, match="not ready within 3 s"):
        await spawning
    assert causes == [CauseKind.NOT_READY]


async def test_a_start_may_take_for_ever(stage: Stage, cast: Cast) -> None:
    gate = Gate()
    spec = ChildSpec(name="a", factory=cast(on_start=held_by(gate)), ready_timeout=INFINITY)
    spawning = asyncio.ensure_future(stage.spawn(spec))
    await gate.reached()
    await stage.clock.advance(1e9)
    assert not spawning.done()
    gate.open()
    await spawning


async def test_siblings_need_names_of_their_own(stage: Stage, cast: Cast) -> None:
    await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    with pytest.raises(ChildSpecError, match="/stage/a is taken"):
        await stage.spawn(ChildSpec(name="a", factory=cast.echo()))


async def test_a_factory_must_make_a_fresh_actor(stage: Stage, cast: Cast) -> None:
    actor = cast.echo()()
    await stage.spawn(ChildSpec(name="a", factory=lambda: actor))
    with pytest.raises(ChildSpecError, match="has lived already"):
        await stage.spawn(ChildSpec(name="b", factory=lambda: actor))


async def test_an_actor_may_stop_itself_after_the_current_message(stage: Stage, cast: Cast, probe: Probe) -> None:
    handled: list[Any] = []

    def script(actor: Any, message: object) -> None:
        actor.stop()
        handled.append(message)

    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=script)))
    probe.watch(ref)
    ref.tell(Say("one"))
    ref.tell(Say("two"))
    assert (await probe.end_of("/stage/a")).kind is CauseKind.STOPPED
    assert handled == [Say("one")]
    assert [letter.message for letter in stage.system.dead_letters] == [Say("two")]


async def test_an_actor_may_stop_itself_in_on_start(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_start=lambda actor: actor.stop())))
    assert (await ref.stopped()).normal


async def test_a_failing_handler_ends_the_actor_with_its_error(stage: Stage, cast: Cast) -> None:
    causes: list[Any] = []
    factory = cast(on_message=fail, on_stop=lambda _, cause: causes.append(cause))
    ref = await stage.spawn(ChildSpec(name="a", factory=factory))
    ref.tell(Say("x"))
    cause = await ref.stopped()
    assert cause.kind is CauseKind.FAILED
    assert isinstance(cause.error, BrokenError)
    assert causes == [cause]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
async def test_no_exception_ends_more_than_its_actor(stage: Stage, cast: Cast, error: BaseException) -> None:
    await stage.spawn(ChildSpec(name="bystander", factory=cast.echo()))
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    asked = ref.ask(Fail(error), timeout=5.0)
    with pytest.raises(ActorGoneError, match=type(error).__name__):
        await asked
    cause = await ref.stopped()
    assert cause.kind is CauseKind.FAILED
    assert await stage.ref("bystander").ask(Say("still here"), timeout=5.0) == "still here"


async def test_a_failing_on_stop_turns_a_normal_end_into_a_failure(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_stop=fail, on_message=lambda actor, _: actor.stop())))
    ref.tell(Say("stop"))
    assert isinstance((await ref.stopped()).error, BrokenError)
    assert stage.system.counters[Count.STOP_FAILURES] == 1


async def test_an_actor_that_stops_in_time_finishes_its_message(cast: Cast) -> None:
    async with Stage() as stage:
        gate, handled = Gate(), []

        def script(_: Any, message: object) -> Any:
            yield gate
            handled.append(message)

        await stage.spawn(ChildSpec(name="a", factory=cast(on_message=script), shutdown=5.0))
        stage.ref("a").tell(Say("long"))
        await gate.reached()
        stopping = asyncio.ensure_future(stage.system.stop())
        await stage.clock.advance(4.9)
        gate.open()
        await stopping
        assert handled == [Say("long")]
        assert stage.system.counters[Count.KILLS] == 0


async def test_an_actor_that_does_not_stop_in_time_is_cancelled(cast: Cast) -> None:
    async with Stage() as stage:
        gate, causes = Gate(), []
        factory = cast(on_message=held_by(gate), on_stop=lambda _, cause: causes.append(cause.kind))
        await stage.spawn(ChildSpec(name="a", factory=factory, shutdown=5.0))
        stage.ref("a").tell(Say("too long"))
        await gate.reached()
        stopping = asyncio.ensure_future(stage.system.stop())
        await stage.clock.advance(4.9)
        assert causes == []
        await stage.clock.advance(0.2)
        await stopping
        assert causes == [CauseKind.KILLED]
        assert stage.system.counters[Count.KILLS] == 1


async def test_kill_does_not_wait_for_the_current_message(cast: Cast) -> None:
    async with Stage() as stage:
        gate, causes = Gate(), []
        factory = cast(on_message=held_by(gate), on_stop=lambda _, cause: causes.append(cause.kind))
        await stage.spawn(ChildSpec(name="a", factory=factory, shutdown=KILL))
        stage.ref("a").tell(Say("too long"))
        await gate.reached()
        await stage.system.stop()
        assert stage.clock.monotonic() == 0.0
        assert causes == [CauseKind.KILLED]


async def test_an_actor_that_ignores_cancellation_is_abandoned(cast: Cast) -> None:
    async with Stage() as stage:
        gate, stubborn, handled = Gate(), Gate(), []

        def script(_: Any, message: object) -> Any:
            handled.append(message)
            try:
                yield gate
            finally:
                yield stubborn

        await stage.spawn(ChildSpec(name="a", factory=cast(on_message=script), shutdown=1.0))
        ref = stage.ref("a")
        ref.tell(Say("one"))
        ref.tell(Say("two"))
        await gate.reached()
        stopping = asyncio.ensure_future(stage.system.stop())
        await stage.clock.advance(2.5)
        await stopping
        assert (await ref.stopped()).kind is CauseKind.ABANDONED
        assert stage.system.counters[Count.ABANDONED] == 1
        stubborn.open()
        await stage.clock.settle()
        assert handled == [Say("one")]


async def test_a_stop_interrupts_a_start(cast: Cast) -> None:
    async with Stage() as stage:
        gate, causes = Gate(), []
        factory = cast(on_start=held_by(gate), on_stop=lambda _, cause: causes.append(cause.kind))
        spawning = asyncio.ensure_future(stage.spawn(ChildSpec(name="a", factory=factory, ready_timeout=INFINITY)))
        await gate.reached()
        await stage.system.stop()
        assert causes == [CauseKind.STOPPED]
        with pytest.raises(StartError, match="stopped"):
            await spawning
        assert stage.clock.monotonic() == 0.0


async def test_children_end_before_their_parent_runs_on_stop(cast: Cast) -> None:
    async with Stage() as stage:
        log: list[Any] = []
        stop = tell_of(log, "stop")
        parent = cast(on_message=lambda actor, spec: actor.spawn(spec), on_stop=stop)
        ref = await stage.spawn(ChildSpec(name="p", factory=parent))
        for name in ("x", "y"):
            child = await ref.ask(ChildSpec(name=name, factory=cast(on_stop=stop)), timeout=60.0)
            assert child == stage.ref(f"p/{name}")
        await stage.system.stop()
        assert sorted(log[:2]) == [("stop", "x"), ("stop", "y")]
        assert log[2:] == [("stop", "p")]


async def test_services_are_there_from_on_start_on(cast: Cast) -> None:
    actor = cast.echo()()
    with pytest.raises(RuntimeError, match="is not alive yet"):
        _ = actor.path


async def test_the_root_fails_to_start(cast: Cast) -> None:
    system = ActorSystem()
    with pytest.raises(BrokenError):
        await system.start(ChildSpec(name="root", factory=cast(on_start=fail)))
    assert (await system.terminated()).kind is CauseKind.FAILED


async def test_a_supervised_actor_gets_a_new_life_at_the_same_address(stage: Stage, cast: Cast) -> None:
    spec = ChildSpec(name="a", factory=cast.echo())
    await stage.spawn(ChildSpec(name="sup", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=[spec])))
    ref = stage.ref("sup/a")
    assert await incarnation(ref) == 1
    ref.tell(Fail(BrokenError()))
    ref.tell(Say("held meanwhile"))
    asked = asyncio.ensure_future(_asked(ref))
    await stage.clock.settle()
    assert stage.system.snapshot()[-1].state is ActorState.BACKOFF
    await stage.clock.advance(1.0)
    assert await asked == 2
    assert stage.system.counters[Count.RESTARTS] == 1
    assert len(stage.system.dead_letters) == 0


async def _asked(ref: Any) -> int:
    return await incarnation(ref)

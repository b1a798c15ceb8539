from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from openengine_sidecar.messages.signals import Cause, CauseKind, Terminated
from openengine_sidecar.supervision import (
    INFINITY,
    ActorState,
    AutoShutdown,
    Backoff,
    ChildSpec,
    ChildSpecError,
    Count,
    EscalationError,
    NotReadyError,
    Restart,
    RestartBudget,
    Strategy,
    Supervisor,
)
from openengine_sidecar.supervision.testing import Gate, Probe, Stage, crash_at, crash_now
from tests.supervision.cast import Cast, Fail, Say, Who, answer, held_by, incarnation

AT_ONCE = Backoff(minimum=0.0, maximum=0.0)


class BrokenError(Exception):
    pass


class Log:
    """What three children did, in order; each can be made to fail at its next start."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self.events: list[str] = []
        self.failing_starts: dict[str, int] = {}

    def spec(self, name: str, **options: Any) -> ChildSpec:
        def start(_: Any) -> None:
            self.events.append(f"+{name}")
            if self.failing_starts.get(name, 0):
                self.failing_starts[name] -= 1
                raise BrokenError

        def stop(_: Any, cause: Cause) -> None:
            self.events.append(f"{'-' if cause.normal else '!'}{name}")

        factory = self.cast(on_start=start, on_message=answer, on_stop=stop)
        return ChildSpec(name=name, factory=factory, **{"backoff": AT_ONCE, **options})

    def taken(self) -> str:
        events, self.events = " ".join(self.events), []
        return events


@pytest.fixture
def log(cast: Cast) -> Log:
    return Log(cast)


async def supervise(
    stage: Stage, strategy: Strategy, children: Sequence[ChildSpec], *, name: str = "sup", **options: Any
) -> Any:
    spec = ChildSpec(
        name=name,
        factory=lambda: Supervisor(strategy=strategy, children=children, **options),
        ready_timeout=INFINITY,
    )
    return await stage.spawn(spec)


async def trio(stage: Stage, log: Log, strategy: Strategy, **options: Any) -> Any:
    ref = await supervise(stage, strategy, [log.spec(name) for name in "abc"], **options)
    assert log.taken() == "+a +b +c"
    return ref


async def strike(stage: Stage, path: str, error: BaseException | None = None) -> None:
    stage.ref(path).tell(Fail(error if error is not None else BrokenError()))
    await stage.clock.settle()


async def test_children_start_in_order_each_ready_before_the_next(stage: Stage, cast: Cast) -> None:
    gates = {name: Gate() for name in "abc"}
    children = [ChildSpec(name=name, factory=cast(on_start=held_by(gates[name]))) for name in "abc"]
    starting = stage.background(supervise(stage, Strategy.ONE_FOR_ONE, children))
    for position, name in enumerate("abc"):
        await gates[name].reached()
        await stage.clock.settle()
        states = [status.state for status in stage.system.snapshot()[2:]]
        assert states == [ActorState.RUNNING] * position + [ActorState.STARTING] + [ActorState.WAITING] * (2 - position)
        assert not starting.done()
        gates[name].open()
    await starting


async def test_a_start_can_be_followed_through_the_tree(stage: Stage, cast: Cast) -> None:
    inner = ChildSpec(
        name="inner",
        factory=lambda: Supervisor(
            strategy=Strategy.ONE_FOR_ONE, children=[ChildSpec(name="leaf", factory=cast.echo(), backoff=AT_ONCE)]
        ),
    )
    await supervise(stage, Strategy.ONE_FOR_ONE, [inner, ChildSpec(name="last", factory=cast.echo())])
    seen = [(trace.path, type(trace.signal).__name__) for trace in stage.system.signals.recent()]
    assert seen == [
        ("/stage/sup/inner", "Start"),
        ("/stage/sup/inner/leaf", "Start"),
        ("/stage/sup/inner/leaf", "Started"),
        ("/stage/sup/inner", "Started"),
        ("/stage/sup/last", "Start"),
        ("/stage/sup/last", "Started"),
    ]
    await strike(stage, "sup/inner/leaf", TypeError())
    last = stage.system.signals.recent()[-2:]
    assert [(trace.path, type(trace.signal).__name__) for trace in last] == [
        ("/stage/sup/inner", "Escalate"),
        ("/stage/sup", "Escalate"),
    ]


async def test_children_stop_in_reverse_each_gone_before_the_next(cast: Cast) -> None:
    async with Stage() as stage:
        gates = {name: Gate() for name in "abc"}
        children = [
            ChildSpec(name=name, factory=cast(on_stop=held_by(gates[name])), shutdown=INFINITY) for name in "abc"
        ]
        await supervise(stage, Strategy.ONE_FOR_ONE, children)
        stopping = asyncio.ensure_future(stage.system.stop())
        for position, name in enumerate("cba"):
            await gates[name].reached()
            await stage.clock.settle()
            assert [status.path[-1] for status in stage.system.snapshot()[2:]] == list("abc")[: 3 - position]
            gates[name].open()
        await stopping


async def test_a_failed_first_start_fails_the_supervisor_and_stops_the_others(stage: Stage, log: Log) -> None:
    log.failing_starts["c"] = 1
    with pytest.raises(BrokenError):
        await supervise(stage, Strategy.ONE_FOR_ONE, [log.spec(name) for name in "abc"])
    assert log.taken() == "+a +b +c !c -b -a"
    assert stage.system.counters[Count.RESTARTS] == 0


async def test_a_child_that_is_not_ready_in_time_fails_the_start(stage: Stage, cast: Cast) -> None:
    slow = ChildSpec(name="slow", factory=cast(on_start=held_by(Gate())), ready_timeout=5.0)
    starting = stage.background(supervise(stage, Strategy.ONE_FOR_ONE, [slow]))
    await stage.clock.advance(5.0)
    with pytest.raises(NotReadyError, match="/stage/sup/slow"):
        await starting


async def test_one_for_one_restarts_the_failed_child_alone(stage: Stage, log: Log) -> None:
    await trio(stage, log, Strategy.ONE_FOR_ONE)
    await strike(stage, "sup/b")
    assert log.taken() == "!b +b"


async def test_one_for_all_restarts_all_children(stage: Stage, log: Log) -> None:
    await trio(stage, log, Strategy.ONE_FOR_ALL)
    await strike(stage, "sup/b")
    assert log.taken() == "!b -c -a +a +b +c"


async def test_rest_for_one_restarts_the_failed_child_and_those_after_it(stage: Stage, log: Log) -> None:
    await trio(stage, log, Strategy.REST_FOR_ONE)
    await strike(stage, "sup/b")
    assert log.taken() == "!b -c +b +c"


async def test_a_permanent_child_is_restarted_whatever_its_end(stage: Stage, log: Log) -> None:
    await trio(stage, log, Strategy.ONE_FOR_ONE)
    stage.ref("sup/b").cancel("normal end")
    await stage.clock.settle()
    assert log.taken() == "-b +b"


async def test_a_transient_child_is_restarted_unless_its_end_was_normal(stage: Stage, log: Log) -> None:
    await supervise(stage, Strategy.ONE_FOR_ONE, [log.spec("a", restart=Restart.TRANSIENT)])
    await strike(stage, "sup/a")
    assert log.taken() == "+a !a +a"
    stage.ref("sup/a").cancel("normal end")
    await stage.clock.settle()
    assert log.taken() == "-a"
    assert not stage.ref("sup/a").is_alive


async def test_a_temporary_child_is_never_restarted(stage: Stage, log: Log) -> None:
    await supervise(stage, Strategy.ONE_FOR_ONE, [log.spec("a", restart=Restart.TEMPORARY), log.spec("b")])
    await strike(stage, "sup/a")
    assert log.taken() == "+a +b !a"
    assert not stage.ref("sup/a").is_alive


async def test_a_group_restart_brings_back_transients_but_no_temporaries(stage: Stage, log: Log) -> None:
    children = [
        log.spec("a"),
        log.spec("done", restart=Restart.TRANSIENT),
        log.spec("temp", restart=Restart.TEMPORARY),
    ]
    await supervise(stage, Strategy.ONE_FOR_ALL, children)
    stage.ref("sup/done").cancel("finished its work")
    await stage.clock.settle()
    log.taken()
    await strike(stage, "sup/a")
    assert log.taken() == "!a -temp +a +done"
    assert not stage.ref("sup/temp").is_alive
    assert await incarnation(stage.ref("sup/done")) == 2


async def test_refs_survive_the_lives_and_mail_waits(stage: Stage, cast: Cast) -> None:
    spec = ChildSpec(name="a", factory=cast.echo(), backoff=Backoff(minimum=1.0, maximum=1.0, jitter=0.0))
    await supervise(stage, Strategy.ONE_FOR_ONE, [spec])
    ref = stage.ref("sup/a")
    ref.tell(Fail(BrokenError()))
    asked = [ref.ask(n, timeout=60.0) for n in range(3)]
    await stage.clock.advance(0.9)
    assert stage.system.snapshot()[-1].state is ActorState.BACKOFF
    assert stage.system.snapshot()[-1].mailbox == 3
    assert ref.is_alive
    await stage.clock.advance(0.2)
    assert [await one for one in asked] == [0, 1, 2]
    assert await incarnation(ref) == 2


async def test_back_off_doubles_up_to_its_maximum_and_starts_anew_after_health(stage: Stage, cast: Cast) -> None:
    backoff = Backoff(minimum=1.0, maximum=4.0, jitter=0.0, reset_after=10.0)
    spec = ChildSpec(name="a", factory=cast.echo(), backoff=backoff)
    await supervise(stage, Strategy.ONE_FOR_ONE, [spec], budget=RestartBudget(max_restarts=100, window=1.0))
    waited = []
    for _ in range(4):
        await strike(stage, "sup/a")
        waited.append(await stage.clock.advance_to_next_timer())
    await stage.clock.advance(9.9)
    await strike(stage, "sup/a")
    waited.append(await stage.clock.advance_to_next_timer())
    await stage.clock.advance(10.0)
    await strike(stage, "sup/a")
    waited.append(await stage.clock.advance_to_next_timer())
    assert waited == pytest.approx([1.0, 2.0, 4.0, 4.0, 4.0, 1.0])


async def test_the_budget_is_a_sliding_window(stage: Stage, log: Log) -> None:
    ref = await supervise(stage, Strategy.ONE_FOR_ONE, [log.spec("a")], budget=RestartBudget(max_restarts=2, window=10))
    for pause in (4.0, 6.1, 4.0, 6.1):
        await strike(stage, "sup/a")
        await stage.clock.advance(pause)
    assert ref.is_alive
    await strike(stage, "sup/a")
    assert ref.is_alive
    await strike(stage, "sup/a")
    cause = await ref.stopped()
    assert isinstance(cause.error, EscalationError)
    assert cause.error.child == "a"
    assert isinstance(cause.error.origin.error, BrokenError)
    assert "more than 2 incidents in 10 s" in cause.reason
    assert stage.system.counters[Count.ESCALATIONS] == 1
    assert stage.system.counters[Count.RESTARTS] == 5


async def test_an_incident_counts_once_however_many_it_touches(stage: Stage, log: Log) -> None:
    children = [log.spec(name) for name in "abc"]
    ref = await supervise(stage, Strategy.ONE_FOR_ALL, children, budget=RestartBudget(max_restarts=2, window=10))
    for _ in range(2):
        await strike(stage, "sup/b")
    assert ref.is_alive
    assert stage.system.counters[Count.INCIDENTS] == 2
    assert stage.system.counters[Count.RESTARTS] == 6
    await strike(stage, "sup/b")
    assert isinstance((await ref.stopped()).error, EscalationError)


async def test_a_failed_restart_is_an_incident_and_is_tried_again(stage: Stage, log: Log) -> None:
    await trio(stage, log, Strategy.REST_FOR_ONE)
    log.failing_starts["b"] = 2
    await strike(stage, "sup/b")
    assert log.taken() == "!b -c +b !b +b !b +b +c"
    assert stage.system.counters[Count.INCIDENTS] == 3


async def test_a_failed_restart_of_one_for_all_begins_from_the_top(stage: Stage, log: Log) -> None:
    await trio(stage, log, Strategy.ONE_FOR_ALL)
    log.failing_starts["b"] = 1
    await strike(stage, "sup/c")
    assert log.taken() == "!c -b -a +a +b !b -a +a +b +c"
    assert stage.system.counters[Count.INCIDENTS] == 2


async def test_restarts_that_never_succeed_spend_the_budget(stage: Stage, log: Log) -> None:
    ref = await trio(stage, log, Strategy.ONE_FOR_ONE, budget=RestartBudget(max_restarts=3, window=30))
    log.failing_starts["a"] = 99
    await strike(stage, "sup/a")
    assert isinstance((await ref.stopped()).error, EscalationError)
    assert log.taken() == "!a +a !a +a !a +a !a -c -b"


@pytest.mark.parametrize("error", [TypeError(), AttributeError(), NameError(), msgspec.ValidationError()])
async def test_programming_errors_escalate_at_once(stage: Stage, log: Log, error: Exception) -> None:
    ref = await trio(stage, log, Strategy.ONE_FOR_ONE)
    await strike(stage, "sup/b", error)
    cause = await ref.stopped()
    assert isinstance(cause.error, EscalationError)
    assert cause.error.origin.error is error
    assert log.taken() == "!b -c -a"
    assert stage.system.counters[Count.RESTARTS] == 0


async def test_fatal_errors_escalate_at_once_through_every_supervisor(stage: Stage, log: Log) -> None:
    inner = ChildSpec(
        name="inner",
        factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=[log.spec("a")], fatal=(BrokenError,)),
    )
    ref = await supervise(stage, Strategy.ONE_FOR_ONE, [inner], fatal=(BrokenError,))
    await strike(stage, "sup/inner/a")
    cause = await ref.stopped()
    assert isinstance(cause.error, EscalationError)
    assert isinstance(cause.error.origin.error, BrokenError)
    assert log.taken() == "+a !a"


async def test_what_counts_as_a_programming_error_is_configurable(stage: Stage, log: Log) -> None:
    ref = await trio(stage, log, Strategy.ONE_FOR_ONE, programming_errors=())
    await strike(stage, "sup/b", TypeError())
    assert log.taken() == "!b +b"
    assert ref.is_alive


async def test_an_escalation_is_an_incident_of_the_supervisor_above(stage: Stage, log: Log) -> None:
    inner = ChildSpec(
        name="inner",
        factory=lambda: Supervisor(
            strategy=Strategy.ONE_FOR_ONE, children=[log.spec("a")], budget=RestartBudget(max_restarts=0)
        ),
        backoff=AT_ONCE,
    )
    ref = await supervise(stage, Strategy.ONE_FOR_ONE, [inner, log.spec("b")])
    assert log.taken() == "+a +b"
    await strike(stage, "sup/inner/a")
    assert log.taken() == "!a +a"
    assert ref.is_alive
    assert await incarnation(stage.ref("sup/inner/a")) == 1
    statuses = {status.path: status.incarnation for status in stage.system.snapshot()}
    assert statuses["/stage/sup/inner"] == 2


async def test_the_end_of_the_root_says_what_nobody_could_mend(cast: Cast) -> None:
    async with Stage() as stage:
        system = type(stage.system)(clock=stage.clock)
        spec = ChildSpec(name="a", factory=cast.echo(), backoff=AT_ONCE)
        root = await system.start(
            ChildSpec(
                name="root",
                factory=lambda: Supervisor(
                    strategy=Strategy.ONE_FOR_ONE, children=[spec], budget=RestartBudget(max_restarts=1)
                ),
            )
        )
        error = BrokenError("the second")
        system.ref("/root/a").tell(Fail(BrokenError("the first")))
        await stage.clock.settle()
        system.ref("/root/a").tell(Fail(error))
        cause = await system.terminated()
        assert isinstance(cause.error, EscalationError)
        assert cause.error.origin.error is error
        assert "/root gave up on a" in str(cause)
        assert not root.is_alive


async def test_any_significant_child_may_end_its_supervisor(stage: Stage, log: Log) -> None:
    children = [
        log.spec("a"),
        log.spec("work", restart=Restart.TRANSIENT, significant=True),
        log.spec("more", restart=Restart.TEMPORARY, significant=True),
    ]
    ref = await supervise(stage, Strategy.ONE_FOR_ONE, children, auto_shutdown=AutoShutdown.ANY_SIGNIFICANT)
    log.taken()
    await strike(stage, "sup/work")
    assert log.taken() == "!work +work"
    stage.ref("sup/work").cancel("done")
    cause = await ref.stopped()
    assert cause == Cause(CauseKind.STOPPED, "auto-shutdown: work ended")
    assert log.taken() == "-work -more -a"


async def test_all_significant_children_together_may_end_their_supervisor(stage: Stage, log: Log) -> None:
    children = [
        log.spec("a"),
        log.spec("work", restart=Restart.TRANSIENT, significant=True),
        log.spec("more", restart=Restart.TEMPORARY, significant=True),
    ]
    ref = await supervise(stage, Strategy.ONE_FOR_ONE, children, auto_shutdown=AutoShutdown.ALL_SIGNIFICANT)
    await strike(stage, "sup/more")
    assert ref.is_alive
    stage.ref("sup/work").cancel("done")
    assert (await ref.stopped()).normal


async def test_a_failure_during_a_restart_widens_it(stage: Stage, cast: Cast, log: Log) -> None:
    gate = Gate()
    slow_starts = iter([None, gate, None, None])

    def slowly(_: Any) -> Any:
        log.events.append("+b")
        wait = next(slow_starts)
        if wait is not None:
            yield wait

    slow = ChildSpec(name="b", factory=cast(on_start=slowly, on_message=answer), backoff=AT_ONCE)
    await supervise(stage, Strategy.REST_FOR_ONE, [log.spec("a"), slow, log.spec("c")])
    log.taken()
    await strike(stage, "sup/b")
    await gate.reached()
    assert log.taken() == "-c +b"
    await strike(stage, "sup/a")
    assert log.taken() == "!a +a +b +c"
    assert stage.system.counters[Count.INCIDENTS] == 2


async def test_a_failure_while_the_others_still_start_is_mended_meanwhile(stage: Stage, cast: Cast, log: Log) -> None:
    gate = Gate()
    slow = ChildSpec(name="slow", factory=cast(on_start=held_by(gate)), ready_timeout=INFINITY)
    starting = stage.background(supervise(stage, Strategy.ONE_FOR_ONE, [log.spec("a"), slow]))
    await gate.reached()
    await strike(stage, "sup/a")
    assert log.taken() == "+a !a +a"
    assert not starting.done()
    gate.open()
    await starting


async def test_rest_for_one_starts_over_when_an_earlier_child_fails_meanwhile(
    stage: Stage, cast: Cast, log: Log
) -> None:
    gate = Gate()
    slow = ChildSpec(name="slow", factory=cast(on_start=held_by(gate)), ready_timeout=INFINITY)
    starting = stage.background(supervise(stage, Strategy.REST_FOR_ONE, [log.spec("a"), slow]))
    await gate.reached()
    await strike(stage, "sup/a")
    await gate.reached(2)
    assert log.taken() == "+a !a +a"
    gate.open()
    await starting
    assert await incarnation(stage.ref("sup/a")) == 2


async def test_one_for_one_children_are_mended_side_by_side(stage: Stage, cast: Cast) -> None:
    long = Backoff(minimum=10.0, maximum=10.0, jitter=0.0)
    children = [ChildSpec(name=name, factory=cast.echo(), backoff=long) for name in "ab"]
    await supervise(stage, Strategy.ONE_FOR_ONE, children)
    await strike(stage, "sup/a")
    await stage.clock.advance(5.0)
    await strike(stage, "sup/b")
    await stage.clock.advance(5.0)
    assert await incarnation(stage.ref("sup/a")) == 2
    assert stage.system.snapshot()[-1].state is ActorState.BACKOFF
    await stage.clock.advance(5.0)
    assert await incarnation(stage.ref("sup/b")) == 2


async def test_stopping_does_not_wait_for_a_back_off(cast: Cast) -> None:
    async with Stage() as stage:
        spec = ChildSpec(name="a", factory=cast.echo(), backoff=Backoff(minimum=100.0, maximum=100.0))
        await supervise(stage, Strategy.ONE_FOR_ONE, [spec])
        await strike(stage, "sup/a")
        stage.ref("sup/a").tell(Say("never read"))
        await stage.system.stop()
        assert stage.clock.monotonic() == 0.0
        assert [letter.message for letter in stage.system.dead_letters] == [Say("never read")]


async def test_a_supervisor_may_have_a_pool_of_temporary_children(stage: Stage, log: Log, probe: Probe) -> None:
    pool = Supervisor(strategy=Strategy.ONE_FOR_ONE, children=[log.spec("a")])
    await stage.spawn(ChildSpec(name="sup", factory=lambda: pool))
    for name in ("x", "y"):
        probe.watch(await pool.spawn(log.spec(name)))
    assert list(pool.children) == ["a", "x", "y"]
    await strike(stage, "sup/x")
    assert (await probe.end_of("/stage/sup/x")).kind is CauseKind.FAILED
    assert list(pool.children) == ["a", "y"]
    pool.stop()
    await stage.ref("sup").stopped()
    assert log.taken() == "+a +x +y !x -y -a"


async def test_a_pool_of_temporary_children_below_any_actor(stage: Stage, cast: Cast) -> None:
    ended: list[Any] = []

    def heard_of(_: Any, terminated: Terminated) -> None:
        ended.append(terminated.address.name)

    async def spawn_many(actor: Any, message: object) -> Any:
        if message == "go":
            for n in range(50):
                await actor.spawn(ChildSpec(name=f"child-{n}", factory=cast.echo(), restart=Restart.PERMANENT))
        return list(actor.children)

    scripts: dict[str, Any] = {"on_message": spawn_many, "on_terminated": heard_of}
    ref = await stage.spawn(ChildSpec(name="pool", factory=Cast("loop")(**scripts)))
    assert await ref.ask("go", timeout=60.0) == [f"child-{n}" for n in range(50)]
    for n in range(0, 50, 2):
        stage.ref(f"pool/child-{n}").tell(Fail(BrokenError()))
    await stage.clock.settle()
    assert sorted(ended) == sorted(f"child-{n}" for n in range(0, 50, 2))
    assert await ref.ask("list", timeout=60.0) == [f"child-{n}" for n in range(1, 50, 2)]
    assert stage.system.counters[Count.RESTARTS] == 0


async def test_crashes_can_be_ordered(stage: Stage, cast: Cast) -> None:
    spec = crash_at(ChildSpec(name="a", factory=cast.echo(), backoff=AT_ONCE), 3)
    await supervise(stage, Strategy.ONE_FOR_ONE, [spec])
    ref = stage.ref("sup/a")
    assert [await ref.ask(n, timeout=1.0) for n in (1, 2)] == [1, 2]
    ref.tell(3)
    assert await incarnation(ref) == 2
    crash_now(stage.system, "/stage/sup/a")
    await stage.clock.settle()
    assert await incarnation(ref) == 3


async def test_restarts_show_for_as_long_as_they_count(stage: Stage, log: Log) -> None:
    await supervise(stage, Strategy.ONE_FOR_ONE, [log.spec("a")], budget=RestartBudget(window=10))
    await strike(stage, "sup/a", BrokenError("why"))
    status = stage.system.snapshot()[-1]
    assert (status.restarts, status.last_failure) == (1, "failed: BrokenError: why")
    await stage.clock.advance(10.0)
    assert stage.system.snapshot()[-1].restarts == 0


@pytest.mark.parametrize(
    ("children", "options", "problem"),
    [
        ([{"name": "a"}, {"name": "a"}], {}, "names of their own"),
        ([{"name": "a", "significant": True}], {"auto_shutdown": AutoShutdown.ANY_SIGNIFICANT}, "never end"),
        ([{"name": "a", "significant": True, "restart": Restart.TRANSIENT}], {}, "never end"),
    ],
)
def test_a_supervisor_that_makes_no_sense_is_refused(
    children: list[dict[str, Any]], options: dict[str, Any], problem: str
) -> None:
    specs = [ChildSpec(factory=Probe, **child) for child in children]
    with pytest.raises(ChildSpecError, match=problem):
        Supervisor(strategy=Strategy.ONE_FOR_ONE, children=specs, **options)


async def test_supervisors_understand_no_mail(stage: Stage, log: Log) -> None:
    ref = await trio(stage, log, Strategy.ONE_FOR_ONE)
    ref.tell(Who())
    await stage.clock.settle()
    assert stage.system.dead_letters.counts["unknown_message"] == 1


async def test_an_abandoned_life_takes_no_mail_from_the_next(stage: Stage, cast: Cast) -> None:
    never, handled = Gate(), []
    open_at_last: list[bool] = []

    def handle(actor: Any, message: object) -> Any:
        handled.append((actor.incarnation, message))
        while message == "hang" and not open_at_last:
            with contextlib.suppress(BaseException):
                yield never

    children = [
        ChildSpec(name="a", factory=cast.echo(), backoff=AT_ONCE),
        ChildSpec(name="b", factory=cast(on_message=handle), shutdown=1.0),
    ]
    await supervise(stage, Strategy.REST_FOR_ONE, children)
    stage.ref("sup/b").tell("hang")
    await never.reached()
    await strike(stage, "sup/a")
    await stage.clock.advance(2.0)
    assert stage.system.counters[Count.ABANDONED] == 1
    for n in range(3):
        stage.ref("sup/b").tell(n)
    open_at_last.append(True)
    never.open()
    await stage.clock.settle()
    assert handled == [(1, "hang"), (2, 0), (2, 1), (2, 2)]

"""An ask to an idle actor, and a start, run at once; nobody must be able to tell but by a stop-watch."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from openengine_sidecar.messages.signals import Cause, CauseKind
from openengine_sidecar.supervision import Actor, ActorGoneError, ChildSpec, Count
from openengine_sidecar.supervision._children import adopt
from openengine_sidecar.supervision.testing import Gate, Stage

COLOUR: ContextVar[str] = ContextVar("colour", default="none")


class BrokenError(Exception):
    pass


class Idle(Actor[str]):
    """Does what it is told, with a log of the steps of everybody."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate
        self.handled: list[str] = []
        self.interrupted = False

    async def on_start(self) -> None:
        COLOUR.set("mine")

    async def on_message(self, message: str) -> object:
        self.handled.append(message)
        match message:
            case "fail":
                raise BrokenError
            case "wait":
                await self._wait()
            case "swallow":
                await self._swallow()
            case "task":
                task = asyncio.current_task()
                return task.get_name() if task is not None else ""
            case "colour":
                return COLOUR.get()
            case "time out":
                return await self._time_out()
        return message

    async def _wait(self) -> None:
        try:
            await self.gate.passage()
        except asyncio.CancelledError:
            self.interrupted = True
            raise

    async def _swallow(self) -> None:
        try:
            await self.gate.passage()
        except asyncio.CancelledError:
            self.interrupted = True

    async def _time_out(self) -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "not at all"


@pytest.fixture
def gate() -> Gate:
    return Gate()


async def idle(stage: Stage, gate: Gate, **options: Any) -> tuple[Idle, Any]:
    actor = Idle(gate)
    ref = await stage.spawn(ChildSpec(name="a", factory=lambda: actor, **options))
    await stage.clock.settle()
    return actor, ref


async def test_an_idle_actor_answers_without_a_turn_of_the_loop(stage: Stage, gate: Gate) -> None:
    _, ref = await idle(stage, gate)
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    assert await ref.ask("x", timeout=1.0) == "x"
    assert turns == []


async def test_now_and_then_others_get_their_turn(stage: Stage, gate: Gate) -> None:
    actor, ref = await idle(stage, gate)
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(lambda: turns.append(len(actor.handled)))
    for _ in range(200):
        await ref.ask("x", timeout=1.0)
    assert len(turns) == 1
    assert turns[0] <= 64


async def test_an_actor_with_mail_waiting_takes_the_ask_in_turn(stage: Stage, gate: Gate) -> None:
    actor, ref = await idle(stage, gate)
    ref.tell("first")
    assert await ref.ask("second", timeout=1.0) == "second"
    assert actor.handled == ["first", "second"]


async def test_the_handler_runs_as_its_own_task_in_its_own_context(stage: Stage, gate: Gate) -> None:
    _, ref = await idle(stage, gate)
    asker = asyncio.current_task()
    COLOUR.set("the asker's")
    assert await ref.ask("task", timeout=1.0) == "/stage/a"
    assert await ref.ask("colour", timeout=1.0) == "mine"
    assert asyncio.current_task() is asker
    assert COLOUR.get() == "the asker's"


async def _value(asked: Any) -> Any:
    return await asked


async def test_time_outs_inside_the_handler_are_its_own(stage: Stage, gate: Gate) -> None:
    _, ref = await idle(stage, gate)
    async with asyncio.timeout(30.0):
        assert await ref.ask("time out", timeout=1.0) == "timed out"
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_a_handler_that_waits_is_finished_by_its_own_task(stage: Stage, gate: Gate) -> None:
    actor, ref = await idle(stage, gate)
    waiting = stage.background(_value(ref.ask("wait", timeout=60.0)))
    await gate.reached()
    behind = ref.ask("behind", timeout=60.0)
    await stage.clock.settle()
    assert actor.handled == ["wait"]
    gate.open()
    assert await waiting == "wait"
    assert await behind == "behind"


async def test_a_handler_that_fails_at_once_ends_its_actor(stage: Stage, gate: Gate) -> None:
    _, ref = await idle(stage, gate)
    with pytest.raises(BrokenError):
        await ref.ask("fail", timeout=1.0)
    later = ref.ask("later", timeout=60.0)
    with pytest.raises(ActorGoneError):
        await later
    assert isinstance((await ref.stopped()).error, BrokenError)


async def test_a_handler_that_fails_at_once_may_cost_no_more_than_the_message(stage: Stage, gate: Gate) -> None:
    _, ref = await idle(stage, gate, resume=(BrokenError,))
    with pytest.raises(BrokenError):
        await ref.ask("fail", timeout=1.0)
    assert await ref.ask("fine", timeout=1.0) == "fine"
    assert stage.system.counters[Count.RESUMED] == 1


@pytest.mark.parametrize("message", ["wait", "swallow"])
async def test_a_handler_is_interrupted_even_before_its_task_took_over(stage: Stage, gate: Gate, message: str) -> None:
    actor, ref = await idle(stage, gate)
    asked = ref.ask(message, timeout=60.0)
    waiting = stage.background(_value(asked))
    await asyncio.sleep(0)
    assert actor.handled == [message]
    host = stage.system.host_at("/stage/a")
    assert host is not None
    host.conclude(Cause.of(BrokenError()))
    assert isinstance((await ref.stopped()).error, BrokenError)
    assert actor.interrupted
    if message == "wait":
        with pytest.raises(ActorGoneError):
            await waiting
    else:
        assert await waiting == "swallow"


async def test_askers_in_a_long_row_do_not_sink_the_stack(stage: Stage) -> None:
    class Link(Actor[int]):
        async def on_message(self, message: int) -> int:
            reply: int = await stage.ref(str(message - 1)).ask(message - 1, timeout=60.0) if message else 0
            return reply + 1

    for number in range(200):
        await stage.spawn(ChildSpec(name=str(number), factory=Link))
    await stage.clock.settle()
    assert await stage.ref("199").ask(199, timeout=60.0) == 200


async def test_a_start_that_is_called_off_before_its_first_step_never_enters_the_actor(stage: Stage) -> None:
    started: list[str] = []

    class Eager(Actor[str]):
        async def on_start(self) -> None:
            started.append("on_start")

        async def on_stop(self, cause: Cause) -> None:
            started.append(f"on_stop {cause}")

    parent = await stage.probe("parent")
    host = stage.system.host_at(parent.path)
    assert host is not None
    cell = adopt(host, ChildSpec(name="child", factory=Eager), follows=False)
    life = cell.launch()
    life.request_stop("never mind")
    assert await life.task == Cause(CauseKind.STOPPED, "never mind")
    assert started == []


async def test_a_start_that_is_called_off_while_it_waits_still_cleans_up(stage: Stage, gate: Gate) -> None:
    log: list[Any] = []

    class Slow(Actor[str]):
        async def on_start(self) -> None:
            try:
                await gate.passage()
            finally:
                log.append("interrupted")

        async def on_stop(self, cause: Cause) -> None:
            log.append(cause.kind)

    parent = await stage.probe("parent")
    host = stage.system.host_at(parent.path)
    assert host is not None
    cell = adopt(host, ChildSpec(name="child", factory=Slow), follows=False)
    life = cell.launch()
    life.start_now()
    assert life.entered
    life.request_stop("never mind")
    await life.task
    assert log == ["interrupted", CauseKind.STOPPED]

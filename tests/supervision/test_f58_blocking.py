"""No call inside an actor may wait for that actor, or for ever."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from openengine_sidecar.supervision import (
    Actor,
    AskDeadlockError,
    AskTimeoutError,
    BlockingCallError,
    ChildSpec,
    Ref,
    Restart,
    Strategy,
    Supervisor,
    ThreadActor,
)
from openengine_sidecar.supervision.testing import Gate, Stage
from tests.supervision.cast import Cast, Say


async def test_f58_asking_oneself_in_a_handler_raises(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(
        ChildSpec(name="a", factory=cast(on_message=lambda actor, _: actor.ref.ask("me", timeout=60.0)))
    )
    with pytest.raises(AskDeadlockError, match="/stage/a -> /stage/a"):
        await ref.ask("go", timeout=60.0)
    assert stage.clock.monotonic() == 0.0


async def test_f58_asking_oneself_in_on_start_raises_and_start_up_finishes(stage: Stage, cast: Cast) -> None:
    factory = cast(on_start=lambda actor: actor.ref.ask("me", timeout=60.0))
    with pytest.raises(AskDeadlockError):
        await stage.spawn(ChildSpec(name="a", factory=factory, ready_timeout=2.0))
    assert stage.clock.monotonic() == 0.0


async def test_f58_asking_oneself_by_path_raises_too(stage: Stage, cast: Cast) -> None:
    factory = cast(on_message=lambda actor, _: actor.system.ref("/stage/a").ask("me", timeout=60.0))
    ref = await stage.spawn(ChildSpec(name="a", factory=factory))
    with pytest.raises(AskDeadlockError):
        await ref.ask("go", timeout=60.0)


async def test_f58_stopping_oneself_in_on_start_finishes_the_start(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_start=lambda actor: actor.stop()), ready_timeout=2.0))
    assert (await ref.stopped()).normal
    assert stage.clock.monotonic() == 0.0


async def test_f58_a_background_task_may_ask_its_own_actor(stage: Stage) -> None:
    class Asks(Actor[object]):
        async def on_message(self, message: object) -> object:
            return self.background(self._ask(), name="ask") if message == "go" else message

        async def _ask(self) -> object:
            return await self.ref.ask("me", timeout=60.0)

    ref = await stage.spawn(ChildSpec(name="a", factory=Asks))
    assert await ref.ask("go", timeout=60.0) == "me"


async def test_f58_get_raises_at_once_on_a_loop_even_with_the_reply_there(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    asked = ref.ask(Say("x"), timeout=60.0)
    with pytest.raises(BlockingCallError, match="await it"):
        asked.get()
    assert await asked == "x"
    with pytest.raises(BlockingCallError):
        asked.get(timeout=1.0)


async def test_f58_get_raises_at_once_inside_a_handler_on_the_loop(stage: Stage) -> None:
    class Blocks(Actor[Ref[Any]]):
        async def on_message(self, message: Ref[Any]) -> object:
            return message.ask("x", timeout=60.0).get()

    other = await stage.spawn(ChildSpec(name="other", factory=Cast("loop").echo()))
    ref = await stage.spawn(ChildSpec(name="a", factory=Blocks))
    with pytest.raises(BlockingCallError):
        await ref.ask(other, timeout=60.0)
    assert stage.clock.monotonic() == 0.0


async def test_f58_every_ask_has_a_timeout(stage: Stage, cast: Cast) -> None:
    parameter = inspect.signature(Ref.ask).parameters["timeout"]
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    assert parameter.default is inspect.Parameter.empty
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    with pytest.raises(TypeError, match="timeout"):
        ref.ask(Say("x"))  # type: ignore[call-arg]


async def test_f58_a_thread_blocked_in_get_is_freed_by_the_asks_own_timeout(stage: Stage) -> None:
    gate = Gate()
    silent = await stage.spawn(ChildSpec(name="silent", factory=Cast("loop")(on_message=lambda *_: _held(gate))))

    class Asks(ThreadActor[str]):
        def on_message(self, message: str) -> object:
            return silent.ask(message, timeout=5.0).get()

    ref = await stage.spawn(ChildSpec(name="a", factory=Asks))
    asked = stage.background(_value(ref.ask("x", timeout=60.0)))
    await gate.reached()
    await stage.clock.advance(5.0)
    with pytest.raises(AskTimeoutError, match="/stage/silent"):
        await asked


async def _held(gate: Gate) -> None:
    await gate.passage()


async def _value(asked: Any) -> Any:
    return await asked


async def test_f58_threads_that_would_wait_for_each_other_are_told(stage: Stage) -> None:
    class Asks(ThreadActor[str]):
        def on_message(self, message: str) -> object:
            return stage.ref(message).ask("a", timeout=60.0).get()

    await stage.spawn(ChildSpec(name="a", factory=Asks))
    await stage.spawn(ChildSpec(name="b", factory=Asks))
    with pytest.raises(AskDeadlockError):
        await stage.ref("a").ask("b", timeout=60.0)
    assert stage.clock.monotonic() == 0.0


async def test_f58_blocking_services_of_a_thread_actor_raise_on_the_loop(stage: Stage) -> None:
    actor = Cast("thread").echo()()
    await stage.spawn(ChildSpec(name="a", factory=lambda: actor))
    with pytest.raises(BlockingCallError):
        actor.spawn(ChildSpec(name="child", factory=Cast("loop").echo()))


async def test_f58_a_tree_whose_actors_stop_and_ask_themselves_starts_up(stage: Stage, cast: Cast) -> None:
    def quits(actor: Any) -> None:
        actor.stop()

    children = [
        ChildSpec(name="quits", factory=cast(on_start=quits), restart=Restart.TRANSIENT),
        ChildSpec(name="echo", factory=cast.echo()),
    ]
    await stage.spawn(
        ChildSpec(
            name="sup",
            factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=children),
            ready_timeout=2.0,
        )
    )
    await stage.clock.settle()
    assert await stage.ref("sup/echo").ask(Say("up"), timeout=1.0) == "up"
    assert stage.clock.monotonic() == 0.0


async def test_f58_blocking_the_loop_of_another_thread_raises_as_well(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))

    async def elsewhere() -> None:
        with pytest.raises(BlockingCallError):
            ref.ask(Say("x"), timeout=60.0).get()

    await asyncio.to_thread(lambda: asyncio.run(elsewhere()))

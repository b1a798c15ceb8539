from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from openengine_sidecar.messages.signals import Terminated
from openengine_sidecar.supervision import Actor, ActorGoneError, ChildSpec, LoopClock
from openengine_sidecar.supervision.testing import (
    Gate,
    InjectedError,
    Probe,
    Stage,
    VirtualClock,
    crash_now,
)
from tests.supervision.cast import Cast, Say, held_by


async def test_a_virtual_clock_stands_still() -> None:
    clock = VirtualClock(now=100.0)
    fired: list[float] = []
    clock.call_at(101.0, lambda: fired.append(clock.monotonic()))
    for _ in range(50):
        await asyncio.sleep(0)
    assert clock.monotonic() == 100.0
    assert fired == []


async def test_timers_fire_in_order_each_at_its_moment() -> None:
    clock = VirtualClock()
    fired: list[Any] = []
    for when in (3.0, 1.0, 2.0, 1.0):
        clock.call_at(when, lambda when=when: fired.append((when, clock.monotonic())))
    called_off = clock.call_at(1.5, fired.append, "called off")
    called_off.cancel()
    clock.call_at(0.0, fired.append, "at once")
    await clock.advance(2.5)
    assert fired == ["at once", (1.0, 1.0), (1.0, 1.0), (2.0, 2.0)]
    assert clock.monotonic() == 2.5
    assert clock.next_timer == 3.0


async def test_what_a_timer_sets_off_happens_before_time_goes_on() -> None:
    clock = VirtualClock()
    seen: list[float] = []

    async def chain() -> None:
        for _ in range(3):
            await clock.sleep(1.0)
            for _ in range(5):
                await asyncio.sleep(0)
            seen.append(clock.monotonic())

    task = asyncio.ensure_future(chain())
    await clock.advance(10.0)
    assert seen == [1.0, 2.0, 3.0]
    assert task.done()


async def test_a_clock_may_jump_by_itself_once_everybody_waits() -> None:
    clock = VirtualClock(auto_jump=True)

    async def sleeper(seconds: float) -> float:
        await clock.sleep(seconds)
        return clock.monotonic()

    assert tuple(await asyncio.gather(sleeper(1000.0), sleeper(5.0))) == (1000.0, 5.0)


async def test_a_clock_does_not_jump_while_a_thread_is_at_work() -> None:
    clock = VirtualClock(auto_jump=True)
    busy = [True]
    clock.attach(lambda: busy[0])
    sleeping = asyncio.ensure_future(clock.sleep(1.0))
    await asyncio.to_thread(lambda: None)
    assert not sleeping.done()
    busy[0] = False
    await sleeping
    assert clock.monotonic() == 1.0


async def test_sleeping_no_time_lets_others_run() -> None:
    clock = VirtualClock()
    ran: list[int] = []
    asyncio.get_running_loop().call_soon(ran.append, 1)
    await clock.sleep(0.0)
    assert ran == [1]


async def test_a_cancelled_sleep_leaves_no_timer() -> None:
    clock = VirtualClock()
    sleeping = asyncio.ensure_future(clock.sleep(5.0))
    await asyncio.sleep(0)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert clock.next_timer is None
    assert await clock.advance_to_next_timer() == 0.0


def test_a_virtual_clock_needs_a_loop_it_can_look_into() -> None:
    uvloop = pytest.importorskip("uvloop")
    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(TypeError, match="one of asyncio's own event loops"),
    ):
        runner.run(VirtualClock().settle())


async def test_the_clock_of_a_loop_is_its_own() -> None:
    clock, loop = LoopClock(), asyncio.get_running_loop()
    before = loop.time()
    fired: asyncio.Future[None] = loop.create_future()
    clock.call_at(clock.monotonic(), fired.set_result, None)
    clock.attach(lambda: True)
    await clock.sleep(0.0)
    await fired
    assert before <= clock.monotonic() <= loop.time()


async def test_a_probe_insists_on_what_it_expects(stage: Stage, probe: Probe) -> None:
    probe.ref.tell(Say("one"))
    assert await probe.next(Say) == Say("one")
    probe.ref.tell(Say("two"))
    with pytest.raises(AssertionError, match="expected int, heard Say"):
        await probe.next(int)
    with pytest.raises(TimeoutError):
        await probe.next(Say, timeout=0.0)
    other = await stage.probe("other")
    probe.watch(other.ref)
    other.stop()
    with pytest.raises(AssertionError, match="expected the end of /stage/wrong"):
        await probe.end_of("/stage/wrong")
    assert [type(heard) for heard in probe.heard] == [Say, Say, Terminated]


async def test_a_gate_holds_and_counts_whoever_comes(stage: Stage, cast: Cast) -> None:
    gate = Gate()
    refs = [await stage.spawn(ChildSpec(name=name, factory=cast(on_message=held_by(gate)))) for name in "abc"]
    for ref in refs:
        ref.tell(Say("come"))
    await gate.reached(3)
    await gate.reached(2)
    asked = [ref.ask(Say("wait"), timeout=60.0) for ref in refs]
    await stage.clock.settle()
    assert not any(one.done for one in asked)
    gate.open()
    for one in asked:
        assert await one is None


async def test_nobody_can_be_crashed_where_nobody_lives(stage: Stage, cast: Cast) -> None:
    with pytest.raises(ActorGoneError):
        crash_now(stage.system, "/stage/nobody")
    gate = Gate()
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=held_by(gate))))
    ref.tell(Say("busy"))
    await gate.reached()
    crash_now(stage.system, "/stage/a")
    assert isinstance((await ref.stopped()).error, InjectedError)


class Relay(Actor[int]):
    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self._order = order

    async def on_message(self, message: int) -> None:
        self._order.append(f"{self.name}{message}")


async def _interleaving(seed: int | None) -> list[str]:
    order: list[str] = []
    async with Stage(seed=seed) as stage:
        refs = [await stage.spawn(ChildSpec(name=name, factory=lambda: Relay(order))) for name in "abc"]
        for n, ref in itertools.product(range(4), refs):
            ref.tell(n)
        await stage.clock.settle()
    return order


async def test_the_same_seed_gives_the_same_interleaving() -> None:
    seen = {seed: await _interleaving(seed) for seed in range(8)}
    for seed, order in seen.items():
        assert await _interleaving(seed) == order
        for name in "abc":
            assert [step for step in order if step[0] == name] == [f"{name}{n}" for n in range(4)]
    assert len({tuple(order) for order in seen.values()}) > 4


async def test_without_a_seed_the_loop_decides() -> None:
    order = await _interleaving(None)
    assert order == [f"{name}{n}" for name in "abc" for n in range(4)]


async def test_a_seed_decides_over_back_off_too() -> None:
    async with Stage(seed=3) as one, Stage(seed=3) as two, Stage(seed=4) as three:
        draws = [stage.system.random.random() for stage in (one, two, three)]
    assert draws[0] == draws[1] != draws[2]

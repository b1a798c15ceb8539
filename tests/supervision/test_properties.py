from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from loguru import logger

from openengine_sidecar.messages.signals import Cause, Drain
from openengine_sidecar.supervision import (
    ActorGoneError,
    AskFuture,
    AskTimeoutError,
    Backoff,
    ChildSpec,
    Restart,
    RestartBudget,
    Strategy,
    Supervisor,
)
from openengine_sidecar.supervision.testing import Gate, Stage
from tests.supervision.cast import Cast, Fail, Say, Script
from tests.supervision.model import FAILED, FATAL, NORMAL, Leaf, Model, Node, Sup

LONG = os.environ.get("OPENENGINE_TESTS") == "long"
WINDOW = 10.0
AT_ONCE = Backoff(minimum=0.0, maximum=0.0)
HUNG_COSTS = 1.5


class BrokenError(Exception):
    pass


restarts = st.sampled_from([Restart.PERMANENT, Restart.PERMANENT, Restart.TRANSIENT, Restart.TEMPORARY])


@st.composite
def leaves(draw: st.DrawFn, name: str) -> Leaf:
    return Leaf(name, restart=draw(restarts), thread=draw(st.integers(0, 7)) == 0)


@st.composite
def supervisors(draw: st.DrawFn, name: str, depth: int) -> Sup:
    children: list[Node] = []
    for index in range(draw(st.integers(1, 4))):
        child = f"{name}{index}"
        if depth and draw(st.integers(0, 2)) == 0:
            children.append(draw(supervisors(child, depth - 1)))
        else:
            children.append(draw(leaves(child)))
    return Sup(name, draw(st.sampled_from(list(Strategy))), draw(st.integers(0, 3)), children)


class Asked:
    """An ask under way, and what it may end with."""

    def __init__(self, reply: AskFuture[Any], text: str) -> None:
        self.text = text
        self.outcomes: list[object] = []
        self._task = asyncio.ensure_future(self._wait(reply))

    async def _wait(self, reply: AskFuture[Any]) -> None:
        try:
            self.outcomes.append(await reply)
        except (ActorGoneError, AskTimeoutError) as error:
            self.outcomes.append(error)


class Supervision(RuleBasedStateMachine):
    """Does the same to a tree of actors and to a plain model, and compares what comes of it."""

    def __init__(self) -> None:
        super().__init__()
        logger.disable("openengine_sidecar.supervision")
        self.runner = asyncio.Runner()
        self.events: list[str] = []
        self.living: Counter[str] = Counter()
        self.handled: dict[str, list[str]] = defaultdict(list)
        self.asked: list[Asked] = []
        self.hung: set[str] = set()
        self.drain_times: dict[str, float] = {}
        self.told = 0
        self.ended: set[Any] = set()
        self.failing: dict[str, int] = {}
        self.over = False

    # The tree.

    @initialize(root=supervisors("top", 2), seed=st.integers(0, 2**32))
    def build(self, root: Sup, seed: int) -> None:
        self.model = Model(root, WINDOW)
        self.never = Gate()
        self.runner.run(self._build(root, seed))
        self.model.start()
        self.compare()

    async def _build(self, root: Sup, seed: int) -> None:
        self.stage = Stage(seed=seed)
        await self.stage.__aenter__()
        self.probe = await self.stage.probe()
        await self.stage.spawn(self.spec(root))
        for leaf in self.model.leaves():
            self.probe.watch(self.stage.system.ref(leaf.path))
        await self.stage.clock.settle()

    def spec(self, node: Node) -> ChildSpec:
        if isinstance(node, Leaf):
            scripts: dict[str, Script] = {
                "on_start": self.on_start,
                "on_message": self.on_message,
                "on_stop": self.on_stop,
            }
            if not node.thread:
                scripts["on_drain"] = self.on_drain
            factory = Cast("thread" if node.thread else "loop")(**scripts)
            return ChildSpec(name=node.name, factory=factory, restart=node.restart, backoff=AT_ONCE)
        children = [self.spec(child) for child in node.children]
        return ChildSpec(
            name=node.name,
            factory=lambda: Supervisor(
                strategy=node.strategy,
                children=children,
                budget=RestartBudget(max_restarts=node.max_restarts, window=WINDOW),
            ),
            restart=node.restart,
            backoff=AT_ONCE,
        )

    def on_start(self, actor: Any) -> None:
        self.events.append(f"+{actor.path}")
        self.living[actor.path] += 1
        assert self.living[actor.path] == 1, "two lives at one address"
        if self.failing.get(actor.path, 0):
            self.failing[actor.path] -= 1
            raise BrokenError

    def on_message(self, actor: Any, message: object) -> Any:
        assert actor not in self.ended, "a message was handled after the end"
        match message:
            case Say("hang"):
                return self._hang(actor.path)
            case Say(text):
                self.handled[actor.path].append(text)
                return text
            case Fail(error):
                raise error
            case "end":
                actor.stop()
        return None

    def _hang(self, path: str) -> Any:
        self.hung.add(path)
        yield self.never

    def on_drain(self, actor: Any, drain: Drain) -> Any:
        assert drain.deadline <= self.deadline
        return actor.clock.sleep(self.drain_times.get(actor.path, 0.0))

    def on_stop(self, actor: Any, cause: Cause) -> None:
        self.events.append(f"{'!' if isinstance(cause.error, Exception) else '-'}{actor.path}")
        self.living[actor.path] -= 1
        self.ended.add(actor)

    # What is done to it.

    def living_leaf(self, index: int) -> Leaf | None:
        alive = [leaf for leaf in self.model.leaves() if leaf.alive]
        return alive[index % len(alive)] if alive else None

    @precondition(lambda self: not self.over)
    @rule(
        index=st.integers(0, 99),
        kind=st.sampled_from([FAILED, FAILED, FAILED, NORMAL, FATAL]),
        failing=st.lists(st.tuples(st.integers(0, 99), st.integers(1, 2)), max_size=2),
        before=st.integers(0, 3),
        behind=st.integers(0, 3),
    )
    def end_one(self, index: int, kind: str, failing: list[tuple[int, int]], before: int, behind: int) -> None:
        leaf = self.living_leaf(index)
        if leaf is None:
            return
        everybody = self.model.leaves()
        for other, times in failing:
            victim = everybody[other % len(everybody)]
            victim.failing_starts = self.failing[victim.path] = times
        message: object = {FAILED: Fail(BrokenError()), FATAL: Fail(TypeError()), NORMAL: "end"}[kind]
        self.runner.run(self._around(leaf, message, before, behind))
        self.model.end(leaf, kind)
        for survivor in everybody:
            self.failing[survivor.path] = survivor.failing_starts
        self.over = not self.model.root.alive
        self.compare()

    async def _around(self, leaf: Leaf, message: object, before: int, behind: int) -> None:
        self._ask(leaf, before)
        self.stage.system.ref(leaf.path).tell(message)
        self._ask(leaf, behind)
        await self.stage.clock.settle()

    def _ask(self, leaf: Leaf, count: int) -> None:
        for _ in range(count):
            self.told += 1
            text = str(self.told)
            self.asked.append(Asked(self.stage.system.ref(leaf.path).ask(Say(text), timeout=1e6), text))

    @precondition(lambda self: not self.over)
    @rule(index=st.integers(0, 99), count=st.integers(1, 5))
    def mail(self, index: int, count: int) -> None:
        leaf = self.living_leaf(index)
        if leaf is not None:
            before = len(self.handled[leaf.path])
            self.runner.run(self._mail(leaf, count))
            assert len(self.handled[leaf.path]) == before + count

    async def _mail(self, leaf: Leaf, count: int) -> None:
        self._ask(leaf, count)
        await self.stage.clock.settle()

    @precondition(lambda self: not self.over)
    @rule(seconds=st.sampled_from([0.1, 3.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.runner.run(self.stage.clock.advance(seconds))
        self.model.now += seconds
        self.compare()

    @precondition(lambda self: not self.over)
    @rule(
        timeout=st.sampled_from([0.0, 1.0, 20.0]),
        times=st.lists(st.sampled_from([0.0, 0.5, 50.0]), min_size=1, max_size=4),
        hung=st.lists(st.integers(0, 99), max_size=2),
        hurry=st.sampled_from([None, None, 0.2, 100.0]),
    )
    def drain(self, timeout: float, times: list[float], hung: list[int], hurry: float | None) -> None:
        for index, leaf in enumerate(self.model.leaves()):
            self.drain_times[leaf.path] = times[index % len(times)]
        self.runner.run(self._drain(timeout, hung, hurry))
        self.model.stop()
        real, expected = self.taken(), self.model.taken()
        assert [event[1:] for event in real] == [event[1:] for event in expected], (real, expected)
        self.over = True

    async def _drain(self, timeout: float, hung: list[int], hurry: float | None) -> None:
        for index in hung:
            leaf = self.living_leaf(index)
            if leaf is not None:
                self.stage.system.ref(leaf.path).tell(Say("hang"))
        await self.stage.clock.settle()
        system, clock = self.stage.system, self.stage.clock
        self.deadline = clock.monotonic() + timeout
        draining = [asyncio.ensure_future(system.drain(timeout=timeout, reason="bye"))]
        if hurry is not None:
            draining.append(asyncio.ensure_future(system.drain(timeout=hurry, reason="hurry")))
            self.deadline = min(self.deadline, clock.monotonic() + hurry)
        clock.run_freely()
        await asyncio.gather(*draining)
        assert clock.monotonic() <= self.deadline + HUNG_COSTS * len(self.hung) + 1e-6

    @precondition(lambda self: not self.over)
    @rule()
    def stop(self) -> None:
        self.runner.run(self.stage.system.stop())
        self.model.stop()
        self.over = True
        self.compare()

    @precondition(lambda self: self.over)
    @rule()
    def nothing(self) -> None:
        assert self.events == []

    # What has to hold.

    def taken(self) -> list[str]:
        events, self.events = self.events, []
        return events

    def compare(self) -> None:
        real, expected = self.taken(), self.model.taken()
        assert real == expected, (real, expected)

    @invariant()
    def the_same_actors_live(self) -> None:
        if hasattr(self, "model"):
            alive = {leaf.path for leaf in self.model.leaves() if leaf.alive}
            assert {path for path, lives in self.living.items() if lives} == alive

    @invariant()
    def mail_was_handled_in_order(self) -> None:
        for texts in self.handled.values():
            assert texts == sorted(texts, key=int)

    def teardown(self) -> None:
        if hasattr(self, "stage"):
            self.never.open()
            self.runner.run(self.stage.__aexit__(None, None, None))
            for asked in self.asked:
                assert len(asked.outcomes) == 1, "an ask has exactly one outcome"
                if isinstance(asked.outcomes[0], str):
                    assert asked.outcomes[0] == asked.text
            assert not any(self.living.values())
            assert not self.stage.system.threads
        self.runner.close()
        logger.enable("openengine_sidecar.supervision")


Supervision.TestCase.settings = settings(
    max_examples=1500 if LONG else 60,
    derandomize=not LONG,
    stateful_step_count=40 if LONG else 12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestSupervision = Supervision.TestCase

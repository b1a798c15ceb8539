from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from openengine_sidecar.actors.lora.steps import Phase, Report
from tests.lora.world import World

pytestmark = pytest.mark.timeout(600)

LONG = os.environ.get("OPENENGINE_TESTS") == "long"
NAMES = st.sampled_from(["a", "b"])
URIS = st.sampled_from(["one", "two"])


class Adapters(RuleBasedStateMachine):
    """Everything that can happen to two adapters, in any order, well or badly."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World().up()
        self.asked: set[int] = set()

    @rule(name=NAMES, uri=URIS)
    def load(self, name: str, uri: str) -> None:
        self.asked.add(self.world.load(name, f"s3://b/{name}-{uri}"))

    @rule(name=NAMES)
    def unload(self, name: str) -> None:
        self.asked.add(self.world.unload(name))

    @precondition(lambda self: self.world.orders)
    @rule(data=st.data(), ok=st.booleans(), happens=st.booleans(), sure=st.booleans())
    def step(self, data: st.DataObject, *, ok: bool, happens: bool, sure: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.orders)))
        self.world.step(name, ok=ok, happens=happens, sure=sure)

    @precondition(lambda self: self.world.orders)
    @rule()
    def settle(self) -> None:
        self.world.settle()

    @precondition(lambda self: self.world.connected)
    @rule(restarts=st.booleans())
    def engine_lost(self, *, restarts: bool) -> None:
        self.world.down(restarts=restarts)

    @precondition(lambda self: not self.world.connected)
    @rule()
    def engine_back(self) -> None:
        self.world.up()

    @precondition(lambda self: self.world.connected)
    @rule()
    def worker_restarts(self) -> None:
        """A new table knows nothing; cards and leases went with the old process, its callers too."""
        before = self.world
        self.world = World(engine=before.engine)
        self.asked.clear()
        self.world.up()

    @invariant()
    def what_is_live_can_be_used(self) -> None:
        world = self.world
        for view in world.table.views():
            if world.table.is_live(view.name):
                assert world.connected
                assert view.adapter is not None
                assert world.engine[view.name] == view.adapter
                assert view.name in world.cards
                assert (view.name, view.adapter.path) in world.leases

    @invariant()
    def leases_are_of_adapters_that_may_be_used(self) -> None:
        views = {view.name: view for view in self.world.table.views()}
        for name, _ in self.world.leases:
            assert views[name].phase is not Phase.ABSENT
        for name in {name for name, _ in self.world.leases}:
            assert sum(1 for held, _ in self.world.leases if held == name) == 1

    def teardown(self) -> None:
        """In the end, everybody was told, and there is one truth."""
        world = self.world
        world.settle()
        if not world.connected:
            world.up()
        world.settle()
        assert {view.phase for view in world.table.views()} <= {Phase.LIVE, Phase.FAILED}
        assert self.asked <= set(world.told)
        live = {view.name for view in world.table.views() if world.table.is_live(view.name)}
        failed = {view.name for view in world.table.views() if view.phase is Phase.FAILED}
        assert live <= set(world.engine)
        assert set(world.engine) - live <= failed | _reported(world.reports, "not adopted")
        assert live <= world.cards
        assert world.cards - live <= _reported(world.reports, "its card may stand")
        assert {name for name, _ in world.leases} == {view.name for view in world.table.views() if view.adapter}


def _reported(reports: list[Report], text: str) -> set[str]:
    return {report.name for report in reports if text in report.problem}


Adapters.TestCase.settings = settings(
    max_examples=2000 if LONG else 120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAdapters = Adapters.TestCase

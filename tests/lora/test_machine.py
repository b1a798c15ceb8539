from __future__ import annotations

import pytest

from openengine_sidecar.actors.lora.ids import lora_name_to_id
from openengine_sidecar.actors.lora.machine import AdapterMachine, IllegalEventError
from openengine_sidecar.actors.lora.steps import (
    EngineFailed,
    EngineLoaded,
    EngineRefused,
    EngineUnloaded,
    Fetch,
    LoadEngine,
    Phase,
    Publish,
    Published,
    PublishFailed,
    Quiesce,
    UnloadEngine,
    Withdraw,
    WithdrawFailed,
)
from openengine_sidecar.actors.lora.table import LoraTable
from tests.lora.world import World, adapter, path_of


@pytest.fixture
def world() -> World:
    return World().up()


@pytest.fixture
def live(world: World) -> World:
    world.load("a")
    world.settle()
    world.log.clear()
    return world


def phase(world: World, name: str = "a") -> Phase:
    return next((view.phase for view in world.table.views() if view.name == name), Phase.ABSENT)


def problem(world: World, caller: int) -> str:
    answer = world.told[caller]
    assert not answer.ok
    return str(answer.message)


def is_gone(world: World, name: str = "a") -> bool:
    return (
        phase(world, name) is Phase.ABSENT
        and name not in world.engine
        and name not in world.cards
        and not any(held == name for held, _ in world.leases)
    )


def test_c47_a_load_is_fetched_then_loaded_then_shown(world: World) -> None:
    caller = world.load("a")
    phases = []
    while "a" in world.orders:
        phases.append(phase(world))
        assert "a" not in world.cards
        assert not world.table.is_live("a")
        world.step("a")
    assert phases == [Phase.FETCHING, Phase.LOADING, Phase.LOADING]
    assert world.log == ["Fetch a", "LoadEngine a", "Publish a"]
    assert world.table.is_live("a")
    assert (world.engine["a"], world.cards) == (adapter("a"), {"a"})
    answer = world.told[caller]
    assert (answer.ok, answer.lora_name, answer.lora_id) == (True, "a", lora_name_to_id("a"))


@pytest.mark.parametrize("happens", [False, True])
def test_c47_a_card_that_cannot_be_published_undoes_the_load(world: World, *, happens: bool) -> None:
    caller = world.load("a")
    world.step("a")
    world.step("a")
    world.step("a", ok=False, happens=happens)
    world.settle()
    assert world.log == ["Fetch a", "LoadEngine a", "Publish a", "Withdraw a", "UnloadEngine a"]
    assert problem(world, caller) == "publish failed"
    assert is_gone(world)


def test_c47_a_load_that_can_neither_be_shown_nor_undone_has_failed(world: World) -> None:
    caller = world.load("a")
    world.step("a")
    world.step("a")
    world.step("a", ok=False)
    world.step("a")
    world.step("a", ok=False)
    assert problem(world, caller) == "publish failed; then the engine could not be cleaned: engine failed"
    assert phase(world) is Phase.FAILED
    assert not world.table.is_live("a")
    assert world.leases == {("a", path_of("s3://b/a"))}
    assert [report.name for report in world.reports] == ["a"]


def test_c48_the_same_load_again_asks_nobody(live: World) -> None:
    answer = live.told[live.load("a")]
    assert (answer.ok, answer.lora_id) == (True, lora_name_to_id("a"))
    assert live.log == []


def test_c48_another_source_under_a_live_name_is_a_conflict_and_changes_nothing(live: World) -> None:
    before = live.table.views()
    assert problem(live, live.load("a", "s3://b/other")) == "conflict: it is loaded from s3://b/a; unload it first"
    assert (live.log, live.table.views()) == ([], before)


@pytest.mark.parametrize("refusal", ["conflict", "adapters are switched off"])
def test_c48_what_the_engine_refuses_leaves_nothing(world: World, refusal: str) -> None:
    caller = world.load("a")
    world.step("a")
    world.answer("a", EngineRefused(refusal))
    assert problem(world, caller) == refusal
    assert is_gone(world)
    assert world.orders == {}


def test_c48_an_engine_without_the_feature_is_not_asked_again(world: World) -> None:
    world.load("a")
    world.step("a")
    world.answer("a", EngineRefused("UNIMPLEMENTED", featureless=True))
    world.log.clear()
    for caller in (world.load("a"), world.load("b"), world.unload("c")):
        assert problem(world, caller) == "the engine has no adapters: UNIMPLEMENTED"
    assert world.log == []
    world.down()
    world.up()
    world.load("a")
    assert world.log == ["Fetch a"]


@pytest.mark.parametrize("happens", [False, True])
def test_c51_a_load_that_nobody_knows_the_end_of_is_undone(world: World, *, happens: bool) -> None:
    caller = world.load("a")
    world.step("a")
    world.step("a", ok=False, happens=happens)
    assert world.orders["a"] == UnloadEngine("a")
    world.settle()
    assert problem(world, caller) == "engine failed"
    assert is_gone(world)


def test_a_fetch_that_fails_reaches_no_engine(world: World) -> None:
    caller = world.load("a")
    world.step("a", ok=False)
    assert problem(world, caller) == "fetch failed"
    assert world.log == ["Fetch a"]
    assert is_gone(world)


def test_an_unload_withdraws_then_waits_then_unloads(live: World) -> None:
    caller = live.unload("a")
    assert not live.table.is_live("a")
    while "a" in live.orders:
        assert phase(live) is Phase.UNLOADING
        live.step("a")
    assert live.log == ["Withdraw a", "Quiesce a", "UnloadEngine a"]
    assert live.told[caller].message == "unloaded"
    assert is_gone(live)


def test_c50_an_adapter_that_the_engine_no_longer_holds_is_forgotten_and_the_caller_told(live: World) -> None:
    del live.engine["a"]
    caller = live.unload("a")
    live.settle()
    assert problem(live, caller).startswith("not found")
    assert is_gone(live)


def test_c50_an_unknown_adapter_is_looked_for_at_the_engine(world: World) -> None:
    caller = world.unload("a")
    world.settle()
    assert problem(world, caller).startswith("not found")
    assert world.log == ["UnloadEngine a"]
    assert is_gone(world)


def test_an_adapter_that_somebody_else_loaded_can_be_unloaded(world: World) -> None:
    world.engine["a"] = adapter("a")
    caller = world.unload("a")
    world.settle()
    assert world.told[caller].message == "unloaded"
    assert world.engine == {}


def test_c50_a_card_that_cannot_be_withdrawn_stands_again(live: World) -> None:
    caller = live.unload("a")
    live.step("a", ok=False, happens=True)
    assert live.orders["a"] == Publish(adapter("a"))
    live.settle()
    assert problem(live, caller) == "withdraw failed"
    assert live.table.is_live("a")
    assert (live.cards, list(live.engine)) == ({"a"}, ["a"])


def test_c50_an_entry_that_can_be_neither_withdrawn_nor_restored_is_dropped(live: World) -> None:
    caller = live.unload("a")
    live.step("a", ok=False, happens=True)
    live.step("a", ok=False)
    live.settle()
    assert problem(live, caller) == "withdraw failed; then its card could not be published again: publish failed"
    assert is_gone(live)


@pytest.mark.parametrize(("sure", "orders"), [(True, ["Publish a"]), (False, ["LoadEngine a", "Publish a"])])
def test_c50_an_unload_that_the_engine_fails_is_undone(live: World, *, sure: bool, orders: list[str]) -> None:
    caller = live.unload("a")
    live.step("a")
    live.step("a")
    live.log.clear()
    live.step("a", ok=False, happens=not sure, sure=sure)
    live.settle()
    assert live.log == orders
    assert problem(live, caller) == f"engine {'refused' if sure else 'failed'}"
    assert live.table.is_live("a")
    assert (live.cards, live.engine) == ({"a"}, {"a": adapter("a")})


def test_c50_an_unload_that_can_be_neither_done_nor_undone_has_failed(live: World) -> None:
    caller = live.unload("a")
    live.step("a")
    live.step("a")
    live.step("a", ok=False)
    live.step("a", ok=False)
    assert problem(live, caller) == "engine failed; then it could not be loaded again: engine failed"
    assert phase(live) is Phase.FAILED
    assert live.cards == set()


@pytest.fixture
def failed(live: World) -> World:
    live.unload("a")
    live.step("a")
    live.step("a")
    live.step("a", ok=False)
    live.step("a", ok=False)
    live.log.clear()
    return live


def test_a_failed_adapter_is_cleaned_before_it_is_loaded_again(failed: World) -> None:
    caller = failed.load("a", "s3://b/other")
    failed.settle()
    assert failed.log == ["UnloadEngine a", "Fetch a", "LoadEngine a", "Publish a"]
    assert failed.told[caller].ok
    assert failed.engine == {"a": adapter("a", "s3://b/other")}
    assert failed.leases == {("a", path_of("s3://b/other"))}


@pytest.mark.parametrize("ask", ["load", "unload"])
def test_a_failed_adapter_stays_so_while_the_engine_fails(failed: World, ask: str) -> None:
    caller = getattr(failed, ask)("a")
    failed.step("a", ok=False)
    assert problem(failed, caller) == "engine failed"
    assert phase(failed) is Phase.FAILED


def test_a_failed_adapter_can_be_unloaded(failed: World) -> None:
    caller = failed.unload("a")
    failed.settle()
    assert failed.told[caller].message == "unloaded"
    assert is_gone(failed)


def test_f27_twenty_concurrent_loads_are_one_of_everything(world: World) -> None:
    callers = [world.load("a") for _ in range(20)]
    world.settle()
    assert world.log == ["Fetch a", "LoadEngine a", "Publish a"]
    assert all(world.told[caller].ok for caller in callers)


@pytest.mark.parametrize("steps", [1, 2])
def test_f27_loads_join_at_any_moment(world: World, steps: int) -> None:
    callers = [world.load("a")]
    for _ in range(steps):
        world.step("a")
        callers.append(world.load("a"))
    world.settle()
    assert world.calls(LoadEngine, "a") == 1
    assert {world.told[caller].message for caller in callers} == {"loaded"}


def test_f27_loads_that_join_a_failing_one_are_told_the_same(world: World) -> None:
    callers = [world.load("a") for _ in range(3)]
    world.step("a")
    world.step("a", ok=False, sure=True)
    assert {problem(world, caller) for caller in callers} == {"engine refused"}
    assert world.calls(Fetch, "a") == 1


def test_f27_a_load_that_comes_while_the_last_is_undone_is_tried_anew(world: World) -> None:
    first = world.load("a")
    world.step("a")
    world.step("a", ok=False)
    second = world.load("a")
    world.settle()
    assert not world.told[first].ok
    assert world.told[second].ok
    assert world.calls(LoadEngine, "a") == 2


def test_f27_loads_interleaved_with_unloads_run_in_order_with_one_call_for_each_change(world: World) -> None:
    world.load("a")
    world.step("a")
    loads, unloads = [], []
    for number in range(20):
        loads.append(world.load("a"))
        if number % 4 == 3:
            unloads.append(world.unload("a"))
    world.settle()
    assert all(world.told[caller].ok for caller in (*loads, *unloads))
    assert world.calls(LoadEngine, "a") == 5
    assert world.calls(UnloadEngine, "a") == 5
    changes = [line for line in world.log if "Engine" in line]
    assert changes == ["LoadEngine a", "UnloadEngine a"] * 5
    assert list(world.told) == sorted(world.told)
    assert is_gone(world)


def test_f27_concurrent_unloads_are_one(live: World) -> None:
    callers = [live.unload("a") for _ in range(5)]
    live.settle()
    assert live.log == ["Withdraw a", "Quiesce a", "UnloadEngine a"]
    assert {live.told[caller].message for caller in callers} == {"unloaded"}


def test_f27_two_adapters_do_not_wait_for_each_other(world: World) -> None:
    world.load("a")
    caller = world.load("b")
    while "b" in world.orders:
        world.step("b")
    assert world.told[caller].ok
    assert isinstance(world.orders["a"], Fetch)


def test_f27_another_source_waits_for_its_turn(world: World) -> None:
    first, second = world.load("a"), world.load("a", "s3://b/other")
    world.settle()
    assert world.told[first].ok
    assert problem(world, second).startswith("conflict")
    assert world.calls(Fetch, "a") == 1


def test_f27_too_many_that_wait_are_refused(world: World) -> None:
    small = World(LoraTable(max_waiting=2)).up()
    small.load("a")
    small.step("a")
    waiting = [small.unload("a"), small.load("a")]
    assert problem(small, small.unload("a")).startswith("too many operations")
    small.settle()
    assert all(small.told[caller].ok for caller in waiting)
    assert world.told == {}


def test_f29_unloading_one_leaves_the_other_alone(live: World) -> None:
    live.load("b")
    live.settle()
    live.unload("a")
    live.settle()
    assert is_gone(live)
    assert live.cards == {"b"}
    assert live.table.is_live("b")
    assert live.table.listing().loras == {"b": lora_name_to_id("b")}


def test_an_unload_cancels_a_fetch(world: World) -> None:
    load = world.load("a")
    unloads = [world.unload("a"), world.unload("a")]
    assert problem(world, load) == "cancelled: it was unloaded before it was live"
    assert world.cancelled == {"a"}
    later = world.load("a")
    world.step("a")
    assert [world.told[caller].message for caller in unloads] == ["its fetch was cancelled"] * 2
    world.settle()
    assert world.told[later].ok
    assert world.log == ["Fetch a", "Fetch a", "LoadEngine a", "Publish a"]


def test_a_fetch_that_ends_before_it_can_be_cancelled_leaves_nothing(world: World) -> None:
    world.load("a")
    world.unload("a")
    world.cancelled.clear()
    world.settle()
    assert is_gone(world)
    assert world.calls(LoadEngine, "a") == 0


def test_c51_what_was_live_comes_back_with_the_engine(live: World) -> None:
    live.down()
    assert not live.table.is_live("a")
    assert live.table.listing().count == 0
    live.settle()
    assert live.cards == set()
    live.up()
    live.settle()
    assert live.log == ["Withdraw a", "LoadEngine a", "Publish a"]
    assert live.table.is_live("a")
    assert live.engine == {"a": adapter("a")}
    assert live.leases == {("a", path_of("s3://b/a"))}


def test_c51_an_engine_that_held_on_to_it_says_already_loaded(live: World) -> None:
    live.down(restarts=False)
    live.settle()
    live.up()
    live.settle()
    assert live.table.is_live("a")


def test_c51_a_load_asked_for_again_after_a_restart_joins_the_restoration(live: World) -> None:
    live.down()
    live.settle()
    live.up()
    caller = live.load("a")
    live.settle()
    assert live.told[caller].message == "loaded"
    assert live.calls(LoadEngine, "a") == 1


def test_c51_an_engine_that_will_not_have_it_back_is_reported(live: World) -> None:
    live.down()
    live.settle()
    live.up()
    live.step("a", ok=False, sure=True)
    assert phase(live) is Phase.FAILED
    assert [report.problem for report in live.reports] == ["engine refused"]
    live.down()
    live.up()
    live.settle()
    assert live.table.is_live("a")


def test_c51_an_engine_lost_again_while_it_is_restored(live: World) -> None:
    live.down()
    live.settle()
    live.up()
    live.down()
    live.settle()
    assert phase(live) is Phase.LOADING
    assert live.orders == {}
    live.up()
    live.settle()
    assert live.table.is_live("a")


def test_c51_an_engine_lost_while_the_card_is_published_is_loaded_again_before_anybody_is_told(world: World) -> None:
    caller = world.load("a")
    world.step("a")
    world.step("a")
    world.down()
    world.step("a")
    assert caller not in world.told
    assert not world.table.is_live("a")
    world.up()
    world.settle()
    assert world.told[caller].message == "loaded"
    assert world.calls(LoadEngine, "a") == 2
    assert world.engine == {"a": adapter("a")}


def test_c51_an_engine_lost_and_back_while_the_card_is_published(world: World) -> None:
    world.load("a")
    world.step("a")
    world.step("a")
    world.down()
    world.up()
    world.settle()
    assert world.table.is_live("a")
    assert world.engine == {"a": adapter("a")}


def test_c51_a_load_of_the_lost_engine_that_is_heard_of_late_does_not_count(world: World) -> None:
    world.load("a")
    world.step("a")
    order = world.orders["a"]
    assert isinstance(order, LoadEngine)
    world.down()
    world.answer("a", EngineLoaded())
    world.settle()
    assert not world.table.is_live("a")
    world.up()
    world.settle()
    assert world.engine == {"a": adapter("a")}


def test_c51_an_engine_lost_while_the_adapter_is_fetched_is_not_asked(world: World) -> None:
    caller = world.load("a")
    world.down()
    world.step("a")
    assert problem(world, caller) == "the engine was lost while the adapter was being fetched"
    assert is_gone(world)


def test_c51_what_waits_when_the_engine_is_lost_is_refused(live: World) -> None:
    first = live.unload("a")
    second = live.load("a")
    live.down()
    assert problem(live, second) == "the engine was lost; nothing was changed"
    live.settle()
    assert problem(live, first).endswith("could not be loaded again: no engine for a")
    live.up()
    live.settle()
    assert is_gone(live)


def test_c51_an_unload_that_failed_with_the_engine_is_finished_when_that_held_on(live: World) -> None:
    live.unload("a")
    live.down(restarts=False)
    live.settle()
    assert phase(live) is Phase.FAILED
    live.up()
    live.settle()
    assert is_gone(live)


def test_c51_nothing_is_asked_while_no_engine_answers() -> None:
    world = World()
    for caller in (world.load("a"), world.unload("a")):
        assert problem(world, caller) == "no engine is connected; nothing was changed"
    assert world.orders == {}


def test_c51_what_the_engine_serves_already_is_adopted(world: World) -> None:
    world.down()
    world.engine["a"] = adapter("a")
    world.up()
    world.settle()
    assert world.table.is_live("a")
    assert world.cards == {"a"}
    assert world.leases == {("a", path_of("s3://b/a"))}
    assert world.log == ["Publish a"]


@pytest.fixture
def adopted(world: World) -> World:
    world.down()
    world.engine["a"] = adapter("a")
    world.up()
    world.settle()
    world.log.clear()
    return world


def test_c48_a_load_of_an_adopted_adapter_finds_out_whether_it_is_the_same(adopted: World) -> None:
    caller = adopted.load("a")
    assert adopted.table.is_live("a")
    adopted.settle()
    assert adopted.told[caller].message == "already loaded"
    assert adopted.log == ["Fetch a"]
    assert adopted.told[adopted.load("a")].ok
    assert adopted.log == ["Fetch a"]


def test_c48_a_load_of_another_source_under_an_adopted_name_is_a_conflict(adopted: World) -> None:
    caller = adopted.load("a", "s3://b/other")
    adopted.settle()
    assert problem(adopted, caller) == "conflict: it is loaded from /cache/a; unload it first"
    assert adopted.table.is_live("a")
    assert adopted.leases == {("a", path_of("s3://b/a"))}


def test_a_source_that_cannot_be_read_leaves_an_adopted_adapter_alone(adopted: World) -> None:
    caller = adopted.load("a")
    adopted.step("a", ok=False)
    assert problem(adopted, caller) == "fetch failed"
    assert adopted.table.is_live("a")


def test_an_adopted_adapter_can_be_unloaded_and_comes_back_after_a_restart(adopted: World) -> None:
    adopted.down()
    adopted.settle()
    adopted.up()
    adopted.settle()
    assert adopted.table.is_live("a")
    adopted.unload("a")
    adopted.settle()
    assert is_gone(adopted)


def test_an_adopted_adapter_that_cannot_be_shown_stays_with_whoever_loaded_it(world: World) -> None:
    world.down()
    world.engine["a"] = adapter("a")
    world.up()
    world.step("a", ok=False, happens=True)
    world.settle()
    assert world.engine == {"a": adapter("a")}
    assert world.cards == set()
    assert phase(world) is Phase.ABSENT
    assert [report.problem for report in world.reports] == ["not adopted: publish failed"]


def test_a_machine_hears_only_what_answers_its_order(world: World) -> None:
    world.load("a")
    world.step("a")
    for event in (Published(), EngineUnloaded(), WithdrawFailed("x")):
        with pytest.raises(IllegalEventError, match="adapter a"):
            world.table.hear("a", event)
    with pytest.raises(KeyError):
        world.table.hear("b", EngineLoaded())
    with pytest.raises(IllegalEventError):
        AdapterMachine("c").hear(EngineLoaded())
    world.settle()
    assert world.table.is_live("a")


def test_closing_cancels_fetches_refuses_what_waits_and_lets_the_rest_end(world: World) -> None:
    fetching = world.load("a")
    loading = world.load("b")
    world.step("b")
    waiting = world.unload("b")
    world.take(world.table.close("the worker is shutting down"))
    assert world.cancelled == {"a"}
    assert problem(world, waiting) == "the worker is shutting down"
    assert problem(world, world.load("c")) == "the worker is shutting down"
    world.settle()
    assert problem(world, fetching) == "cancelled"
    assert world.told[loading].ok
    assert is_gone(world)


def test_closing_answers_those_who_wait_for_an_engine(world: World) -> None:
    caller = world.load("a")
    world.step("a")
    world.step("a")
    world.down()
    world.settle()
    assert caller not in world.told
    world.take(world.table.close("the worker is shutting down"))
    assert problem(world, caller) == "the worker is shutting down"


def test_a_card_that_cannot_be_withdrawn_from_a_lost_engine_is_reported(live: World) -> None:
    live.down()
    live.answer("a", WithdrawFailed("disk full"))
    assert [report.problem for report in live.reports] == ["its card may stand, and nobody can use it: disk full"]
    live.up()
    live.settle()
    assert live.table.is_live("a")


def test_c51_a_card_that_cannot_be_restored_after_a_restart_leaves_it_wanted(live: World) -> None:
    live.down()
    live.settle()
    live.up()
    live.step("a")
    live.answer("a", PublishFailed("disk full"))
    live.settle()
    assert phase(live) is Phase.FAILED
    assert live.engine == {}
    live.up()
    live.settle()
    assert live.table.is_live("a")


def test_a_card_that_could_not_be_withdrawn_is_tried_again_when_the_adapter_fails_for_good(live: World) -> None:
    live.down()
    live.step("a", ok=False)
    live.up()
    live.step("a", ok=False, sure=True)
    live.settle()
    assert phase(live) is Phase.FAILED
    assert live.cards == set()


def test_c51_an_adapter_that_is_being_compared_is_not_live_once_the_engine_was_lost(adopted: World) -> None:
    caller = adopted.load("a")
    adopted.down()
    adopted.up()
    assert not adopted.table.is_live("a")
    assert adopted.table.listing().count == 0
    adopted.settle()
    assert adopted.told[caller].message == "loaded"
    assert adopted.engine == {"a": adapter("a")}
    assert adopted.table.is_live("a")


def test_an_unload_waits_for_the_requests_that_use_the_adapter(live: World) -> None:
    live.unload("a")
    live.step("a")
    assert live.orders["a"] == Quiesce("a")
    assert "a" in live.engine
    assert not live.table.is_live("a")


def test_the_machine_speaks_of_itself(live: World) -> None:
    (view,) = live.table.views()
    assert (view.name, view.phase, view.uri, view.adapter, view.problem) == (
        "a",
        Phase.LIVE,
        "s3://b/a",
        adapter("a"),
        "",
    )
    live.unload("a")
    assert live.orders["a"] == Withdraw("a")
    live.step("a")
    live.step("a")
    live.answer("a", EngineFailed("x"))
    live.answer("a", EngineRefused("y"))
    (view,) = live.table.views()
    assert (view.phase, view.problem) == (Phase.FAILED, "x; then it could not be loaded again: y")

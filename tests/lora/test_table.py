from __future__ import annotations

import msgspec
import pytest

from openengine_sidecar.actors.lora.ids import lora_name_to_id
from openengine_sidecar.actors.lora.steps import Phase
from openengine_sidecar.actors.lora.table import LoraTable
from openengine_sidecar.messages.engine.lora import LoraAdapter
from tests.lora.world import World, adapter

ONE_ID = ("adapter-36748", "adapter-51988")


@pytest.fixture
def world() -> World:
    return World().up()


def problem(world: World, caller: int) -> str:
    answer = world.told[caller]
    assert not answer.ok
    return str(answer.message)


@pytest.mark.parametrize("name", ["", "../a", "x" * 300, "é"])
def test_c49_no_operation_begins_on_a_name_that_is_none(world: World, name: str) -> None:
    for caller in (world.load(name), world.unload(name)):
        assert "adapter's name" in problem(world, caller)
        assert world.told[caller].lora_name is msgspec.UNSET
    assert world.orders == {}
    assert world.table.views() == ()


def test_a_name_of_the_base_model_is_refused(world: World) -> None:
    assert problem(world, world.load("base")) == "base: is a name of the base model"


@pytest.mark.parametrize(("name", "other"), [("a.b", "a/b"), ONE_ID])
def test_a_name_that_another_adapter_stands_in_the_way_of_is_refused_with_both(
    world: World, name: str, other: str
) -> None:
    world.load(other)
    refusal = problem(world, world.load(name))
    assert name in refusal
    assert other in refusal
    assert set(world.orders) == {other}
    world.settle()
    world.unload(other)
    world.settle()
    caller = world.load(name)
    world.settle()
    assert world.told[caller].ok


def test_a_listing_tells_of_live_adapters_alone(world: World) -> None:
    world.load("a")
    world.load("b")
    world.load("c")
    for _ in range(3):
        world.step("b")
    world.step("a")
    assert msgspec.to_builtins(world.table.listing()) == {
        "status": "success",
        "loras": {"b": lora_name_to_id("b")},
        "count": 1,
    }
    assert {view.name: view.phase for view in world.table.views()} == {
        "a": Phase.LOADING,
        "b": Phase.LIVE,
        "c": Phase.FETCHING,
    }


def test_what_is_gone_is_forgotten(world: World) -> None:
    for number in range(100):
        world.load(f"a{number}")
        world.step(f"a{number}", ok=False)
        world.unload(f"b{number}")
        world.settle()
    assert world.table.views() == ()


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (LoraAdapter(name="", id=1, path="/a"), "must not be empty"),
        (LoraAdapter(name="a\nb", id=1, path="/a"), "made of ASCII"),
        (LoraAdapter(name="base", id=1, path="/a"), "base model"),
        (LoraAdapter(name="a", id=7, path="/a"), "its id is 7, other workers expect 1500095571"),
    ],
)
def test_c51_what_cannot_be_adopted_is_reported_and_left_alone(world: World, held: LoraAdapter, why: str) -> None:
    world.down()
    world.up(listed=[held, adapter("b")])
    assert [why in report.problem for report in world.reports] == [True]
    assert world.reports[0].name.isprintable()
    assert set(world.orders) == {"b"}


def test_c51_of_two_held_adapters_with_one_card_the_first_is_adopted(world: World) -> None:
    world.down()
    world.up(listed=[adapter("a.b"), adapter("a/b")])
    assert set(world.orders) == {"a.b"}
    assert [report.name for report in world.reports] == ["a/b"]


def test_c51_adoption_can_be_off() -> None:
    world = World(LoraTable(adopt=False))
    world.engine["a"] = adapter("a")
    world.up()
    assert world.orders == {}
    assert "adoption is off" in world.reports[0].problem


def test_c51_an_engine_that_will_not_list_is_asked_to_load_what_was_live(world: World) -> None:
    world.load("a")
    world.settle()
    world.down()
    world.settle()
    world.up(listed=None)
    world.settle()
    assert world.table.is_live("a")


def test_c51_what_the_engine_holds_under_our_name_from_elsewhere_is_reported(world: World) -> None:
    world.load("a")
    world.settle()
    world.down()
    world.settle()
    world.engine["a"] = adapter("a", "s3://b/other")
    world.up()
    world.settle()
    assert not world.table.is_live("a")
    assert [(report.name, report.problem) for report in world.reports] == [("a", "conflict")]
    assert world.engine == {"a": adapter("a", "s3://b/other")}


def test_c52_only_a_live_adapter_may_be_used(world: World) -> None:
    assert not world.table.is_live("a")
    world.load("a")
    assert not world.table.is_live("a")
    world.settle()
    assert world.table.is_live("a")
    assert not world.table.is_live("b")
    world.unload("a")
    assert not world.table.is_live("a")


def test_a_closed_table_stays_closed(world: World) -> None:
    world.take(world.table.close("the worker is shutting down"))
    world.down()
    world.up()
    assert problem(world, world.load("a")) == "the worker is shutting down"


def test_what_was_live_and_failed_is_tried_again_once_there_is_an_engine(world: World) -> None:
    world.up().load("a")
    world.settle()
    world.down()
    assert world.table.retry() == []
    world.up()
    world.step("a")  # its card, withdrawn
    world.step("a", ok=False, sure=True)
    assert [view.phase for view in world.table.views()] == [Phase.FAILED]
    world.take(world.table.retry())
    world.settle()
    assert world.table.is_live("a")
    assert world.table.retry() == []


def test_nothing_is_tried_again_once_it_is_closed(world: World) -> None:
    world.up().load("a")
    world.settle()
    world.down()
    world.up()
    world.step("a")
    world.step("a", ok=False, sure=True)
    world.take(world.table.close("over"))
    assert world.table.retry() == []

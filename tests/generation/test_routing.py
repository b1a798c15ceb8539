from __future__ import annotations

import pytest

from openengine_sidecar.messages.engine.discovery import Parallelism
from openengine_sidecar.messages.errors import InvalidRequestError, UnsupportedFeatureError
from tests.generation.builders import BARE, but, called, engine, nested


@pytest.mark.parametrize("priority", [-(2**31), 0, 2**31 - 1])
def test_c26_priority_goes_into_its_field(priority: int) -> None:
    assert called(nested("routing.priority", priority)).priority == priority


@pytest.mark.parametrize(("supported", "shown"), [(None, "nothing about it"), (False, "false")])
def test_c26_priority_is_refused_before_the_engine_hears_of_it(*, supported: bool | None, shown: str) -> None:
    with pytest.raises(UnsupportedFeatureError) as refusal:
        called(nested("routing.priority", 3), but(priority=supported))
    assert refusal.value.public == (
        "routing.priority (nvext.agent_hints.priority) is 3: needs supports_priority to be true;"
        f" the engine advertises {shown}"
    )


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_c27_a_rank_of_a_data_parallel_engine_is_sent(rank: int) -> None:
    assert called(nested("routing.dp_rank", rank)).data_parallel_rank == rank


@pytest.mark.parametrize("rank", [0, 1, 6, 2**32 - 1])
def test_c27_a_rank_the_engine_does_not_have_is_rejected(rank: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"dp_rank.* is {rank}: the engine's ranks are 2 to 5"):
        called(nested("routing.dp_rank", rank))


@pytest.mark.parametrize("data", [None, 0, 1])
@pytest.mark.parametrize(("start", "rank"), [(None, 0), (0, 0), (7, 0), (7, 7)])
def test_c27_the_one_rank_of_an_engine_is_not_sent(data: int | None, start: int | None, rank: int) -> None:
    discovery = engine(parallelism=Parallelism(data=data, data_start_rank=start))
    assert called(nested("routing.dp_rank", rank), discovery).data_parallel_rank is None


def test_c27_another_rank_needs_data_parallelism() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"dp_rank.* is 1: needs data_parallel_size to be above 1"):
        called(nested("routing.dp_rank", 1), BARE)


def test_rank_zero_of_several_is_a_rank() -> None:
    discovery = engine(parallelism=Parallelism(data=2))
    assert called(nested("routing.dp_rank", 0), discovery).data_parallel_rank == 0


def test_without_a_rank_none_is_sent() -> None:
    assert called().data_parallel_rank is None
    assert called({"routing": None}).data_parallel_rank is None


@pytest.mark.parametrize("capability", [None, False])
def test_a_salt_is_never_dropped(*, capability: bool | None) -> None:
    with pytest.raises(UnsupportedFeatureError, match="needs supports_cache_salt") as refusal:
        called(nested("routing.cache_salt", "tenant"), but(cache_salt=capability))
    assert "tenant" not in refusal.value.problem


def test_c27_a_salt_may_be_named_twice() -> None:
    changes = nested("routing.cache_salt", "a") | nested("extra_args.nvext.cache_salt", "a")
    assert called(changes).cache_salt == "a"


def test_contradicting_salts_are_rejected() -> None:
    changes = nested("routing.cache_salt", "a") | nested("extra_args.nvext.cache_salt", "b")
    with pytest.raises(InvalidRequestError, match=r"nvext\.cache_salt says otherwise"):
        called(changes)


def test_an_empty_salt_is_a_value() -> None:
    assert called(nested("routing.cache_salt", "")).cache_salt == ""


def test_a_bypass_that_is_off_needs_no_capability() -> None:
    assert called(nested("extra_args.disable_prefix_cache", value=False), BARE).bypass_prefix_cache is False


def test_contradicting_bypasses_are_rejected() -> None:
    with pytest.raises(InvalidRequestError, match="says otherwise"):
        called({"extra_args": {"bypass_prefix_cache": True, "disable_prefix_cache": False}})


@pytest.mark.parametrize("capability", [None, False])
def test_a_bypass_needs_the_capability(*, capability: bool | None) -> None:
    with pytest.raises(UnsupportedFeatureError, match="supports_prefix_cache_bypass"):
        called(nested("extra_args.disable_prefix_cache", value=True), but(prefix_cache_bypass=capability))


@pytest.mark.parametrize("capability", [None, False])
def test_c52_an_adapter_needs_the_capability(*, capability: bool | None) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"lora_name.*'my/adapter': needs supports_lora to be true"):
        called(nested("routing.lora_name", "my/adapter"), but(lora=capability))


def test_an_adapter_does_not_change_the_model() -> None:
    call = called({"model": "my/adapter", "routing": {"lora_name": "my/adapter"}})
    assert (call.model, call.lora_name) == ("org/toy", "my/adapter")


@pytest.mark.parametrize(
    "extra",
    [{"bypass_prefix_cache": 1}, {"nvext": {"cache_salt": 5}}, {"nvext": 3}, {"metadata": {"a": 1}}, {"messages": {}}],
)
def test_extra_arguments_of_the_wrong_type_are_rejected(extra: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match="extra_args"):
        called({"extra_args": extra})

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from openengine_sidecar.actors.lora.cache import AdapterCache
from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.config import LoraConfig
from openengine_sidecar.actors.lora.fetch import FetchedAdapter, Fetcher
from openengine_sidecar.messages.errors import LoraRefusedError, LoraSourceError
from tests.lora.adapters import ADAPTER, CONFIG, LIMITS, QUICK, Reports, read_adapter
from tests.lora.hub import Hub

WEIGHTS = "adapter_model.safetensors"
ADDRESS = "hf://owner/adapter"


@pytest.fixture
def config(tmp_path: Path, hub: Hub) -> LoraConfig:
    transfer = replace(QUICK, hub_endpoint=hub.endpoint, read_timeout=10.0)
    return LoraConfig(cache=tmp_path / "cache", transfer=transfer, limits=LIMITS)


def fetch(config: LoraConfig, address: str = ADDRESS) -> FetchedAdapter:
    cache = AdapterCache(config.cache, config.cache_bytes)
    cache.open()
    return Fetcher(config, cache).fetch(address, CancelToken(address), Reports())


def is_clean(config: LoraConfig) -> bool:
    return not any(list((config.cache / name).iterdir()) for name in ("adapters", "partial", "tickets"))


def test_an_adapter_arrives_whole(config: LoraConfig, hub: Hub) -> None:
    hub.files["inner/x"] = b"x"
    assert read_adapter(fetch(config).path) == hub.files


def test_a_revision_is_a_commit(config: LoraConfig, hub: Hub) -> None:
    address = f"{ADDRESS}@{hub.commit}"
    first = fetch(config, address)
    assert fetch(config, address).path == first.path
    assert hub.reads(WEIGHTS) == ["bytes=0-"]


def test_a_branch_that_moved_is_another_entry(config: LoraConfig, hub: Hub) -> None:
    first = fetch(config)
    hub.files[WEIGHTS] = b"new weights"
    second = fetch(config)
    assert read_adapter(first.path) == ADAPTER
    assert read_adapter(second.path) == hub.files


def test_a_connection_cut_in_the_middle_is_taken_up(config: LoraConfig, hub: Hub) -> None:
    hub.breaks = [len(CONFIG), 4000, 2000]
    assert read_adapter(fetch(config).path) == ADAPTER
    assert hub.reads(WEIGHTS) == ["bytes=0-", "bytes=4000-", "bytes=6000-"]


def test_a_hub_that_cannot_begin_in_the_middle_begins_anew(config: LoraConfig, hub: Hub) -> None:
    hub.breaks, hub.ranges = [len(CONFIG), 4000], False
    assert read_adapter(fetch(config).path) == ADAPTER


def test_a_connection_that_is_cut_again_and_again_ends_clean(config: LoraConfig, hub: Hub) -> None:
    hub.breaks = [len(CONFIG), 4000, *[0] * 99]
    with pytest.raises(LoraSourceError) as failure:
        fetch(config)
    assert failure.value.transient
    assert is_clean(config)


def test_weights_of_another_hash_are_refused(config: LoraConfig, hub: Hub) -> None:
    hub.files = {WEIGHTS: hub.files[WEIGHTS]}
    hub.lie = bytes(len(hub.files[WEIGHTS]))
    with pytest.raises(LoraSourceError, match="damaged"):
        fetch(config)
    assert is_clean(config)


@pytest.mark.parametrize(("status", "passes"), [(401, False), (403, False), (404, False), (429, True), (503, True)])
def test_what_a_hub_answers_passes_or_not(config: LoraConfig, hub: Hub, *, status: int, passes: bool) -> None:
    hub.status = status
    with pytest.raises(LoraSourceError, match=str(status)) as failure:
        fetch(config)
    assert failure.value.transient is passes
    assert len(hub.requests) == (QUICK.attempts if passes else 1)


def test_a_hub_that_is_gone_is_asked_a_few_times(config: LoraConfig) -> None:
    nowhere = replace(config, transfer=replace(config.transfer, hub_endpoint="http://127.0.0.1:1"))
    with pytest.raises(LoraSourceError, match="hf://owner/adapter: ConnectError") as failure:
        fetch(nowhere)
    assert failure.value.transient


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({**ADAPTER, "../../../evil": b"x"}, "leads out"),
        ({**ADAPTER, "/etc/passwd": b"x"}, "leads out"),
        ({**ADAPTER, **{f"f{n}": b"" for n in range(7)}}, "more than 8 files"),
        ({**ADAPTER, "adapter_config.json": b"[1]"}, "not a JSON object"),
        ({}, "there is nothing"),
    ],
)
def test_adapters_that_attack_are_refused_and_leave_nothing(
    config: LoraConfig, hub: Hub, files: Mapping[str, bytes], problem: str
) -> None:
    hub.files = dict(files)
    with pytest.raises(LoraRefusedError, match=problem):
        fetch(config)
    assert is_clean(config)

from __future__ import annotations

from pathlib import Path

import pytest

from openengine_sidecar.actors.lora.cache import AdapterCache
from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.config import LoraConfig
from openengine_sidecar.actors.lora.fetch import FetchedAdapter, Fetcher
from openengine_sidecar.messages.errors import LoraRefusedError
from tests.lora.adapters import LIMITS, QUICK, Reports, write_adapter


@pytest.fixture
def config(tmp_path: Path) -> LoraConfig:
    return LoraConfig(cache=tmp_path / "cache", transfer=QUICK, limits=LIMITS)


def fetch(config: LoraConfig, address: str) -> FetchedAdapter:
    return Fetcher(config, AdapterCache(config.cache)).fetch(address, CancelToken(address), Reports())


@pytest.mark.parametrize("scheme", ["", "file://", "file://localhost"])
def test_a_local_adapter_is_used_where_it_is(config: LoraConfig, tmp_path: Path, scheme: str) -> None:
    directory = write_adapter(tmp_path / "one")
    fetched = fetch(config, f"{scheme}{directory}")
    assert (fetched.path, fetched.lease) == (directory, None)
    assert fetched.contents.files == 2
    assert not config.cache.exists()


def test_a_path_keeps_its_links_since_the_engine_may_know_no_other(config: LoraConfig, tmp_path: Path) -> None:
    write_adapter(tmp_path / "one")
    (tmp_path / "link").symlink_to("one")
    assert fetch(config, str(tmp_path / "link")).path == tmp_path / "link"


def test_a_local_directory_that_is_no_adapter_is_refused(config: LoraConfig, tmp_path: Path) -> None:
    with pytest.raises(LoraRefusedError, match=f"{tmp_path}: is not an adapter"):
        fetch(config, f"file://{tmp_path}")


def test_a_local_directory_that_is_not_there_is_refused(config: LoraConfig) -> None:
    with pytest.raises(LoraRefusedError, match="file:///no/such: cannot be read: No such file"):
        fetch(config, "file:///no/such")


def test_c49_what_is_no_address_is_refused(config: LoraConfig) -> None:
    with pytest.raises(LoraRefusedError, match="not absolute"):
        fetch(config, "adapters/one")

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from openengine_sidecar.actors.lora.cache import AdapterCache
from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.config import LoraConfig
from openengine_sidecar.actors.lora.download import Progress
from openengine_sidecar.actors.lora.fetch import FetchedAdapter, Fetcher
from openengine_sidecar.messages.errors import LoraCacheError, LoraCancelledError, LoraRefusedError, LoraSourceError
from tests.lora import fetching
from tests.lora.adapters import ADAPTER, CONFIG, LIMITS, QUICK, Reports, read_adapter
from tests.lora.s3 import S3

LARGE: Mapping[str, bytes] = {**ADAPTER, "adapter_model.safetensors": bytes(range(256)) * 2000, "empty": b""}
WEIGHTS = "adapter_model.safetensors"


@pytest.fixture
def config(tmp_path: Path, s3: S3) -> LoraConfig:
    transfer = replace(QUICK, s3_endpoint=s3.proxy.endpoint, chunk_bytes=64 * 1024, read_timeout=10.0)
    return LoraConfig(cache=tmp_path / "cache", transfer=transfer, limits=replace(LIMITS, max_bytes=1_000_000))


def fetch(
    config: LoraConfig, address: str, *, cancel: CancelToken | None = None, reports: Reports | None = None
) -> FetchedAdapter:
    cache = AdapterCache(config.cache, config.cache_bytes)
    cache.open()
    return Fetcher(config, cache).fetch(address, cancel or CancelToken(address), reports or Reports())


def is_clean(config: LoraConfig) -> bool:
    return not any(list((config.cache / name).iterdir()) for name in ("adapters", "partial", "tickets"))


def test_an_adapter_arrives_whole(config: LoraConfig, s3: S3) -> None:
    reports = Reports()
    fetched = fetch(config, s3.put(files=LARGE), reports=reports)
    assert read_adapter(fetched.path) == LARGE
    assert fetched.path.parent == config.cache / "adapters"
    assert reports.seen[-1].size == fetched.contents.size == sum(map(len, LARGE.values()))
    assert fetched.lease is not None


def test_directory_marks_are_no_files(config: LoraConfig, s3: S3) -> None:
    address = s3.put(files={**ADAPTER, "": b"", "inner/": b"", "inner/x": b"x"})
    assert read_adapter(fetch(config, address).path) == {**ADAPTER, "inner/x": b"x"}


def test_a_neighbour_under_a_longer_prefix_is_another_adapter(config: LoraConfig, s3: S3) -> None:
    s3.put("adapters/one-more", {"x": b"x"})
    assert read_adapter(fetch(config, s3.put("adapters/one")).path) == ADAPTER


def test_a_second_fetch_reads_nothing_but_the_listing(config: LoraConfig, s3: S3) -> None:
    address, reports = s3.put(), Reports()
    first = fetch(config, address)
    again = fetch(config, f"{address}", reports=reports)
    assert (again.path, again.contents) == (first.path, first.contents)
    assert s3.proxy.reads(WEIGHTS) == [0]
    assert reports.seen == []


def test_changed_contents_are_another_entry(config: LoraConfig, s3: S3) -> None:
    first = fetch(config, s3.put())
    second = fetch(config, s3.put(files={WEIGHTS: b"new weights"}))
    assert read_adapter(first.path) == ADAPTER
    assert read_adapter(second.path) == {**ADAPTER, WEIGHTS: b"new weights"}


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_cut_in_the_middle_is_taken_up_and_ends_complete(
    config: LoraConfig, s3: S3, *, reset: bool
) -> None:
    address = s3.put(files=LARGE)
    s3.proxy.cuts, s3.proxy.reset = [200_000, 150_000], reset
    assert read_adapter(fetch(config, address).path) == LARGE
    offsets = s3.proxy.reads(WEIGHTS)
    assert offsets == sorted(set(offsets))
    assert len(offsets) == 3
    assert s3.proxy.cuts == []


def test_a_connection_that_is_cut_again_and_again_ends_clean(config: LoraConfig, s3: S3) -> None:
    address = s3.put(files=LARGE)
    s3.proxy.cuts = [200_000, *[0] * 99]
    with pytest.raises(LoraSourceError) as failure:
        fetch(config, address)
    assert failure.value.transient
    assert is_clean(config)


def test_a_server_that_is_gone_is_asked_a_few_times(config: LoraConfig, s3: S3) -> None:
    address = s3.put()
    s3.proxy.stop()
    with pytest.raises(LoraSourceError, match=r"s3://.*Could not connect") as failure:
        fetch(config, address)
    assert failure.value.transient
    assert is_clean(config)


def test_a_cancelled_fetch_ends_clean(config: LoraConfig, s3: S3) -> None:
    cancel = CancelToken("a")

    class CancelInTheMiddle(Reports):
        def __call__(self, progress: Progress) -> None:
            super().__call__(progress)
            if progress.size > 100_000:
                cancel.cancel("unloaded")

    reports = CancelInTheMiddle()
    with pytest.raises(LoraCancelledError, match="unloaded"):
        fetch(config, s3.put(files=LARGE), cancel=cancel, reports=reports)
    assert reports.seen[-1].size < sum(map(len, LARGE.values()))
    assert is_clean(config)


def test_an_object_that_changes_while_it_is_fetched_does_not_become_half_of_each(config: LoraConfig, s3: S3) -> None:
    address = s3.put(files=LARGE)

    class Overwrite(Reports):
        def __call__(self, progress: Progress) -> None:
            if progress.files == 1 and not self.seen:
                super().__call__(progress)
                s3.put(files={WEIGHTS: bytes(len(LARGE[WEIGHTS]))})

    with pytest.raises(LoraSourceError, match="changed while it was being fetched"):
        fetch(config, address, reports=Overwrite())
    assert is_clean(config)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({**ADAPTER, "../../../evil": b"x"}, "leads out"),
        ({**ADAPTER, "/etc/passwd": b"x"}, "leads out"),
        ({**ADAPTER, "a\\..\\b": b"x"}, "characters that no file"),
        ({**ADAPTER, "a": b"x", "a/b": b"x"}, "in the way"),
        ({**ADAPTER, "a/b/c/d": b"x"}, "directories deep"),
        ({**ADAPTER, **{f"f{n}": b"" for n in range(7)}}, "more than 8 files"),
        ({**ADAPTER, "big": bytes(1_000_000)}, "larger than 1000000 bytes"),
        ({**ADAPTER, "adapter_config.json": b"[1]"}, "not a JSON object"),
        ({"adapter_config.json": CONFIG}, "no weights"),
        ({WEIGHTS: b"x"}, "no adapter_config.json"),
    ],
)
def test_adapters_that_attack_are_refused_and_leave_nothing(
    config: LoraConfig, s3: S3, tmp_path: Path, files: Mapping[str, bytes], problem: str
) -> None:
    address = s3.put(files=files)
    before = {path for path in tmp_path.rglob("*") if config.cache not in path.parents}
    with pytest.raises(LoraRefusedError, match=problem) as refusal:
        fetch(config, address)
    assert refusal.value.subject == address
    assert is_clean(config)
    assert {path for path in tmp_path.rglob("*") if config.cache not in path.parents} - before <= {config.cache}


def test_a_prefix_with_nothing_under_it_is_no_adapter(config: LoraConfig, s3: S3) -> None:
    with pytest.raises(LoraRefusedError, match="there is nothing"):
        fetch(config, f"s3://{s3.bucket}/missing")


def test_a_bucket_that_does_not_exist_is_not_asked_again(config: LoraConfig, s3: S3) -> None:
    with pytest.raises(LoraSourceError, match="HTTP 404") as failure:
        fetch(config, f"s3://{s3.bucket}-not/one")
    assert not failure.value.transient


def test_without_credentials_the_error_says_so(config: LoraConfig, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    address = s3.put()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(LoraSourceError, match="credentials") as failure:
        fetch(config, address)
    assert not failure.value.transient


def test_an_endpoint_that_is_no_url_is_told(config: LoraConfig) -> None:
    broken = replace(config, transfer=replace(config.transfer, s3_endpoint="no url"))
    with pytest.raises(LoraSourceError, match="no url") as failure:
        fetch(broken, "s3://bucket/one")
    assert not failure.value.transient


def test_the_endpoint_may_come_from_the_environment(
    config: LoraConfig, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.proxy.endpoint)
    usual = replace(config, transfer=replace(config.transfer, s3_endpoint=None))
    assert read_adapter(fetch(usual, s3.put()).path) == ADAPTER


def test_an_adapter_larger_than_the_cache_is_refused_before_it_is_fetched(config: LoraConfig, s3: S3) -> None:
    with pytest.raises(LoraCacheError, match="do not fit"):
        fetch(replace(config, cache_bytes=1000), s3.put())
    assert s3.proxy.reads(WEIGHTS) == []


def test_several_workers_fetch_an_adapter_once(config: LoraConfig, s3: S3) -> None:
    address = s3.put(files=LARGE)
    argv = [sys.executable, fetching.__file__, str(config.cache), s3.proxy.endpoint, address]
    workers = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    paths = {worker.communicate()[0].strip() for worker in workers}
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    (path,) = paths
    assert read_adapter(Path(path)) == LARGE
    assert s3.proxy.reads(WEIGHTS) == [0]

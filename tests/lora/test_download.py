from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.config import TransferConfig
from openengine_sidecar.actors.lora.download import Errand, Progress, download, persist
from openengine_sidecar.messages.errors import LoraCancelledError, LoraSourceError
from tests.lora.adapters import ADAPTER, CONFIG, LIMITS, QUICK, WEIGHTS, FakeSource, Reports, read_adapter

WEIGHTS_FILE = "adapter_model.safetensors"


@pytest.fixture
def cancel() -> CancelToken:
    return CancelToken("a")


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def errand(cancel: CancelToken, reports: Reports) -> Errand:
    return Errand(QUICK, cancel, reports)


def fetch(source: FakeSource, directory: Path, errand: Errand) -> None:
    download(source, source.list(LIMITS, errand.cancel), directory, errand)


def test_every_byte_arrives_and_is_reported(tmp_path: Path, errand: Errand, reports: Reports) -> None:
    source = FakeSource({**ADAPTER, "inner/empty": b""})
    fetch(source, tmp_path, errand)
    assert read_adapter(tmp_path) == source.files
    total = len(CONFIG) + len(WEIGHTS)
    assert reports.seen[-1] == Progress(files=3, total_files=3, size=total, total_size=total)
    sizes = [progress.size for progress in reports.seen]
    assert sizes == sorted(sizes)
    assert len(sizes) == 3 + 1 + len(WEIGHTS) // QUICK.chunk_bytes


def test_a_broken_connection_is_taken_up_where_it_broke(tmp_path: Path, errand: Errand, reports: Reports) -> None:
    source = FakeSource({WEIGHTS_FILE: WEIGHTS}, breaks=[5000, 1, 2048])
    fetch(source, tmp_path, errand)
    assert read_adapter(tmp_path) == source.files
    assert [offset for _, offset in source.reads] == [0, 5000, 5001, 7049]
    assert max(progress.size for progress in reports.seen) == len(WEIGHTS)


def test_breaks_that_brought_something_are_not_counted_against_it(tmp_path: Path, errand: Errand) -> None:
    source = FakeSource({WEIGHTS_FILE: WEIGHTS}, breaks=[512] * 15)
    fetch(source, tmp_path, errand)
    assert read_adapter(tmp_path) == source.files


def test_breaks_that_bring_nothing_are_counted(tmp_path: Path, errand: Errand) -> None:
    source = FakeSource({WEIGHTS_FILE: WEIGHTS}, breaks=[512, 0, 0, 512, *[0] * 9])
    with pytest.raises(LoraSourceError, match="connection broke"):
        fetch(source, tmp_path, errand)
    assert [offset for _, offset in source.reads] == [0, 512, 512, 512, *[1024] * QUICK.attempts]


def test_a_source_without_ranges_begins_anew(tmp_path: Path, errand: Errand, reports: Reports) -> None:
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    source = FakeSource({WEIGHTS_FILE: WEIGHTS}, breaks=[5000, 6000], ranges=False, sha256={WEIGHTS_FILE: digest})
    fetch(source, tmp_path, errand)
    assert read_adapter(tmp_path) == source.files
    assert reports.seen[-1].size == len(WEIGHTS)


def test_a_source_without_ranges_that_gets_no_further_is_given_up(tmp_path: Path, errand: Errand) -> None:
    source = FakeSource({WEIGHTS_FILE: WEIGHTS}, breaks=[5000] * 99, ranges=False)
    with pytest.raises(LoraSourceError):
        fetch(source, tmp_path, errand)
    assert len(source.reads) == 1 + QUICK.attempts


def test_a_failure_that_does_not_pass_is_not_repeated(tmp_path: Path, errand: Errand) -> None:
    source = FakeSource({WEIGHTS_FILE: WEIGHTS}, breaks=[5000], transient=False)
    with pytest.raises(LoraSourceError):
        fetch(source, tmp_path, errand)
    assert len(source.reads) == 1


def test_a_file_that_ends_early_is_asked_for_again_and_then_given_up(tmp_path: Path, errand: Errand) -> None:
    source = FakeSource({WEIGHTS_FILE: WEIGHTS}, sizes={WEIGHTS_FILE: len(WEIGHTS) + 1})
    with pytest.raises(LoraSourceError, match=f"ended after {len(WEIGHTS)} of {len(WEIGHTS) + 1} bytes"):
        fetch(source, tmp_path, errand)


def test_a_file_longer_than_listed_is_refused_at_the_chunk_that_is_too_much(tmp_path: Path, errand: Errand) -> None:
    source = FakeSource({WEIGHTS_FILE: WEIGHTS}, sizes={WEIGHTS_FILE: 1500})
    with pytest.raises(LoraSourceError, match="more than the 1500 bytes listed"):
        fetch(source, tmp_path, errand)
    assert (tmp_path / WEIGHTS_FILE).stat().st_size <= 1500


def test_contents_with_another_hash_are_refused(tmp_path: Path, errand: Errand) -> None:
    source = FakeSource({WEIGHTS_FILE: WEIGHTS}, sha256={WEIGHTS_FILE: hashlib.sha256(b"else").hexdigest()})
    with pytest.raises(LoraSourceError, match="damaged"):
        fetch(source, tmp_path, errand)


@pytest.mark.parametrize("last", range(1, 12))
def test_it_can_be_cancelled_at_any_chunk(tmp_path: Path, cancel: CancelToken, last: int) -> None:
    sizes: list[int] = []

    def report(progress: Progress) -> None:
        sizes.append(progress.size)
        if len(sizes) == last:
            cancel.cancel("no longer wanted")

    with pytest.raises(LoraCancelledError, match="a: cancelled: no longer wanted"):
        fetch(FakeSource(ADAPTER), tmp_path, Errand(QUICK, cancel, report))
    assert sizes[-1] == sizes[last - 1]


def test_a_pause_between_attempts_can_be_cancelled(cancel: CancelToken, reports: Reports) -> None:
    patient = Errand(TransferConfig(retry_wait=3600.0, retry_wait_max=3600.0), cancel, reports)
    broken = LoraSourceError("s3://b/a", "connection broke", transient=True)
    attempts = 0

    def fail() -> None:
        nonlocal attempts
        attempts += 1
        cancel.cancel("no longer wanted")
        raise broken

    with pytest.raises(LoraCancelledError):
        persist(fail, patient)
    assert attempts == 1


def test_the_first_reason_for_a_cancellation_stays(cancel: CancelToken) -> None:
    cancel.check()
    cancel.cancel("one")
    cancel.cancel("two")
    with pytest.raises(LoraCancelledError, match="one"):
        cancel.check()
    with pytest.raises(LoraCancelledError, match="one"):
        cancel.sleep(3600)

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from openengine_sidecar.actors.discovery.record_file import RecordFile
from openengine_sidecar.messages.errors import StoreError

KEY = "v1/mdc/dynamo/backend/generate/ff"
TIME_TO_LIVE = 10.0
LONG_AGO = (1_000_000_000, 1_000_000_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bucket" / "record"


@pytest.fixture
def record(path: Path) -> RecordFile:
    return RecordFile(KEY, path, TIME_TO_LIVE)


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def foreign(path: Path, *, dead: bool = False) -> Path:
    path.parent.mkdir(exist_ok=True)
    theirs = path.with_name("theirs")
    theirs.write_bytes(b"theirs")
    theirs.replace(path)
    if dead:
        os.utime(path, ns=LONG_AGO)
    return path


def test_a_record_is_one_file_and_nothing_beside_it(record: RecordFile, path: Path) -> None:
    record.put(b"value")
    assert names(path) == ["record"]
    assert path.read_bytes() == b"value"
    assert path.stat().st_nlink == 1


def test_a_new_value_takes_the_place_of_ours(record: RecordFile, path: Path) -> None:
    record.put(b"one")
    record.put(b"two")
    assert names(path) == ["record"]
    assert path.read_bytes() == b"two"
    assert record.beat() is False


def test_f16_a_live_file_of_somebody_else_is_never_overwritten(record: RecordFile, path: Path) -> None:
    before = foreign(path).stat()
    with pytest.raises(StoreError, match="held by another live process") as caught:
        record.put(b"ours")
    assert caught.value.key == KEY
    assert path.read_bytes() == b"theirs"
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert names(path) == ["record"]


def test_f16_a_dead_file_under_our_name_is_replaced(record: RecordFile, path: Path) -> None:
    foreign(path, dead=True)
    record.put(b"ours")
    assert path.read_bytes() == b"ours"
    assert names(path) == ["record"]


@pytest.mark.parametrize("wall_clock", [0.0, 4e9])
def test_f16_who_lives_is_judged_by_the_clock_of_the_file_system(
    record: RecordFile, path: Path, monkeypatch: pytest.MonkeyPatch, wall_clock: float
) -> None:
    monkeypatch.setattr(time, "time", lambda: wall_clock)
    written = foreign(path).stat().st_mtime
    with pytest.raises(StoreError, match="held by another live process"):
        record.put(b"ours")
    os.utime(path, (written - 2 * TIME_TO_LIVE,) * 2)
    record.put(b"ours")
    assert path.read_bytes() == b"ours"


def test_a_beat_moves_the_mtime_and_writes_nothing(record: RecordFile, path: Path) -> None:
    record.put(b"value")
    inode = path.stat().st_ino
    os.utime(path, ns=LONG_AGO)
    assert record.beat() is False
    assert path.stat().st_mtime_ns > LONG_AGO[1]
    assert path.stat().st_ino == inode


def test_f16_a_beat_writes_a_vanished_record_again(record: RecordFile, path: Path) -> None:
    record.put(b"value")
    path.unlink()
    assert record.beat() is True
    assert path.read_bytes() == b"value"
    assert record.beat() is False


def test_f16_a_beat_makes_a_wiped_directory_again(record: RecordFile, path: Path) -> None:
    record.put(b"value")
    path.unlink()
    path.parent.rmdir()
    assert record.beat() is True
    assert path.read_bytes() == b"value"


def test_f16_a_beat_keeps_nobody_elses_file_alive(record: RecordFile, path: Path) -> None:
    record.put(b"ours")
    path.unlink()
    foreign(path)
    before = path.stat().st_mtime_ns
    with pytest.raises(StoreError, match="held by another live process"):
        record.beat()
    assert path.read_bytes() == b"theirs"
    assert path.stat().st_mtime_ns == before


def test_f16_our_name_is_ours_again_once_its_usurper_is_dead(record: RecordFile, path: Path) -> None:
    record.put(b"ours")
    foreign(path, dead=True)
    assert record.beat() is True
    assert path.read_bytes() == b"ours"


def test_removal_takes_our_file(record: RecordFile, path: Path) -> None:
    record.put(b"value")
    record.remove()
    assert names(path) == []


def test_f16_removal_leaves_a_file_that_is_not_ours(record: RecordFile, path: Path) -> None:
    record.put(b"ours")
    foreign(path)
    record.remove()
    assert path.read_bytes() == b"theirs"


def test_removal_of_a_vanished_or_unwritten_record_is_quiet(record: RecordFile, path: Path) -> None:
    record.remove()
    record.put(b"value")
    path.unlink()
    record.remove()
    assert names(path) == []


def test_a_refusing_file_system_names_record_and_path(tmp_path: Path) -> None:
    (tmp_path / "bucket").write_bytes(b"not a directory")
    record = RecordFile(KEY, tmp_path / "bucket" / "record", TIME_TO_LIVE)
    with pytest.raises(StoreError, match=r"cannot write .*bucket/record: File exists") as caught:
        record.put(b"value")
    assert caught.value.key == KEY


def test_a_name_too_long_for_the_file_system_is_refused(tmp_path: Path) -> None:
    record = RecordFile(KEY, tmp_path / ("x" * 300), TIME_TO_LIVE)
    with pytest.raises(StoreError, match="File name too long"):
        record.put(b"value")
    assert list(tmp_path.iterdir()) == []


def test_a_record_holds_one_descriptor_and_gives_it_back(record: RecordFile, path: Path) -> None:
    before = descriptors()
    for value in (b"a", b"b", b"c"):
        record.put(value)
    path.unlink()
    record.beat()
    assert descriptors() == before + 1
    foreign(path)
    with pytest.raises(StoreError):
        record.put(b"d")
    record.remove()
    assert descriptors() == before

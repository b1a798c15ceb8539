from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from loguru import logger

from openengine_sidecar.actors.config import FileDiscoveryConfig
from openengine_sidecar.actors.discovery.file_store import FileStore
from openengine_sidecar.actors.discovery.record_file import RecordFile
from openengine_sidecar.actors.discovery.store import (
    INSTANCE_ID_BITS,
    DiscoveryStore,
    Mishap,
    StoreReport,
    log_mishap,
    new_instance_id,
)
from openengine_sidecar.messages.dynamo.naming import (
    EndpointId,
    card_key,
    event_channel_key,
    event_source_key,
    instance_key,
)
from openengine_sidecar.messages.errors import StoreError

ENDPOINT = EndpointId("dynamo", "backend", "generate")
INSTANCE = instance_key(ENDPOINT, 255)
CARD = card_key(ENDPOINT, 255)
INSTANCE_FILE = "v1/instances/dynamo%2Fbackend%2Fgenerate%2Fff"
CARD_FILE = "v1/mdc/dynamo%2Fbackend%2Fgenerate%2Fff"
LONG_AGO = (1_000_000_000, 1_000_000_000)
NEVER = 3600.0
PATIENCE = 30.0


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def replace_by_file(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    directory.write_bytes(b"")


class Reports:
    def __init__(self) -> None:
        self.seen: list[StoreReport] = []
        self.arrived = threading.Event()

    def __call__(self, report: StoreReport) -> None:
        self.seen.append(report)
        self.arrived.set()


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
async def store(tmp_path: Path, reports: Reports) -> AsyncIterator[FileStore]:
    store = FileStore(FileDiscoveryConfig(root=tmp_path, heartbeat=NEVER), reports)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def beating(tmp_path: Path, reports: Reports) -> AsyncIterator[FileStore]:
    store = FileStore(FileDiscoveryConfig(root=tmp_path, heartbeat=0.01), reports)
    await store.open()
    yield store
    await store.close()


def test_a_file_store_is_a_discovery_store(tmp_path: Path) -> None:
    store: DiscoveryStore = FileStore(FileDiscoveryConfig(root=tmp_path))
    assert store is not None


def test_an_instance_id_is_positive_and_an_ordinary_number() -> None:
    ids = {new_instance_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(0 < instance_id < 2**INSTANCE_ID_BITS for instance_id in ids)


async def test_records_stand_where_the_stock_store_keeps_them(store: FileStore, tmp_path: Path) -> None:
    await store.publish(INSTANCE, b"instance")
    await store.publish(CARD, b"card")
    assert files(tmp_path) == [INSTANCE_FILE, CARD_FILE]
    assert (tmp_path / CARD_FILE).read_bytes() == b"card"
    assert store.keys == (INSTANCE, CARD)


async def test_a_record_published_again_is_replaced(store: FileStore, tmp_path: Path) -> None:
    await store.publish(CARD, b"one")
    await store.publish(CARD, b"two")
    assert (tmp_path / CARD_FILE).read_bytes() == b"two"
    assert store.keys == (CARD,)


async def test_withdrawal_takes_one_record(store: FileStore, tmp_path: Path) -> None:
    await store.publish(INSTANCE, b"instance")
    await store.publish(CARD, b"card")
    await store.withdraw(CARD)
    assert files(tmp_path) == [INSTANCE_FILE]
    store.beat()
    assert files(tmp_path) == [INSTANCE_FILE]


async def test_f16_withdrawal_of_a_peers_record_does_nothing(store: FileStore, tmp_path: Path) -> None:
    peer = tmp_path / "v1/mdc/dynamo%2Fbackend%2Fgenerate%2Faa"
    peer.parent.mkdir(parents=True)
    peer.write_bytes(b"peer")
    await store.withdraw(card_key(ENDPOINT, 0xAA))
    await store.withdraw_all()
    assert peer.read_bytes() == b"peer"


async def test_f16_two_stores_do_not_share_a_key(store: FileStore, tmp_path: Path) -> None:
    await store.publish(INSTANCE, b"first")
    second = FileStore(FileDiscoveryConfig(root=tmp_path, heartbeat=NEVER))
    await second.open()
    with pytest.raises(StoreError, match="held by another live process"):
        await second.publish(INSTANCE, b"second")
    assert second.keys == ()
    await second.close()
    assert (tmp_path / INSTANCE_FILE).read_bytes() == b"first"


async def test_withdrawing_everything_goes_from_cards_to_instances(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, channel = event_source_key(ENDPOINT, 1), event_channel_key(ENDPOINT, "kv-events", 1)
    for key in (INSTANCE, source, channel, CARD):
        await store.publish(key, b"value")
    order: list[str] = []
    remove = RecordFile.remove

    def noted(record: RecordFile) -> None:
        order.append(record._key)
        remove(record)

    monkeypatch.setattr(RecordFile, "remove", noted)
    await store.withdraw_all()
    assert order == [CARD, source, channel, INSTANCE]


async def test_withdrawing_everything_goes_on_after_a_failure(store: FileStore, tmp_path: Path) -> None:
    await store.publish(INSTANCE, b"instance")
    await store.publish(CARD, b"card")
    replace_by_file(tmp_path / "v1/mdc")
    with pytest.raises(StoreError) as caught:
        await store.withdraw_all()
    assert caught.value.key == CARD
    assert files(tmp_path) == ["v1/mdc"]
    assert store.keys == ()


async def test_nothing_is_published_that_nobody_keeps_alive(tmp_path: Path) -> None:
    store = FileStore(FileDiscoveryConfig(root=tmp_path))
    with pytest.raises(StoreError, match="not open"):
        await store.publish(CARD, b"card")
    await store.open()
    await store.close()
    with pytest.raises(StoreError, match="not open"):
        await store.publish(CARD, b"card")
    assert files(tmp_path) == []


async def test_closing_leaves_no_record_and_no_thread(tmp_path: Path) -> None:
    store = FileStore(FileDiscoveryConfig(root=tmp_path, heartbeat=0.01))
    await store.open()
    await store.publish(INSTANCE, b"instance")
    await store.publish(CARD, b"card")
    await store.close()
    await store.close()
    assert files(tmp_path) == []
    assert not [thread for thread in threading.enumerate() if thread.name == "discovery-heartbeat"]


async def test_closing_waits_for_the_beat_under_way(tmp_path: Path) -> None:
    entered, release = threading.Event(), threading.Event()

    def hold(report: StoreReport) -> None:
        entered.set()
        assert release.wait(PATIENCE), report

    store = FileStore(FileDiscoveryConfig(root=tmp_path, heartbeat=0.01), hold)
    await store.open()
    await store.publish(CARD, b"card")
    (tmp_path / CARD_FILE).unlink()
    assert await asyncio.to_thread(entered.wait, PATIENCE)
    closing = asyncio.create_task(store.close())
    done, _ = await asyncio.wait({closing}, timeout=0.05)
    release.set()
    await closing
    assert not done
    assert store.listener_errors == 0


async def test_a_closed_store_opens_again(tmp_path: Path, reports: Reports) -> None:
    store = FileStore(FileDiscoveryConfig(root=tmp_path, heartbeat=0.01), reports)
    for _ in range(2):
        await store.open()
        await store.open()
        await store.publish(CARD, b"card")
        (tmp_path / CARD_FILE).unlink()
        assert await asyncio.to_thread(reports.arrived.wait, PATIENCE)
        reports.arrived.clear()
        await store.close()
    assert files(tmp_path) == []


async def test_closing_reports_what_it_could_not_take_out(store: FileStore, reports: Reports, tmp_path: Path) -> None:
    await store.publish(CARD, b"card")
    await store.publish(INSTANCE, b"instance")
    replace_by_file(tmp_path / "v1/mdc")
    await store.close()
    assert [(report.key, report.mishap) for report in reports.seen] == [(CARD, Mishap.NOT_WITHDRAWN)]
    assert files(tmp_path) == ["v1/mdc"]


async def test_a_root_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = FileStore(FileDiscoveryConfig(root=tmp_path / "file" / "store"))
    with pytest.raises(StoreError, match="Not a directory") as caught:
        await store.open()
    assert caught.value.key == str(tmp_path / "file" / "store")


async def test_a_beat_reaches_every_record(store: FileStore, tmp_path: Path) -> None:
    keys = [INSTANCE, CARD, event_source_key(ENDPOINT, 1), event_channel_key(ENDPOINT, "kv-events", 1)]
    for key in keys:
        await store.publish(key, b"value")
    for name in files(tmp_path):
        os.utime(tmp_path / name, ns=LONG_AGO)
    store.beat()
    assert len(files(tmp_path)) == len(keys)
    assert all((tmp_path / name).stat().st_mtime_ns > LONG_AGO[1] for name in files(tmp_path))
    assert not store.mishaps


async def test_f16_a_vanished_record_is_written_again_and_reported(
    store: FileStore, reports: Reports, tmp_path: Path
) -> None:
    await store.publish(CARD, b"card")
    (tmp_path / CARD_FILE).unlink()
    store.beat()
    store.beat()
    assert (tmp_path / CARD_FILE).read_bytes() == b"card"
    assert reports.seen == [StoreReport(key=CARD, mishap=Mishap.RESTORED)]
    assert store.mishaps == {Mishap.RESTORED: 1}


async def test_a_record_that_cannot_be_kept_is_counted_and_keeps_no_other_from_beating(
    store: FileStore, reports: Reports, tmp_path: Path
) -> None:
    await store.publish(CARD, b"card")
    await store.publish(INSTANCE, b"instance")
    replace_by_file(tmp_path / "v1/mdc")
    os.utime(tmp_path / INSTANCE_FILE, ns=LONG_AGO)
    store.beat()
    store.beat()
    assert (tmp_path / INSTANCE_FILE).stat().st_mtime_ns > LONG_AGO[1]
    assert {(report.key, report.mishap) for report in reports.seen} == {(CARD, Mishap.NOT_KEPT)}
    assert store.mishaps == {Mishap.NOT_KEPT: 2}
    (tmp_path / "v1/mdc").unlink()
    store.beat()
    assert (tmp_path / CARD_FILE).read_bytes() == b"card"
    assert store.mishaps[Mishap.RESTORED] == 1


async def test_a_failing_listener_is_counted_and_stops_no_beat(tmp_path: Path) -> None:
    def fail(report: StoreReport) -> None:
        raise RuntimeError(report.key)

    store = FileStore(FileDiscoveryConfig(root=tmp_path, heartbeat=NEVER), fail)
    await store.open()
    await store.publish(CARD, b"card")
    await store.publish(INSTANCE, b"instance")
    (tmp_path / CARD_FILE).unlink()
    (tmp_path / INSTANCE_FILE).unlink()
    store.beat()
    assert files(tmp_path) == [INSTANCE_FILE, CARD_FILE]
    assert store.listener_errors == 2
    await store.close()


async def test_the_heart_beats_while_the_event_loop_is_blocked(
    beating: FileStore, reports: Reports, tmp_path: Path
) -> None:
    await beating.publish(CARD, b"card")
    (tmp_path / CARD_FILE).unlink()
    assert reports.arrived.wait(PATIENCE)
    assert (tmp_path / CARD_FILE).read_bytes() == b"card"


async def test_file_work_stays_off_the_event_loop(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()
    put, remove = RecordFile.put, RecordFile.remove

    def noted_put(record: RecordFile, value: bytes) -> None:
        threads.add(threading.current_thread().name)
        put(record, value)

    def noted_remove(record: RecordFile) -> None:
        threads.add(threading.current_thread().name)
        remove(record)

    monkeypatch.setattr(RecordFile, "put", noted_put)
    monkeypatch.setattr(RecordFile, "remove", noted_remove)
    await store.publish(CARD, b"card")
    await store.withdraw(CARD)
    assert threads
    assert threading.current_thread().name not in threads


async def test_f16_readers_see_a_record_whole_or_not_at_all(store: FileStore, tmp_path: Path) -> None:
    size = 256 * 1024
    values = [bytes([65 + turn % 26]) * size for turn in range(60)]
    await store.publish(CARD, values[0])
    done = threading.Event()

    def read() -> set[tuple[int, int]]:
        seen: set[tuple[int, int]] = set()
        while not done.is_set():
            value = (tmp_path / CARD_FILE).read_bytes()
            seen.add((len(value), len(set(value))))
        return seen

    reading = asyncio.create_task(asyncio.to_thread(read))
    for value in values:
        await store.publish(CARD, value)
    done.set()
    assert await reading == {(size, 1)}


def test_the_default_listener_tells_the_log() -> None:
    lines: list[str] = []
    sink = logger.add(lines.append, format="{level} {message}")
    try:
        log_mishap(StoreReport(key=CARD, mishap=Mishap.NOT_KEPT, problem="no space left on device"))
    finally:
        logger.remove(sink)
    assert lines == [f"WARNING discovery record {CARD}: not_kept no space left on device\n"]

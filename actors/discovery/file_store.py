"""Discovery in a directory that workers and frontends of one host share (`DYN_DISCOVERY_BACKEND=file`)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from loguru import logger

from openengine_sidecar.actors.config import FileDiscoveryConfig
from openengine_sidecar.actors.discovery.record_file import RecordFile
from openengine_sidecar.actors.discovery.store import Mishap, ReportMishap, StoreReport, log_mishap
from openengine_sidecar.messages.dynamo.naming import CARDS, INSTANCES, file_name, split_key
from openengine_sidecar.messages.errors import StoreError

_JOIN_TIMEOUT = 5.0


class FileStore:
    """A `DiscoveryStore` of files: `<root>/v1/<bucket>/<percent-encoded key>`.

    File work runs in threads. The heartbeat has one of its own, because an event loop that is busy for ten seconds
    must not de-register its worker; a record that fails to beat never keeps the others from it.

    Attributes:
        mishaps: how often each kind of mishap was seen.
        listener_errors: how often the listener of mishaps itself failed.
    """

    def __init__(self, config: FileDiscoveryConfig, report: ReportMishap = log_mishap) -> None:
        self.mishaps: Counter[Mishap] = Counter()
        self.listener_errors = 0
        self._config = config
        self._report = report
        self._records: dict[str, RecordFile] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._heart: threading.Thread | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """Records owned now, oldest first."""
        with self._lock:
            return tuple(self._records)

    async def open(self) -> None:
        """Makes the root directory and starts the heartbeat.

        Raises:
            StoreError: the directory cannot be made.
        """
        await asyncio.to_thread(self._open)

    async def publish(self, key: str, value: bytes) -> None:
        """Writes a record and keeps it alive.

        Raises:
            StoreError: the store is not open, the file system refused, or another live process holds the key.
        """
        await asyncio.to_thread(self._publish, key, value)

    async def withdraw(self, key: str) -> None:
        """Deletes a record; nothing happens for a key that is not owned.

        Raises:
            StoreError: the file system refused; the record expires by itself.
        """
        await asyncio.to_thread(self._withdraw, key)

    async def withdraw_all(self) -> None:
        """Deletes every record, cards first and instances last.

        Raises:
            StoreError: the first that could not be deleted; the others are gone.
        """
        for error in await asyncio.to_thread(lambda: list(self._withdraw_all())):
            raise error

    async def close(self) -> None:
        """Deletes every record and ends the heartbeat; what fails is reported, not raised."""
        await asyncio.to_thread(self._close)

    def beat(self) -> None:
        """Shows that every record lives. Failures are counted and reported, record by record."""
        for key in self.keys:
            with self._lock:
                record = self._records.get(key)
                report = None if record is None else _beat(key, record)
            if report is not None:
                self._tell(report)

    def _open(self) -> None:
        root = self._config.root
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(str(root), f"cannot make the store's directory: {error.strerror}") from error
        if self._heart is None:
            self._stop.clear()
            self._heart = threading.Thread(target=self._keep_beating, name="discovery-heartbeat", daemon=True)
            self._heart.start()

    def _keep_beating(self) -> None:
        while not self._stop.wait(self._config.heartbeat):
            self.beat()

    def _publish(self, key: str, value: bytes) -> None:
        with self._lock:
            if self._heart is None:
                raise StoreError(key, "the store is not open, nothing would keep the record alive")
            record = self._records.get(key) or RecordFile(key, self._path(key), self._config.time_to_live)
            record.put(value)
            self._records[key] = record

    def _withdraw(self, key: str) -> None:
        with self._lock:
            record = self._records.pop(key, None)
            if record is not None:
                record.remove()

    def _withdraw_all(self) -> Iterator[StoreError]:
        for key in sorted(self.keys, key=_withdrawal_rank):
            try:
                self._withdraw(key)
            except StoreError as error:
                yield error

    def _close(self) -> None:
        self._stop.set()
        if self._heart is not None:
            self._heart.join(_JOIN_TIMEOUT)
            self._heart = None
        for error in self._withdraw_all():
            self._tell(StoreReport(key=error.key, mishap=Mishap.NOT_WITHDRAWN, problem=error.problem))

    def _tell(self, report: StoreReport) -> None:
        self.mishaps[report.mishap] += 1
        try:
            self._report(report)
        except Exception as error:  # noqa: BLE001 - a listener's fault must not stop the heartbeat; it is counted
            self.listener_errors += 1
            logger.error("listener of discovery mishaps failed: {!r}", error)

    def _path(self, key: str) -> Path:
        bucket, rest = split_key(key)
        return self._config.root / bucket / file_name(rest)


def _beat(key: str, record: RecordFile) -> StoreReport | None:
    try:
        restored = record.beat()
    except StoreError as error:
        return StoreReport(key=key, mishap=Mishap.NOT_KEPT, problem=error.problem)
    return StoreReport(key=key, mishap=Mishap.RESTORED) if restored else None


def _withdrawal_rank(key: str) -> int:
    return {CARDS: 0, INSTANCES: 2}.get(split_key(key)[0], 1)

"""Bringing a remote adapter into a directory, file by file, with every byte accounted for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
import tenacity
from loguru import logger

from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.config import TransferConfig
from openengine_sidecar.actors.lora.listing import Listing, RemoteFile
from openengine_sidecar.actors.lora.sources import Source
from openengine_sidecar.messages.errors import LoraSourceError

T = TypeVar("T")


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a download is; bytes, of all files together."""

    files: int
    total_files: int
    size: int
    total_size: int


ReportProgress = Callable[[Progress], None]


class Errand(msgspec.Struct, frozen=True):
    """On whose behalf, and how, something is fetched; `report` is called after every chunk."""

    config: TransferConfig
    cancel: CancelToken
    report: ReportProgress


def persist(action: Callable[[], T], errand: Errand) -> T:
    """Do something again, with growing pauses, while it fails for reasons that pass.

    Raises:
        LoraSourceError: it failed for another reason, or too often.
        LoraCancelledError: nobody wants it any more.
    """
    config = errand.config
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(config.attempts),
        wait=tenacity.wait_exponential(config.retry_wait, config.retry_wait_max)
        + tenacity.wait_random(0, config.retry_wait),
        retry=tenacity.retry_if_exception(_passes),
        before_sleep=_log_retry,
        sleep=errand.cancel.sleep,
        reraise=True,
    )
    return retrying(action)


def download(source: Source, listing: Listing, directory: Path, errand: Errand) -> None:
    """Fetch every file of a listing into an empty directory, and write it through to the disk.

    A connection that breaks is taken up where it broke.

    Raises:
        LoraSourceError: the source failed too often in a row, or sends something else than it listed.
        LoraCancelledError: nobody wants it any more; noticed between two chunks.
        OSError: the directory cannot be written.
    """
    meter = _Meter(listing, errand.report)
    for file in listing.files:
        errand.cancel.check()
        path = directory / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as opened:
            sink = _Sink(opened, file, meter)
            while sink.position < file.size:
                persist(partial(_stretch, source, sink, errand.cancel), errand)
            sink.finish()


def _stretch(source: Source, sink: _Sink, cancel: CancelToken) -> None:
    """Read until the file is whole, or its connection breaks having brought something."""
    began = sink.position
    try:
        with source.read(sink.file, began) as body:
            if body.offset != began:
                sink.restart()
            for chunk in body.chunks:
                cancel.check()
                sink.write(chunk)
        sink.check_end()
    except LoraSourceError as error:
        if not error.transient or sink.position <= began:
            raise
        logger.info("{}; going on from byte {}", error, sink.position)


class _Meter:
    def __init__(self, listing: Listing, report: ReportProgress) -> None:
        self._total_files = len(listing.files)
        self._total_size = listing.size
        self._report = report
        self._files = 0
        self._size = 0

    def moved(self, size: int, *, files: int = 0) -> None:
        self._size += size
        self._files += files
        self._report(
            Progress(files=self._files, total_files=self._total_files, size=self._size, total_size=self._total_size)
        )


class _Sink:
    """One file being written."""

    def __init__(self, opened: BinaryIO, file: RemoteFile, meter: _Meter) -> None:
        self.file = file
        self.position = 0
        self._opened = opened
        self._meter = meter
        self._digest = hashlib.sha256()

    def write(self, chunk: bytes) -> None:
        if self.position + len(chunk) > self.file.size:
            raise LoraSourceError(self.file.key, f"has more than the {self.file.size} bytes listed", transient=False)
        self._opened.write(chunk)
        if self.file.sha256:
            self._digest.update(chunk)
        self.position += len(chunk)
        self._meter.moved(len(chunk))

    def check_end(self) -> None:
        size = self.file.size
        if self.position < size:
            raise LoraSourceError(self.file.key, f"ended after {self.position} of {size} bytes", transient=True)

    def restart(self) -> None:
        self._opened.seek(0)
        self._opened.truncate()
        self._digest = hashlib.sha256()
        self._meter.moved(-self.position)
        self.position = 0

    def finish(self) -> None:
        if self.file.sha256 and self._digest.hexdigest() != self.file.sha256:
            raise LoraSourceError(self.file.key, "arrived damaged: its SHA-256 is another one", transient=False)
        self._opened.flush()
        os.fsync(self._opened.fileno())
        self._meter.moved(0, files=1)


def _passes(error: BaseException) -> bool:
    return isinstance(error, LoraSourceError) and error.transient


def _log_retry(state: tenacity.RetryCallState) -> None:
    failure = state.outcome.exception() if state.outcome is not None else None
    logger.warning("{}; attempt {} failed", failure, state.attempt_number)

"""The counters in a file that is replaced whole, for places without a network."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec

from openengine_sidecar.launch.engine.stats import Stats
from openengine_sidecar.messages.errors import ConfigurationError

INTERVAL = 0.2


class StatsFile:
    """Writes counters and last requests to a file, at most every `INTERVAL` seconds and once at the end."""

    def __init__(self, stats: Stats, path: Path) -> None:
        self._stats = stats
        self._path = path
        self._task: asyncio.Task[None] | None = None
        self._written: tuple[int, ...] = ()

    def start(self) -> None:
        """Write the file once and keep it up to date.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        try:
            self._write()
        except OSError as error:
            option = "--stats"
            raise ConfigurationError(option, f"cannot write {self._path}: {error}") from error
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        """Stop following and write what is true now."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._write()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            self._write()

    def _write(self) -> None:
        current = self._stats.fingerprint()
        if current == self._written:
            return
        content = msgspec.json.encode({**self._stats.as_dict(), "received": self._stats.received_as_dicts()})
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        draft.write_bytes(content)
        draft.replace(self._path)
        self._written = current

"""The directories in the cache that adapters of this worker lie in: held until they are given back."""

from __future__ import annotations

import asyncio

from openengine_sidecar.actors.lora.cache import Lease


class Leases:
    """Leases by adapter and directory. Belongs to one event loop."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Lease] = {}
        self._coming: dict[tuple[str, str], asyncio.Task[Lease | None]] = {}

    def keep(self, name: str, path: str, lease: Lease | None) -> None:
        """Hold a lease; one that was held for the same adapter and directory is given back."""
        old = self._held.pop((name, path), None)
        if lease is not None:
            self._held[name, path] = lease
        if old is not None:
            old.release()

    def await_(self, name: str, path: str, lease: asyncio.Task[Lease | None]) -> None:
        """Hold a lease once it is there, unless it was given back before."""
        self._coming[name, path] = lease
        lease.add_done_callback(lambda _: self._arrived((name, path), lease))

    def release(self, name: str, path: str) -> None:
        """Give a lease back, whether it is there, still comes, or never was."""
        self._coming.pop((name, path), None)
        self.keep(name, path, None)

    def release_all(self) -> None:
        """Give everything back."""
        for name, path in [*self._held, *self._coming]:
            self.release(name, path)

    def _arrived(self, key: tuple[str, str], task: asyncio.Task[Lease | None]) -> None:
        if task.cancelled() or task.exception() is not None:
            return
        lease = task.result()
        if self._coming.get(key) is task:
            del self._coming[key]
            self.keep(*key, lease)
        elif lease is not None:
            lease.release()

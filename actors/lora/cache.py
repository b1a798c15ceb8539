"""The adapter cache: one directory that workers of a host, and their engines, share.

    adapters/<key>           whole adapters; they appear and vanish in one rename
    partial/<key>.<random>   what is on its way in or out
    tickets/<key>            one lock file for each (see `ticket.py`)
    gate                     lock around the accounts: who makes room does so alone

An adapter that anybody uses is never evicted: its user shares the ticket, and who evicts must hold it alone.
"""

from __future__ import annotations

import glob
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from loguru import logger

from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.ticket import Hold, Ticket, read_size
from openengine_sidecar.messages.errors import LoraCacheError

POLL = 0.05
"""Seconds between two looks at a ticket that somebody else holds."""

_RANDOM_BYTES = 8


class Lease:
    """The use of a cached adapter: until it is released, nobody removes it."""

    def __init__(self, path: Path, ticket: Ticket) -> None:
        self.path = path
        self._ticket = ticket

    def release(self) -> None:
        """End the use."""
        with self._ticket:
            self._ticket.touch()


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How a missing entry comes to be.

    Attributes:
        size: bytes that it will take.
        fill: puts it into an empty directory; what it raises is passed on, and the directory removed.
        intact: whether a directory is a whole entry.
    """

    size: int
    fill: Callable[[Path], None]
    intact: Callable[[Path], bool]


class _Account(msgspec.Struct, frozen=True):
    key: str
    size: int
    last_use: float


class AdapterCache:
    """Keeps adapters within a limit of bytes, the least recently used go first; None is no limit."""

    def __init__(self, root: Path, limit: int | None = None) -> None:
        self._limit = limit
        self._root = root
        self._adapters = root / "adapters"
        self._partial = root / "partial"
        self._tickets = root / "tickets"

    def open(self) -> None:
        """Make the directories, and remove what crashed processes left half-made.

        Raises:
            LoraCacheError: the file system refused.
        """
        with self._failures():
            for directory in (self._adapters, self._partial, self._tickets):
                directory.mkdir(parents=True, exist_ok=True)
            self._sweep()

    def acquire(self, key: str, recipe: Recipe, cancel: CancelToken) -> Lease:
        """Use an entry, and make it first where it is missing; of several who want to make it, one does.

        Raises:
            LoraCacheError: there is no room, or the file system refused.
            LoraCancelledError: nobody wants it any more.
        """
        path = self._adapters / key
        with self._failures():
            while True:
                cancel.check()
                lease = self._lease(path, recipe)
                if lease is not None:
                    return lease
                alone = Ticket.take(self._tickets / key, Hold.ALONE)
                if alone is None:
                    cancel.sleep(POLL)
                    continue
                with alone:
                    if not recipe.intact(path):
                        self._make(key, recipe, alone, cancel)

    def hold(self, path: Path) -> Lease | None:
        """Use what lies at a path already; None where that is no entry of this cache."""
        if path.parent != self._adapters or not path.is_dir():
            return None
        with self._failures():
            ticket = Ticket.take(self._tickets / path.name, Hold.SHARED)
        return None if ticket is None else Lease(path, ticket)

    def _lease(self, path: Path, recipe: Recipe) -> Lease | None:
        ticket = Ticket.take(self._tickets / path.name, Hold.SHARED)
        if ticket is None:
            return None
        try:
            if recipe.intact(path):
                ticket.stamp(recipe.size)
                return Lease(path, ticket)
        except BaseException:
            ticket.close()
            raise
        ticket.close()
        return None

    def _make(self, key: str, recipe: Recipe, alone: Ticket, cancel: CancelToken) -> None:
        partial = self._partial / f"{key}.{secrets.token_hex(_RANDOM_BYTES)}"
        try:
            with self._gate(cancel):
                self._make_room(recipe.size, key)
                alone.stamp(recipe.size)
                partial.mkdir()
            recipe.fill(partial)
            self._remove(self._adapters / key)
            partial.rename(self._adapters / key)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            alone.discard()
            raise

    def _make_room(self, size: int, key: str) -> None:
        self._sweep()
        accounts = [account for account in self._accounts() if account.key != key]
        used = sum(account.size for account in accounts)
        for account in sorted(accounts, key=lambda account: account.last_use):
            if not self._shortage(used, size):
                return
            if self._evict(account):
                used -= account.size
        if shortage := self._shortage(used, size):
            raise LoraCacheError(str(self._root), f"{size} bytes do not fit: {shortage}")

    def _shortage(self, used: int, size: int) -> str:
        if self._limit is not None and used + size > self._limit:
            return f"adapters in use hold {used} of {self._limit}"
        free = shutil.disk_usage(self._root).free
        return f"the disk has {free} left" if size > free else ""

    def _accounts(self) -> Iterator[_Account]:
        for ticket in self._tickets.iterdir():
            try:
                yield _Account(ticket.name, read_size(ticket), ticket.stat().st_mtime)
            except FileNotFoundError:
                continue  # its holder discarded it just now

    def _evict(self, account: _Account) -> bool:
        ticket = Ticket.take(self._tickets / account.key, Hold.ALONE)
        if ticket is None:
            return False
        with ticket:
            self._remove(self._adapters / account.key)
            ticket.discard()
        logger.info("evicted adapter {} ({} bytes) from the cache", account.key, account.size)
        return True

    def _remove(self, path: Path) -> None:
        """Remove an entry, if there is one, so that no half of it can be seen under its name."""
        doomed = self._partial / f"{path.name}.{secrets.token_hex(_RANDOM_BYTES)}"
        try:
            path.rename(doomed)
        except FileNotFoundError:
            return
        shutil.rmtree(doomed)

    def _sweep(self) -> None:
        """Remove what belongs to nobody: remains of crashed processes, and tickets without an entry."""
        remains = {partial.name.rpartition(".")[0] for partial in self._partial.iterdir()}
        idle = {ticket.name for ticket in self._tickets.iterdir() if not (self._adapters / ticket.name).exists()}
        for key in remains | idle:
            ticket = Ticket.take(self._tickets / key, Hold.ALONE)
            if ticket is not None:
                with ticket:
                    self._clear(key, ticket)

    def _clear(self, key: str, alone: Ticket) -> None:
        for partial in self._partial.glob(f"{glob.escape(key)}.*"):
            shutil.rmtree(partial, ignore_errors=True)
        if not (self._adapters / key).exists():
            alone.discard()

    @contextmanager
    def _gate(self, cancel: CancelToken) -> Generator[None]:
        while (ticket := Ticket.take(self._root / "gate", Hold.ALONE)) is None:
            cancel.sleep(POLL)
        with ticket:
            yield

    @contextmanager
    def _failures(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            where = error.filename if isinstance(error.filename, str) else str(self._root)
            raise LoraCacheError(where, error.strerror or str(error)) from error

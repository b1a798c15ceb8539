"""Lock files of cache entries.

Whoever makes or removes an entry holds its ticket alone; whoever uses it shares the ticket; a process that dies gives
all of them back. A ticket also remembers the entry's size, as its text, and its last use, as its mtime. It may be
deleted by the one who holds it alone, so a lock counts only while its file still stands under its name.
"""

from __future__ import annotations

import fcntl
import os
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Self

_LONGEST = 32


class Hold(IntEnum):
    """How a ticket is held."""

    SHARED = fcntl.LOCK_SH
    ALONE = fcntl.LOCK_EX


class Ticket:
    """One hold on one ticket, until it is closed. Two holds conflict in one process as they do between two."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path, hold: Hold) -> Self | None:
        """Take a ticket, or None where somebody's hold is in the way; never waits.

        Raises:
            OSError: the file system refused.
        """
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            ticket = cls(path, descriptor)
            try:
                fcntl.flock(descriptor, hold | fcntl.LOCK_NB)
                if ticket._stands():
                    return ticket
            except BlockingIOError:
                ticket.close()
                return None
            except BaseException:
                ticket.close()
                raise
            ticket.close()

    def stamp(self, size: int) -> None:
        """Remember the entry's size in bytes, and that it was used now."""
        text = str(size).encode()
        if os.pread(self._descriptor, _LONGEST, 0) != text:
            os.pwrite(self._descriptor, text, 0)
            os.ftruncate(self._descriptor, len(text))
        self.touch()

    def touch(self) -> None:
        """Remember that the entry was used until now."""
        os.utime(self._descriptor)

    def discard(self) -> None:
        """Delete the ticket; only for one that is held alone."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give the ticket back; idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _stands(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False


def read_size(path: Path) -> int:
    """The size that a ticket remembers; 0 where it says nothing."""
    try:
        return int(path.read_bytes()[:_LONGEST] or b"0")
    except (FileNotFoundError, ValueError):
        return 0

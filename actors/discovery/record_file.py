"""One record in one file, owned by this process until it lets go.

The file backend of Dynamo 1.6.1 knows no leases: a record lives while its file's mtime is younger than ten seconds, and
whoever sees an older one may delete it. So a file of ours may vanish, and somebody else's may stand in its place; both
are told from our own by the inode, which cannot be given to another file while ours is held open.

An age is the difference of two mtimes that the file system gave: the wall clock of this process may be wrong, or jump.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from openengine_sidecar.messages.errors import StoreError

TEMPORARY_PREFIX = ".tmp_"
_TEMPORARY_BYTES = 8


class RecordFile:
    """A file that shows, whole or not at all, under its name.

    Args:
        key: the record, for errors.
        path: where it stands; its directory is made when needed.
        time_to_live: seconds after which a file that nobody touched is dead.
    """

    def __init__(self, key: str, path: Path, time_to_live: float) -> None:
        self._key = key
        self._path = path
        self._time_to_live = time_to_live
        self._value = b""
        self._fd: int | None = None

    def put(self, value: bytes) -> None:
        """Writes the file, in place of an earlier one of ours or of one that is dead.

        Raises:
            StoreError: the file system refused, or a live file of somebody else stands there.
        """
        try:
            fd = self._put(value)
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(self._key, f"cannot write {self._path}: {error.strerror}") from error
        self._let_go()
        self._fd, self._value = fd, value

    def beat(self) -> bool:
        """Shows that the record lives; writes it again when it vanished, and says True then.

        Raises:
            StoreError: as `put`, or the file system refused the touch.
        """
        try:
            if self._touch():
                return False
        except OSError as error:
            raise StoreError(self._key, f"cannot touch {self._path}: {error.strerror}") from error
        self.put(self._value)
        return True

    def remove(self) -> None:
        """Deletes the file if it still is ours, and lets go of it in any case.

        Raises:
            StoreError: the file system refused.
        """
        try:
            if self._stands():
                self._path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(self._key, f"cannot remove {self._path}: {error.strerror}") from error
        finally:
            self._let_go()

    def _put(self, value: bytes) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(TEMPORARY_PREFIX + secrets.token_hex(_TEMPORARY_BYTES))
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            with os.fdopen(fd, "wb", closefd=False) as file:
                file.write(value)
            self._show(temporary, os.fstat(fd).st_mtime)
        except BaseException:
            os.close(fd)
            raise
        finally:
            temporary.unlink(missing_ok=True)
        return fd

    def _show(self, temporary: Path, now: float) -> None:
        if self._stands() or self._is_dead(now):
            temporary.replace(self._path)
            return
        try:
            self._path.hardlink_to(temporary)
        except FileExistsError as error:
            raise StoreError(self._key, f"{self._path} is held by another live process") from error

    def _touch(self) -> bool:
        if self._fd is None:
            return False
        os.utime(self._fd)
        return self._stands()

    def _stands(self) -> bool:
        """Whether the file under our name is the one that we hold."""
        if self._fd is None:
            return False
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _is_dead(self, now: float) -> bool:
        try:
            return now - self._path.stat().st_mtime > self._time_to_live
        except FileNotFoundError:
            return False

    def _let_go(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

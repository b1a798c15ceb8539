"""What a remote adapter consists of, checked before a byte of it is fetched."""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec
from blake3 import blake3

from openengine_sidecar.actors.lora.config import AdapterLimits
from openengine_sidecar.messages.errors import LoraRefusedError
from openengine_sidecar.proto.text import peer_text

MAX_PART_BYTES = 255
_SHOWN = 120


class RemoteFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of an adapter.

    Attributes:
        path: where it goes in the adapter's directory; relative, slashes between, no way out.
        size: bytes.
        key: what its source calls it.
        tag: changes whenever the contents do.
        sha256: of the contents in hex, empty where the source does not tell.
    """

    path: str
    size: int
    key: str
    tag: str
    sha256: str = ""


class Listing(msgspec.Struct, frozen=True):
    """Files of an adapter as they were at one moment."""

    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """Bytes, all files together."""
        return sum(file.size for file in self.files)

    def key(self, address: str) -> str:
        """Name of the cache entry for these contents of this address; another moment may give another one."""
        digest = blake3(msgspec.json.encode((address, self.files))).hexdigest()[:24]
        readable = "".join(c if c.isascii() and c.isalnum() else "-" for c in address.rstrip("/").rpartition("/")[2])
        return f"{readable[:40]}-{digest}"


class ListingBuilder:
    """Takes the files of one adapter in, and refuses what no adapter may contain."""

    def __init__(self, address: str, limits: AdapterLimits) -> None:
        self._address = address
        self._limits = limits
        self._files: dict[str, RemoteFile] = {}
        self._directories: set[str] = set()
        self._size = 0

    def add(self, file: RemoteFile) -> None:
        """Take one file in.

        Raises:
            LoraRefusedError: its path leads out of the adapter's directory or is not a path, it is in the way of
                another, or the adapter became too large.
        """
        problem = _path_problem(file.path, self._limits) or self._clash(file.path)
        if problem:
            raise LoraRefusedError(self._address, f"file {peer_text(file.path, limit=_SHOWN)!r} {problem}")
        self._files[file.path] = file
        self._directories.update(map(str, PurePosixPath(file.path).parents))
        self._size += file.size
        limits = self._limits
        if len(self._files) > limits.max_files:
            raise LoraRefusedError(self._address, f"has more than {limits.max_files} files")
        if self._size > limits.max_bytes:
            raise LoraRefusedError(self._address, f"is larger than {limits.max_bytes} bytes")

    def build(self) -> Listing:
        """Return the listing.

        Raises:
            LoraRefusedError: there was no file.
        """
        if not self._files:
            raise LoraRefusedError(self._address, "there is nothing")
        return Listing(tuple(self._files[path] for path in sorted(self._files)))

    def _clash(self, path: str) -> str:
        parents = set(map(str, PurePosixPath(path).parents))
        if path in self._files or path in self._directories or parents.intersection(self._files):
            return "is in the way of another file"
        return ""


def _path_problem(path: str, limits: AdapterLimits) -> str:
    parts = path.split("/")
    if not path.isprintable() or "\\" in path:
        return "has characters that no file of an adapter needs"
    if {"", ".", ".."}.intersection(parts):
        return "leads out of the adapter's directory, or has empty parts"
    if len(parts) - 1 > limits.max_depth:
        return f"lies more than {limits.max_depth} directories deep"
    if max(len(part.encode()) for part in parts) > MAX_PART_BYTES:
        return f"has a part of more than {MAX_PART_BYTES} bytes"
    return ""

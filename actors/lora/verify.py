"""Is this directory an adapter that an engine may be sent to?"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from openengine_sidecar.actors.lora.config import AdapterLimits
from openengine_sidecar.messages.errors import LoraRefusedError
from openengine_sidecar.proto.text import peer_text

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt", "model.lora_weights.npy")


class Contents(msgspec.Struct, frozen=True):
    """What an adapter's directory holds."""

    files: int
    size: int


def verify(directory: Path, limits: AdapterLimits, subject: str) -> Contents:
    """Check a directory whose contents may come from anybody.

    Args:
        directory: what is to be checked.
        limits: what it may hold; directories and links count as files.
        subject: what errors call it.

    Raises:
        LoraRefusedError: it cannot be read, holds too much, or anything but files and directories of its own, or
            lacks weights or an `adapter_config.json` that is a JSON object.
    """
    inspection = _Inspection(directory, limits, subject)
    try:
        contents = inspection.measure()
        inspection.check_config()
        inspection.check_weights()
    except OSError as error:
        raise LoraRefusedError(subject, f"cannot be read: {error.strerror or error}") from error
    return contents


class _Inspection:
    def __init__(self, directory: Path, limits: AdapterLimits, subject: str) -> None:
        self._directory = directory
        self._limits = limits
        self._subject = subject

    def measure(self) -> Contents:
        root = self._directory.resolve(strict=True)
        files = size = 0
        for number, entry in enumerate(self._walk(self._directory, self._limits.max_depth), start=1):
            if number > self._limits.max_files:
                raise LoraRefusedError(self._subject, f"has more than {self._limits.max_files} files")
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                files += 1
                size += found.st_size
            elif not stat.S_ISDIR(found.st_mode):
                self._check_special(entry, root)
            if size > self._limits.max_bytes:
                raise LoraRefusedError(self._subject, f"is larger than {self._limits.max_bytes} bytes")
        return Contents(files, size)

    def check_config(self) -> None:
        path = self._directory / CONFIG
        if not path.is_file():
            raise LoraRefusedError(self._subject, f"is not an adapter: it has no {CONFIG}")
        with path.open("rb") as file:
            text = file.read(self._limits.max_config_bytes + 1)
        if len(text) > self._limits.max_config_bytes:
            raise LoraRefusedError(self._subject, f"{CONFIG} is larger than {self._limits.max_config_bytes} bytes")
        try:
            msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            problem = f"{CONFIG} is not a JSON object: {peer_text(str(error))}"
            raise LoraRefusedError(self._subject, problem) from error

    def check_weights(self) -> None:
        if not any(_has_bytes(self._directory / name) for name in WEIGHTS):
            raise LoraRefusedError(self._subject, f"is not an adapter: it has no weights ({', '.join(WEIGHTS)})")

    def _walk(self, directory: Path, depth: int) -> Iterator[os.DirEntry[str]]:
        with os.scandir(directory) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    if depth == 0:
                        raise LoraRefusedError(self._subject, f"{peer_text(entry.name)} lies too deep")
                    yield from self._walk(Path(entry.path), depth - 1)

    def _check_special(self, entry: os.DirEntry[str], root: Path) -> None:
        """A link may stay inside; an engine that follows one out reads what nobody meant to give it."""
        name = peer_text(entry.name)
        if not entry.is_symlink():
            raise LoraRefusedError(self._subject, f"{name} is neither a file nor a directory")
        if not _leads_into(Path(entry.path), root):
            raise LoraRefusedError(self._subject, f"{name} is a symbolic link that leads out of it, or nowhere")


def _leads_into(link: Path, root: Path) -> bool:
    try:
        return link.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):  # broken, or a loop
        return False


def _has_bytes(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0

"""Where adapters lie: an address as people write it, and what can be asked of the place behind it."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec

from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.config import AdapterLimits
from openengine_sidecar.actors.lora.listing import Listing, RemoteFile
from openengine_sidecar.messages.errors import LoraRefusedError
from openengine_sidecar.proto.text import peer_text

MAX_ADDRESS = 2048

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_REPOSITORY = re.compile(r"(?P<repo>(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?", re.ASCII)
_STEPS = {".", ".."}
_PASSING = {408, 429}
_SERVER_ERRORS = 500


class LocalPlace(msgspec.Struct, frozen=True):
    """A directory that the engine sees too: used where it is."""

    path: str


class S3Place(msgspec.Struct, frozen=True):
    """All objects under a prefix, which has no slash at either end."""

    bucket: str
    prefix: str


class HubPlace(msgspec.Struct, frozen=True):
    """A model repository of a hub, at a branch, a tag or a commit."""

    repo: str
    revision: str = "main"


Place = LocalPlace | S3Place | HubPlace


class Body(msgspec.Struct, frozen=True):
    """The bytes of a file from `offset` on: where it was asked to begin, or 0 where the place cannot do that."""

    offset: int
    chunks: Iterator[bytes]


class Source(Protocol):
    """A place that adapters are fetched from. Blocks; belongs to one thread."""

    def list(self, limits: AdapterLimits, cancel: CancelToken) -> Listing:
        """List what the adapter consists of, and stop where it is too much.

        Raises:
            LoraRefusedError: nothing there, or nothing that an adapter may consist of.
            LoraSourceError: the place cannot be read.
            LoraCancelledError: nobody wants it any more.
        """
        ...

    def read(self, file: RemoteFile, offset: int) -> AbstractContextManager[Body]:
        """Read one file of the listing.

        Raises:
            LoraSourceError: on entering, or between chunks: the place cannot be read.
        """
        ...


def parse_address(address: str) -> Place:
    """Read an address: an absolute path, `file://`, `s3://bucket/prefix` or `hf://[owner/]name[@revision]`.

    Raises:
        LoraRefusedError: it is none of these, or takes a step outside of what it names (`..`).
    """
    shown = peer_text(address)
    if not 0 < len(address) <= MAX_ADDRESS or not address.isprintable():
        raise LoraRefusedError(shown or "''", f"an address is 1 to {MAX_ADDRESS} printable characters")
    scheme, separator, rest = address.partition("://")
    if not separator:
        return _path(shown, address)
    reader = _SCHEMES.get(scheme.lower())
    if reader is None:
        raise LoraRefusedError(shown, f"no adapters from {scheme}://, only file://, s3:// and hf://")
    return reader(shown, rest)


def require(module: str, extra: str, address: str) -> Any:
    """Import what one kind of source needs, the first time that somebody needs it.

    Raises:
        LoraRefusedError: it is not installed; says what to install.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise LoraRefusedError(address, f"needs {error.name}: pip install 'openengine-sidecar[{extra}]'") from error


def is_transient(status: int) -> bool:
    """Whether an HTTP status speaks of a trouble that passes."""
    return status in _PASSING or status >= _SERVER_ERRORS


def _path(shown: str, path: str) -> LocalPlace:
    if not path.startswith("/"):
        raise LoraRefusedError(shown, "the path is not absolute")
    if _STEPS.intersection(path.split("/")):
        raise LoraRefusedError(shown, "the path must not contain . or ..")
    return LocalPlace("/" + os.path.normpath(path).lstrip("/"))


def _file(shown: str, rest: str) -> LocalPlace:
    path = unquote(rest.removeprefix("localhost"))
    if "?" in rest or "#" in rest or not path.isprintable():
        raise LoraRefusedError(shown, "a file address is a path alone, of printable characters")
    if not path.startswith("/"):
        raise LoraRefusedError(shown, "a file address has three slashes and an absolute path: file:///adapters/one")
    return _path(shown, path)


def _s3(shown: str, rest: str) -> S3Place:
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if not _BUCKET.fullmatch(bucket):
        raise LoraRefusedError(shown, f"{peer_text(bucket)!r} is not the name of a bucket")
    if not prefix or {"", *_STEPS}.intersection(prefix.split("/")):
        raise LoraRefusedError(shown, "needs the prefix of one adapter, without empty parts, . and ..")
    return S3Place(bucket, prefix)


def _hub(shown: str, rest: str) -> HubPlace:
    match = _REPOSITORY.fullmatch(rest)
    if match is None or ".." in rest:
        raise LoraRefusedError(shown, "is not hf://owner/name or hf://owner/name@revision")
    return HubPlace(match["repo"], match["revision"] or "main")


_SCHEMES: Mapping[str, Callable[[str, str], Place]] = {"file": _file, "s3": _s3, "hf": _hub}

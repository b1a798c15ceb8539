"""From the text of a setting to its value. Each function raises ValueError with one line that says what would do."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn
from urllib.parse import SplitResult, urlsplit

from openengine_sidecar.actors.config import KvEvents
from openengine_sidecar.launch.log_filter import LogFilter
from openengine_sidecar.messages.engine.discovery import Role

_PLAINTEXT_SCHEMES = frozenset({"http", "grpc"})
_NATS_SCHEMES = frozenset({"nats", "tls", "ws", "wss"})
_SIZE = re.compile(r"(\d+)\s*(?:([KMG])iB|B)?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?")
_HTTP_PATH = re.compile(r"/[A-Za-z0-9._~/-]+")
_UNUSABLE_HOST = re.compile(r"[\s,\x00-\x1f]")
_HIGHEST_PORT = 65_535
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_TRUTHS = dict.fromkeys(("true", "t", "1", "yes", "y", "on"), True) | dict.fromkeys(
    ("false", "f", "0", "no", "n", "off"), False
)


def _refuse(problem: str) -> NoReturn:
    raise ValueError(problem)


def seconds(text: str, *, zero: bool = False) -> float:
    """Read a finite duration in seconds, above 0 unless `zero`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        _refuse(f"{text} is not a number of seconds {'from' if zero else 'above'} 0")
    return value


def count(text: str, *, highest: int = 2**31 - 1) -> int:
    """Read a whole number from 1 to the highest."""
    value = _whole(text)
    if not 1 <= value <= highest:
        _refuse(f"{text} is not a number from 1 to {highest}")
    return value


def byte_size(text: str) -> int:
    """Read a size of at least one byte: `1048576`, `64MiB`."""
    match = _SIZE.fullmatch(text)
    size = int(match[1]) * _SIZE_UNITS[(match[2] or "").lower()] if match else 0
    if size < 1:
        _refuse(f"{text!r} is not a size of at least one byte, such as 1048576 or 64MiB")
    return size


def port(text: str) -> int | None:
    """Read a TCP port: 0 picks a free one, -1 is off and becomes None."""
    value = _whole(text)
    if not -1 <= value <= _HIGHEST_PORT:
        _refuse(f"{text} is not a port; give 1 to 65535, 0 for any free one, or -1 for off")
    return None if value < 0 else value


def engine_address(text: str) -> str:
    """Read `host:port`, or a plaintext URL of it (http://, grpc://), as `host:port`; IPv6 keeps its brackets."""
    try:
        parts = urlsplit(text if "://" in text else f"grpc://{text}")
        number = parts.port
    except ValueError:
        _refuse("not an address; give host:port with a port from 1 to 65535")
    if problem := _address_problem(parts, number):
        _refuse(f"{problem}; give host:port, http://host:port or grpc://host:port")
    return parts.netloc


def _address_problem(parts: SplitResult, number: int | None) -> str:
    if parts.scheme not in _PLAINTEXT_SCHEMES:
        return f"scheme {parts.scheme!r} is not supported (engine connections are plaintext)"
    if "@" in parts.netloc:
        return "credentials do not belong here"
    if parts.path.strip("/") or parts.query or parts.fragment:
        return "path, query and fragment do not belong here"
    if not parts.hostname or _UNUSABLE_HOST.search(parts.netloc):
        return "the host is missing or unusable"
    return "" if number else "the port is missing"


def nats_servers(text: str) -> tuple[str, ...]:
    """Read NATS URLs separated by commas. They are never echoed: they may hold credentials."""
    return tuple(_nats_server(entry) for entry in words(text))


def _nats_server(entry: str) -> str:
    url = entry if "://" in entry else f"nats://{entry}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _NATS_SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    return url if usable else _refuse("not a NATS URL; give nats://host:port (or tls://, ws://, wss://)")


def words(text: str, *, among: Sequence[str] = ()) -> tuple[str, ...]:
    """Read distinct words separated by commas, at least one, in order."""
    entries = tuple(dict.fromkeys(entry.strip() for entry in text.split(",") if entry.strip()))
    if not entries:
        _refuse("the list is empty")
    if among and (strangers := [entry for entry in entries if entry not in among]):
        _refuse(f"{strangers[0]!r} is not supported in this release; supported: {', '.join(among)}")
    return entries


def one_of(*supported: str, later: Sequence[str] = ()) -> Callable[[str], str]:
    """Make a reader of one word; a word that Dynamo knows and this release does not is refused as such."""

    def read(text: str) -> str:
        word = text.lower()
        if word not in supported:
            verdict = "is not supported in this release" if word in later else "is not known"
            _refuse(f"{text!r} {verdict}; supported: {', '.join(supported)}")
        return word

    return read


_served_role = one_of(*(role.value for role in Role), later=("encode",))
_log_format = one_of("text", "json")
_kv_events = one_of(*KvEvents)


def served_role(text: str) -> Role:
    """Read a role that this release serves."""
    return Role(_served_role(text))


def kv_events(text: str) -> KvEvents:
    """Read whether KV events are published."""
    return KvEvents(_kv_events(text))


def name(text: str) -> str:
    """Read a namespace, component or endpoint name: it becomes part of subjects and keys."""
    if not _NAME.fullmatch(text):
        _refuse(f"{text!r} may hold only letters, digits, '_', '-' and inner dots")
    return text


def http_path(text: str) -> str:
    """Read an absolute path of the system server."""
    if not _HTTP_PATH.fullmatch(text):
        _refuse(f"{text!r} is not a path such as /health")
    return text


def model_directory(text: str) -> Path:
    """Read the path of an existing directory; nothing is ever downloaded."""
    path = Path(text)
    if not path.is_dir():
        _refuse(f"{text!r} is not a directory; models are read from disk, never downloaded")
    return path.absolute()


def store_directory(text: str) -> Path:
    """Read the path of a directory that may not exist yet."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        _refuse(f"{text!r} is not a directory")
    return path.absolute()


def readable_file(text: str) -> Path:
    """Read the path of a file that can be opened."""
    path = Path(text)
    try:
        path.open("rb").close()
    except OSError as error:
        _refuse(f"{text!r} cannot be read: {error.strerror}")
    return path.absolute()


def log_filter(text: str) -> LogFilter:
    """Read the syntax of `DYN_LOG`."""
    return LogFilter.parse(text)


def log_format(text: str) -> str:
    """Read `text` or `json`; a truth value, as Dynamo's DYN_LOGGING_JSONL has it, chooses json or text."""
    word = text.lower()
    return _log_format(("json" if _TRUTHS[word] else "text") if word in _TRUTHS else word)


def truth(text: str) -> bool:
    """Read `true` or `false`, or one of the words that stand for them."""
    word = text.lower()
    if word not in _TRUTHS:
        _refuse(f"{text!r} is neither true nor false")
    return _TRUTHS[word]


def _whole(text: str) -> int:
    return int(text) if _WHOLE.fullmatch(text) else _refuse(f"{text!r} is not a whole number")

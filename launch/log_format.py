"""How one log record looks. Nothing a peer wrote can break a record in two or command the terminal."""

from __future__ import annotations

import math
import re
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from openengine_sidecar.launch.log_filter import PACKAGE

if TYPE_CHECKING:
    from loguru import Record

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_COLOURS = {"TRACE": "90", "DEBUG": "36", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
_BARE = re.compile(r"[^\s\"'=]+")
_SIGNED_64 = -(2**63)
_UNSIGNED_64 = 2**64
_BOUND = ("actor", "request_id")


def escaped(text: str) -> str:
    """Write control, line-breaking, direction-changing and lone surrogate characters as escapes."""
    return _UNPRINTABLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT_ESCAPES.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")  # noqa: PLR2004 - the last code of one byte


def timestamp(moment: datetime, *, local: bool) -> str:
    """Write a moment as ISO 8601 with milliseconds, in UTC (`Z`) or local time (with its offset)."""
    if local:
        return moment.astimezone().isoformat(timespec="milliseconds")
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def target_of(record: Record) -> str:
    """Return the module or logger a record comes from, without the package's name."""
    return (record["name"] or "").removeprefix(PACKAGE)


class JsonLines:
    """One JSON object a record: time, level, message, target, actor, request_id, then what else was bound."""

    def __init__(self, *, local: bool = False) -> None:
        self._local = local

    def __call__(self, record: Record) -> str:
        """Render a record, without a line end."""
        fields: dict[str, object] = {
            "time": timestamp(record["time"], local=self._local),
            "level": record["level"].name,
            "message": escaped(record["message"]),
            "target": target_of(record),
        }
        fields |= {key: _plain(record["extra"][key]) for key in _BOUND if key in record["extra"]}
        if record["exception"] is not None:
            fields["exception"] = "\n".join(_traceback(record))
        for key, value in _further(record):
            fields[f"extra.{key}" if key in fields else key] = _plain(value)
        return msgspec.json.encode(fields).decode()


class TextLines:
    """One line a record, for people; a traceback follows on indented lines."""

    def __init__(self, *, local: bool = False, colour: bool = False) -> None:
        self._local = local
        self._colour = colour

    def __call__(self, record: Record) -> str:
        """Render a record, without the last line end."""
        extra = record["extra"]
        level = record["level"].name
        request = extra.get("request_id")
        parts = [
            self._paint("90", timestamp(record["time"], local=self._local)),
            self._paint(_COLOURS.get(level, "0"), f"{level:<7}"),
            self._paint("34", escaped(str(extra.get("actor") or target_of(record)))),
            self._paint("35", f"[{escaped(str(request))}]") if request is not None else "",
            escaped(record["message"]),
            *(self._paint("90", f"{escaped(key)}={_quoted(value)}") for key, value in _further(record)),
        ]
        return "\n    ".join([" ".join(filter(None, parts)), *_traceback(record)])

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text


def _further(record: Record) -> list[tuple[str, object]]:
    return [(key, value) for key, value in record["extra"].items() if key not in _BOUND]


def _traceback(record: Record) -> list[str]:
    caught = record["exception"]
    if caught is None:
        return []
    text = "".join(traceback.format_exception(caught.type, caught.value, caught.traceback))
    return [escaped(line) for line in text.rstrip().split("\n")]


def _plain(value: object) -> object:
    match value:
        case None | bool():
            return value
        case int() if _SIGNED_64 <= value < _UNSIGNED_64:
            return value
        case float() if math.isfinite(value):
            return value
        case _:
            return escaped(str(value))


def _quoted(value: object) -> str:
    text = escaped(str(value))
    return text if _BARE.fullmatch(text) else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

"""Logging of a process: loguru to standard error, the standard library's loggers routed in."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from loguru import logger

from openengine_sidecar.launch.log_filter import EVERYTHING_FROM_INFO, LEVELS, LogFilter
from openengine_sidecar.launch.log_format import JsonLines, TextLines

if TYPE_CHECKING:
    from loguru import Message, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How a process logs.

    Attributes:
        json: one JSON object a line, in place of text.
        filter: which records are kept.
        local_time: local time in place of UTC.
    """

    json: bool = False
    filter: LogFilter = EVERYTHING_FROM_INFO
    local_time: bool = False


def configure(options: LogOptions, *, stream: TextIO | None = None) -> None:
    """Send every record of loguru, of `logging` and of `warnings` to one stream, by default standard error.

    Text is coloured on a terminal unless NO_COLOR is set. Calling it again replaces what was set up before.
    """
    target = sys.stderr if stream is None else stream
    logger.remove()
    logger.add(
        _Sink(target, _renderer(options, target)),
        level=options.filter.lowest,
        filter=_keeps(options.filter),
        format="{message}",
        backtrace=False,
        diagnose=False,
    )
    logging.basicConfig(handlers=[_Bridge()], level=options.filter.lowest, force=True)
    logging.captureWarnings(capture=True)


def _renderer(options: LogOptions, stream: TextIO) -> Callable[[Record], str]:
    if options.json:
        return JsonLines(local=options.local_time)
    return TextLines(local=options.local_time, colour=stream.isatty() and not os.environ.get("NO_COLOR"))


def _keeps(kept: LogFilter) -> Callable[[Record], bool]:
    def keeps(record: Record) -> bool:
        return kept.admits(record["name"] or "", str(record["extra"].get("actor", "")), record["level"].no)

    return keeps


class _Sink:
    """Writes rendered records, one call to the stream each."""

    def __init__(self, stream: TextIO, render: Callable[[Record], str]) -> None:
        self._stream = stream
        self._render = render

    def __call__(self, message: Message) -> None:
        self._stream.write(self._render(message.record) + "\n")
        self._stream.flush()


class _Bridge(logging.Handler):
    """Hands records of the standard library to loguru, under the name of their own logger."""

    def emit(self, record: logging.LogRecord) -> None:
        def rename(entry: Record) -> None:
            entry["name"] = record.name

        level = record.levelname if record.levelname.lower() in LEVELS else record.levelno
        logger.opt(exception=record.exc_info).patch(rename).log(level, record.getMessage())

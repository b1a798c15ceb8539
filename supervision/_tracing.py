"""Following what happens: the signals that went through the tree, and the messages of actors that are traced."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
from loguru import logger

from openengine_sidecar.messages.signals import Cause, Signal

if TYPE_CHECKING:
    from openengine_sidecar.supervision._cell import Cell
    from openengine_sidecar.supervision._inbox import Letter

KEPT: Final = 1024


class SignalTrace(msgspec.Struct, frozen=True):
    """A signal at one place of the tree: Start, Drain and Cancel going down; Started, Drained and Escalate going up."""

    at: float
    path: str
    signal: Signal


class SignalTraces:
    """The last signals, oldest first."""

    def __init__(self) -> None:
        self._recent: deque[SignalTrace] = deque(maxlen=KEPT)

    def add(self, cell: Cell, signal: Signal) -> None:
        """Note a signal."""
        self._recent.append(SignalTrace(cell.system.clock.monotonic(), cell.path, signal))
        logger.bind(actor=cell.path).debug("{}", signal)

    def recent(self) -> tuple[SignalTrace, ...]:
        """What was noted."""
        return tuple(self._recent)


class FailureLog:
    """Says in the log how lives failed; a traceback that was shown is not shown again and again."""

    def __init__(self) -> None:
        self._shown: set[tuple[type, str, int]] = set()

    def log(self, path: str, cause: Cause) -> None:
        """Say it."""
        log = logger.bind(actor=path)
        error = cause.error
        if error is None or self._known(error):
            log.error("{}", cause)
        else:
            log.opt(exception=error).error("{}", cause)

    def _known(self, error: BaseException) -> bool:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        file, line = ("", 0) if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        signature = (type(error), file, line)
        if signature in self._shown:
            return True
        if len(self._shown) >= KEPT:
            self._shown.clear()
        self._shown.add(signature)
        return False


def log_message(cell: Cell, letter: Letter) -> None:
    """Say that a traced actor is about to handle a message."""
    sender = f" from {letter.sender.path}" if letter.sender is not None else ""
    kind = "asked" if letter.reply is not None else "told"
    logger.bind(actor=cell.path).info("{}{}: {}", kind, sender, _brief(letter.message))


def _brief(message: Any, limit: int = 200) -> str:
    text = repr(message)
    return text if len(text) <= limit else f"{text[:limit]}..."

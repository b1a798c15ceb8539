"""Telling a thread that fetches an adapter to give up."""

from __future__ import annotations

import threading

from openengine_sidecar.messages.errors import LoraCancelledError


class CancelToken:
    """One fetch's order to stop: given by any thread, looked at by the one that fetches."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._reason = ""
        self._event = threading.Event()

    def cancel(self, reason: str) -> None:
        """Give the order; the first reason stays."""
        if not self._event.is_set():
            self._reason = reason
            self._event.set()

    def check(self) -> None:
        """Go on, or stop.

        Raises:
            LoraCancelledError: the order was given.
        """
        if self._event.is_set():
            raise LoraCancelledError(self._subject, f"cancelled: {self._reason}")

    def sleep(self, seconds: float) -> None:
        """Wait.

        Raises:
            LoraCancelledError: the order was given before, or while waiting.
        """
        self._event.wait(seconds)
        self.check()

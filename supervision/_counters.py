"""What the kit counts, for metrics: monotonic, never reset, safe from any thread."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum


class Count(StrEnum):
    """Everything that is counted, besides dead letters (those are counted by reason)."""

    STARTS = "starts"  # first lives begun
    FAILURES = "failures"  # lives ended by an error, kill or a start that came to nothing
    RESUMED = "resumed"  # failures of a handler that cost no more than the message
    INCIDENTS = "incidents"  # failures a supervisor answered for, one per incident
    RESTARTS = "restarts"  # lives begun after the first at an address
    ESCALATIONS = "escalations"  # times a supervisor gave up
    KILLS = "kills"  # actors cancelled because they took too long to stop
    ABANDONED = "abandoned"  # actors that ignored even that
    REJECTIONS = "rejections"  # messages refused by a full mailbox
    EXPIRED_ASKS = "expired_asks"  # asks whose deadline passed before they were handled
    LATE_REPLIES = "late_replies"  # replies to asks that had timed out
    STOP_FAILURES = "stop_failures"  # errors raised by on_stop


class Counters(Mapping[str, int]):
    """Live counts by name; absent is 0."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str) -> int:
        """Count one more; returns the new count."""
        with self._lock:
            self._counts[name] += 1
            return self._counts[name]

    def snapshot(self) -> dict[str, int]:
        """A copy of all counts above zero."""
        with self._lock:
            return dict(self._counts)

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.snapshot())

    def __len__(self) -> int:
        return len(self._counts)

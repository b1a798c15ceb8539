"""Gaps between the tokens of one request, counted in passing: half a microsecond for each batch of tokens."""

from __future__ import annotations

from bisect import bisect_left

from openengine_sidecar.messages.facts import GAP_BOUNDS, TokenGaps


class GapCounter:
    """Tokens that come together share the time since the ones before."""

    def __init__(self) -> None:
        self._counts = [0] * (len(GAP_BOUNDS) + 1)
        self._seconds = 0.0
        self._last: float | None = None

    def tokens(self, number: int, now: float) -> None:
        """Take note of tokens that came at this moment, at least one."""
        last, self._last = self._last, now
        if last is not None:
            self._counts[bisect_left(GAP_BOUNDS, (now - last) / number)] += number
            self._seconds += now - last

    @property
    def gaps(self) -> TokenGaps | None:
        """What was counted; None before the second batch."""
        return TokenGaps(tuple(self._counts), self._seconds) if any(self._counts) else None

"""From single health answers to a verdict: hysteresis, without I/O or clock."""

from __future__ import annotations

from enum import Enum

from openengine_sidecar.messages.engine.control import HealthState


class Verdict(Enum):
    """What the last answers add up to."""

    SERVING = "serving"
    NOT_SERVING = "not serving"
    LOST = "lost"


class HealthPolicy:
    """One success brings an engine back, a few failures in a row take it out; what it says of itself counts at once.

    Args:
        misses: failed polls in a row after which the engine is out (at least 1).
        degraded_is_ready: whether DEGRADED may serve.
    """

    def __init__(self, *, misses: int, degraded_is_ready: bool) -> None:
        self._limit = misses
        self._ready = {HealthState.READY} | ({HealthState.DEGRADED} if degraded_is_ready else set())
        self.missed_in_row = 0
        self.verdict = Verdict.NOT_SERVING

    def answered(self, state: HealthState) -> Verdict:
        """Take an answer in."""
        self.missed_in_row = 0
        self.verdict = Verdict.SERVING if state in self._ready else Verdict.NOT_SERVING
        return self.verdict

    def missed(self, *, reachable: bool) -> Verdict:
        """Take a late or failed poll in.

        Args:
            reachable: whether the engine itself answered, if only to fail the poll: it is then not lost, its streams
                may live.
        """
        self.missed_in_row += 1
        if self.missed_in_row >= self._limit:
            self.verdict = Verdict.NOT_SERVING if reachable else Verdict.LOST
        return self.verdict

"""Whether a batch is the one that was due: the law of sequence numbers, for one rank and one subscription.

The protocol says only that numbers rise. Taken strictly: the next one is due, a jump means that batches were lost, and
what is not above the last number was heard before.
"""

from __future__ import annotations

from enum import Enum


class Step(Enum):
    """What a batch's number says of it."""

    NEXT = "next"
    """It was due, or it is the first of a subscription that may start anywhere."""

    REPEAT = "repeat"
    """It was heard before, or comes too late: leave it out."""

    GAP = "gap"
    """Batches before it are missing: forget what the rank holds, then take it, and see to the missing ones."""

    RESTART = "restart"
    """The engine is another instance than before: forget what the rank held, then take it."""

    @property
    def clears(self) -> bool:
        """Whether what is known of the rank can no longer be trusted."""
        return self in (Step.GAP, Step.RESTART)


class SequenceLaw:
    """One subscription's numbers. After a gap it goes on from the batch behind it, so one loss is one gap.

    Args:
        due: the first number, where the subscription was asked to start there; None lets it start anywhere.

    Attributes:
        last: highest number seen; None before the first batch.
        missing: batches that were due before the one observed last.
    """

    def __init__(self, due: int | None = None) -> None:
        self.last: int | None = None
        self.missing = 0
        self._due = due
        self._instance = ""

    def observe(self, sequence: int, instance: str = "") -> Step:
        """Judge a batch by its number.

        Args:
            sequence: the batch's number.
            instance: the engine instance that is known to run now, empty where it is not known.
        """
        restarted = bool(self._instance and instance and instance != self._instance)
        self._instance = instance or self._instance
        self.missing = 0
        if restarted:
            step = Step.RESTART
        elif self._due is None or sequence == self._due:
            step = Step.NEXT
        elif sequence > self._due:
            step = Step.GAP
            self.missing = sequence - self._due
        else:
            return Step.REPEAT
        self.last, self._due = sequence, sequence + 1
        return step

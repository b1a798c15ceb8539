"""Dead letters: what could not be delivered is kept for a while, counted by reason, and said in the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec
from loguru import logger

from openengine_sidecar.supervision._counters import Counters

KEPT: Final = 256


class DeadReason(StrEnum):
    """Why a message was not delivered."""

    GONE = "gone"  # told to somebody who is gone for good
    NEVER_LIVED = "never_lived"  # told to an address where nobody has lived yet
    STOPPED = "stopped"  # still in the mailbox when its owner was gone for good
    UNKNOWN_MESSAGE = "unknown_message"  # not in the protocol of its receiver
    DROPPED_NEW = "dropped_new"  # mailbox full, policy DROP_NEW; also a fact a full subscriber could not take
    DROPPED_OLD = "dropped_old"  # mailbox full, policy DROP_OLD
    LOOP_CLOSED = "loop_closed"  # told from another thread after the event loop was closed


class DeadLetter(msgspec.Struct, frozen=True):
    """One message that was not delivered.

    Attributes:
        message: the message itself.
        recipient: path it was told to.
        sender: path it was told from, where the teller said so.
        reason: why it was not delivered.
        at: when, on the system's clock.
    """

    message: object
    recipient: str
    sender: str | None
    reason: DeadReason
    at: float


class DeadLetters:
    """The last dead letters, and the counts of all of them by reason."""

    def __init__(self, kept: int = KEPT) -> None:
        self._recent: deque[DeadLetter] = deque(maxlen=kept)
        self._counts = Counters()

    @property
    def counts(self) -> Counters:
        """How many, by reason (`DeadReason`)."""
        return self._counts

    @property
    def total(self) -> int:
        """How many, for whatever reason."""
        return sum(self._counts.snapshot().values())

    def add(self, letter: DeadLetter) -> None:
        """Take one in. The log hears of the 1st, 2nd, 4th, 8th ... of each reason."""
        self._recent.append(letter)
        count = self._counts.add(letter.reason)
        if count & (count - 1) == 0:
            logger.bind(actor=letter.recipient).warning(
                "dead letter ({}, {} so far): {}", letter.reason.value, count, type(letter.message).__name__
            )

    def __iter__(self) -> Iterator[DeadLetter]:
        return iter(tuple(self._recent))

    def __len__(self) -> int:
        return len(self._recent)

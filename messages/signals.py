"""The closed set of signals supervision speaks in, and the values they carry.

Signals travel in a lane of their own and overtake ordinary mail. Downwards: `Start`, `Drain`, `Cancel`, `Stop`.
Upwards: `Started`, `Drained`, `Terminated`, `Escalate`. Pure values: an actor is named by its `Address`, never held.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

import msgspec


class Address(msgspec.Struct, frozen=True, order=True):
    """Names one life of one actor.

    Attributes:
        path: where it stands in the tree, `/root/child/grandchild`.
        incarnation: which life, counted from 1; 0 when nobody ever lived there.
    """

    path: str
    incarnation: int = 0

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.path}#{self.incarnation}"


class CauseKind(StrEnum):
    """Why a life ended."""

    STOPPED = "stopped"  # asked to, by itself or by whoever supervises it
    FAILED = "failed"  # a hook, a handler or a background task raised
    NOT_READY = "not_ready"  # its start took longer than its ready_timeout
    KILLED = "killed"  # cancelled, because it took longer to stop than it may
    ABANDONED = "abandoned"  # ignored even the cancellation; what still runs of it is cut off
    NEVER_LIVED = "never_lived"  # nobody ever lived at this address


class Cause(msgspec.Struct, frozen=True):
    """Why a life ended, for people (`reason`) and for code (`kind`, `error`)."""

    kind: CauseKind
    reason: str = ""
    error: BaseException | None = None

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """The cause that stands for an error."""
        return cls(CauseKind.FAILED, f"{type(error).__name__}: {error}", error)

    @property
    def normal(self) -> bool:
        """Whether this end was asked for: a transient child is then not restarted."""
        return self.kind is CauseKind.STOPPED

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" if self.reason else str(self.kind)


class Start(msgspec.Struct, frozen=True):
    """Begin a life."""


class Started(msgspec.Struct, frozen=True):
    """The child is ready."""


class Drain(msgspec.Struct, frozen=True):
    """Finish what is under way and take on nothing new.

    Attributes:
        deadline: moment on the system's monotonic clock, seconds; what is not done by then is stopped.
        reason: why, for people.
    """

    deadline: float
    reason: str


class Drained(msgspec.Struct, frozen=True):
    """Nothing is under way any more."""


class Cancel(msgspec.Struct, frozen=True):
    """Give up what is under way."""

    reason: str


class Stop(msgspec.Struct, frozen=True):
    """End after the current message; what waits in the mailbox is not handled any more."""

    reason: str = "stopped"


class Terminated(msgspec.Struct, frozen=True):
    """A watched actor, or a child, is gone for good."""

    address: Address
    cause: Cause


class Escalate(msgspec.Struct, frozen=True):
    """A supervisor gives up: its own parent must decide. `cause` is the end that broke it."""

    cause: Cause


Signal = Start | Started | Drain | Drained | Cancel | Stop | Terminated | Escalate

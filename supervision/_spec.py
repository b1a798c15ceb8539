"""What a supervisor is told about its children: frozen values, durations in seconds."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from openengine_sidecar.supervision._clock import INFINITY
from openengine_sidecar.supervision.errors import ChildSpecError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._behaviour import Behaviour

PROGRAMMING_ERRORS: Final[tuple[type[BaseException], ...]] = (
    TypeError,
    AttributeError,
    NameError,
    ImportError,
    NotImplementedError,
    AssertionError,
    msgspec.ValidationError,
)
"""Errors that a restart cannot mend: the supervisor escalates at once instead of looping."""

WORKER_SHUTDOWN: Final = 5.0
MAX_DOUBLINGS: Final = 32


class Restart(StrEnum):
    """Which ends of a child a supervisor answers with a new life."""

    PERMANENT = "permanent"  # every end
    TRANSIENT = "transient"  # every end but a normal one
    TEMPORARY = "temporary"  # none


class Strategy(StrEnum):
    """Which siblings share the fate of a failed child. Groups are stopped in reverse and started in order."""

    ONE_FOR_ONE = "one_for_one"  # none
    ONE_FOR_ALL = "one_for_all"  # all of them
    REST_FOR_ONE = "rest_for_one"  # those started after it


class AutoShutdown(StrEnum):
    """When a supervisor ends, normally, because significant children ended by themselves."""

    NEVER = "never"
    ANY_SIGNIFICANT = "any_significant"
    ALL_SIGNIFICANT = "all_significant"


class Overflow(StrEnum):
    """What happens to a message told to a full mailbox."""

    REJECT = "reject"  # MailboxFullError to the teller
    DROP_NEW = "drop_new"  # this message goes to dead letters
    DROP_OLD = "drop_old"  # the oldest message goes to dead letters


class Shutdown(Enum):
    """How to stop a child, other than by waiting a number of seconds."""

    KILL = "kill"


KILL: Final = Shutdown.KILL
"""Cancel the child at once, without letting its current message finish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mailbox:
    """Bound of a mailbox.

    Attributes:
        capacity: messages held, also over a restart; at least 1.
        overflow: what happens to one more.
    """

    capacity: int = 1024
    overflow: Overflow = Overflow.REJECT

    def __post_init__(self) -> None:
        if self.capacity < 1:
            msg = f"a mailbox holds at least one message, not {self.capacity}"
            raise ChildSpecError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before a new life: doubled from `minimum` up to `maximum`.

    Attributes:
        minimum: the first delay.
        maximum: the longest delay.
        jitter: share of the delay that is random, 0 to 1; 1 spreads it evenly over (0, delay].
        reset_after: health, in seconds, after which doubling begins anew.
    """

    minimum: float = 0.1
    maximum: float = 10.0
    jitter: float = 1.0
    reset_after: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum or not 0 <= self.jitter <= 1:
            msg = f"back-off needs 0 <= minimum <= maximum and a jitter from 0 to 1: {self}"
            raise ChildSpecError(msg)

    def delay(self, attempt: int, rng: random.Random) -> float:
        """Seconds to wait before restart number `attempt`, counted from 0."""
        doubled = self.minimum * 2.0 ** min(attempt, MAX_DOUBLINGS)
        return min(self.maximum, doubled) * (1.0 - self.jitter * rng.random())


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartBudget:
    """How many incidents a supervisor answers with a restart: `max_restarts` in any `window` seconds."""

    max_restarts: int = 5
    window: float = 30.0


class BudgetWindow:
    """The sliding window of one supervisor. One incident counts once, however many children it touches."""

    def __init__(self, budget: RestartBudget) -> None:
        self._budget = budget
        self._incidents: deque[float] = deque(maxlen=budget.max_restarts + 1)

    def spend(self, now: float) -> bool:
        """Count an incident at `now`; returns whether the budget still covers it."""
        incidents = self._incidents
        incidents.append(now)
        while incidents[0] <= now - self._budget.window:
            incidents.popleft()
        return len(incidents) <= self._budget.max_restarts


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):  # no dataclass: pools make one for every child
    """Everything a parent needs to know about a child.

    Attributes:
        name: unique among its siblings; the last segment of its path, so neither empty nor with a slash.
        factory: makes a fresh actor for each life.
        restart: which ends are answered with a new life; children of `Actor.spawn` are never restarted.
        significant: whether its end counts for its supervisor's auto-shutdown.
        shutdown: seconds it may take to stop, `INFINITY`, or `KILL`; None is 5 s, for a supervisor `INFINITY`.
        ready_timeout: seconds until `on_start` must have returned, or `INFINITY`.
        backoff: the wait before a restart.
        mailbox: its bound.
        drain_reserve: seconds that siblings drained before it must leave it.
        resume: errors of a handler that cost no more than the message: the actor keeps its state and goes on.
    """

    name: str
    factory: Callable[[], Behaviour[Any]]
    restart: Restart = Restart.PERMANENT
    significant: bool = False
    shutdown: float | Shutdown | None = None
    ready_timeout: float = 30.0
    backoff: Backoff = Backoff()
    mailbox: Mailbox = Mailbox()
    drain_reserve: float = 0.5
    resume: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            msg = f"{self.name!r} cannot name a child: it is a segment of a path"
            raise ChildSpecError(msg)
        patient = self.shutdown is None or self.shutdown is KILL or self.shutdown >= 0
        if not (patient and self.ready_timeout >= 0 and self.drain_reserve >= 0):
            msg = f"child {self.name}: durations are seconds, none of them negative: {self}"
            raise ChildSpecError(msg)

    def patience(self, *, supervises: bool) -> float | Shutdown:
        """How long this child may take to stop."""
        if self.shutdown is not None:
            return self.shutdown
        return INFINITY if supervises else WORKER_SHUTDOWN

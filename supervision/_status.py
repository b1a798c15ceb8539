"""What a look at the tree shows."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ActorState(StrEnum):
    """Where an actor is in its life."""

    WAITING = "waiting"  # its turn to start has not come
    STARTING = "starting"  # in on_start
    RUNNING = "running"  # handles mail
    DRAINING = "draining"  # finishes what is under way
    STOPPING = "stopping"  # its children and background tasks end, then on_stop runs
    BACKOFF = "backoff"  # between two lives; mail is held
    GONE = "gone"  # for good


class ActorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One actor at one moment.

    Attributes:
        path: its address.
        kind: name of its class, empty while it has no life.
        state: where it is in its life.
        incarnation: which life, counted from 1.
        mailbox: messages waiting.
        high_water: most messages that ever waited at once.
        restarts: restarts within its supervisor's window.
        last_failure: how its last failed life ended, empty without one.
        age: seconds since this life began, 0 without one.
        traced: whether its messages are logged.
    """

    path: str
    kind: str
    state: ActorState
    incarnation: int
    mailbox: int
    high_water: int
    restarts: int
    last_failure: str
    age: float
    traced: bool

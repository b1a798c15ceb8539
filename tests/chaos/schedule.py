"""What goes wrong, and when: drawn from a seed, so that a run can be had again."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """Faults. Each lasts for its `seconds` and is then undone."""

    ENGINE_KILL = "engine killed"
    ENGINE_STALL = "engine stopped"
    ENGINE_CUT = "engine sockets cut"
    ENGINE_DELAY = "engine sockets slow"
    ENGINE_HOLD = "engine sockets silent"
    NATS_KILL = "NATS killed"
    NATS_CUT = "NATS sockets cut"
    NATS_DELAY = "NATS sockets slow"
    RECORDS_EXPIRED = "records expired"
    RECORDS_DELETED = "records deleted"
    DISK_FULL = "store full, records gone"
    WORKER_STALL = "worker stopped past its lease"
    CLOCK_SKEW = "worker's clock wrong"
    ACTOR_CRASH = "actor crashed"


VICTIMS: Final = ("stream", "gate", "engine", "registrar", "reporter")
STALL_PAST_LEASE: Final = (11.0, 14.0)
SHARES: Final[Mapping[Kind, int]] = {
    Kind.ENGINE_KILL: 4,
    Kind.ENGINE_STALL: 2,
    Kind.ENGINE_CUT: 2,
    Kind.ENGINE_DELAY: 1,
    Kind.ENGINE_HOLD: 1,
    Kind.NATS_KILL: 2,
    Kind.NATS_CUT: 2,
    Kind.NATS_DELAY: 1,
    Kind.RECORDS_EXPIRED: 1,
    Kind.RECORDS_DELETED: 1,
    Kind.DISK_FULL: 1,
    Kind.WORKER_STALL: 1,
    Kind.CLOCK_SKEW: 1,
    Kind.ACTOR_CRASH: 12,
}
_LENGTHS: Final[Mapping[Kind, tuple[float, float]]] = {
    Kind.ENGINE_KILL: (0.2, 2.0),
    Kind.ENGINE_STALL: (0.5, 4.0),
    Kind.ENGINE_DELAY: (0.5, 2.0),
    Kind.ENGINE_HOLD: (0.5, 3.0),
    Kind.NATS_KILL: (0.2, 2.0),
    Kind.NATS_DELAY: (0.5, 2.0),
    Kind.DISK_FULL: (1.0, 3.0),
    Kind.WORKER_STALL: STALL_PAST_LEASE,
    Kind.CLOCK_SKEW: (1.0, 3.0),
}
_SKEWS: Final = (15.0, 3_600.0, 86_400.0)
_GAPS: Final = (0.2, 1.0)
SLICE_KINDS: Final = frozenset(Kind) - {Kind.WORKER_STALL}
"""What a short run can afford."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        at: seconds after the start, at the earliest.
        seconds: how long it lasts; 0 where it is over at once.
        target: number of the worker, and of the engine behind it.
        victim: the actor that crashes, by kind; empty for every other fault.
        draw: picks one where the victim is one of many.
    """

    at: float
    kind: Kind
    seconds: float
    target: int
    victim: str = ""
    draw: int = 0

    @property
    def skew(self) -> float:
        """How far a clock is from the truth, in seconds: fast or slow, further than a lease lasts."""
        sign, size = divmod(self.draw, len(_SKEWS))
        return _SKEWS[size] if sign % 2 else -_SKEWS[size]

    def __str__(self) -> str:
        what = f"{self.kind}: {self.victim}" if self.victim else self.kind
        return f"{what} (worker {self.target}, {self.seconds:.1f} s)"


def schedule(seed: int, duration: float, *, kinds: Collection[Kind] = tuple(Kind), targets: int = 1) -> list[Fault]:
    """Faults one after the other over `duration` seconds, every kind about as often as its share says.

    Each kind comes once before any comes at random, so that a short run leaves none out that it has time for.
    """
    draw = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    wanted = [kind for kind in Kind if kind in kinds]
    first = draw.sample(wanted, len(wanted))
    faults: list[Fault] = []
    at = draw.uniform(*_GAPS)
    while at < duration:
        kind = first.pop() if first else draw.choices(wanted, [SHARES[kind] for kind in wanted])[0]
        fault = _fault(draw, at, kind, targets)
        faults.append(fault)
        at += fault.seconds + draw.uniform(*_GAPS)
    return faults


def crashes(seed: int, count: int, deaths: int, *, targets: int = 1) -> list[Fault]:
    """`count` actor crashes with `deaths` engine deaths among them, back to back."""
    draw = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    kinds = [Kind.ACTOR_CRASH] * count + [Kind.ENGINE_KILL] * deaths
    draw.shuffle(kinds)
    return [_fault(draw, 0.0, kind, targets) for kind in kinds]


def _fault(draw: random.Random, at: float, kind: Kind, targets: int) -> Fault:
    length = _LENGTHS.get(kind)
    seconds = draw.uniform(*length) if length else 0.0
    victim = draw.choice(VICTIMS) if kind is Kind.ACTOR_CRASH else ""
    return Fault(at, kind, seconds, draw.randrange(targets), victim, draw.getrandbits(16))

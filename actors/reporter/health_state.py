"""Whether this worker is ready, check by check, since when and why. Pure: facts go in, a report comes out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from openengine_sidecar.messages.engine.control import HealthState as EngineState
from openengine_sidecar.messages.facts import (
    EngineDown,
    EngineHealth,
    EngineUp,
    EventPlaneState,
    KvFollowing,
    PlaneState,
    Registered,
    Withdrawn,
)

HealthFact = EngineUp | EngineDown | EngineHealth | PlaneState | Registered | Withdrawn | KvFollowing | EventPlaneState
Wall = Callable[[], datetime]
LONGEST_REASON = 500
MOST_ENGINE_CHECKS = 32
STRIKES = 3
STRIKE_WINDOW = timedelta(seconds=60)


class State(StrEnum):
    """State of one check, and of the whole.

    WAITING: nothing is wrong with it, it cannot be done without the engine. DEGRADED: shown, and judged by nobody.
    """

    READY = "ready"
    NOT_READY = "notready"
    WAITING = "waiting"
    DEGRADED = "degraded"


class Check(StrEnum):
    """What readiness consists of."""

    RUNTIME = "runtime"
    PLANE = "plane"
    DISCOVERY = "discovery"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class CheckStatus:
    """One check: its state, the moment it got into that state, and why."""

    state: State
    since: datetime
    why: str


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Everything at one moment.

    Attributes:
        ready: the answer to a readiness probe.
        endpoint_ready: whether requests can be served at all, which `ready` alone does not say where it ignores the
            engine.
        checks: our own checks by name; the engine's own under `engine/<name>` and those of what serves beside the
            requests under `extras/<name>`, which are shown, not judged.
    """

    ready: bool
    endpoint_ready: bool
    checks: Mapping[str, CheckStatus]


class HealthBook:
    """Keeps the checks.

    The engine counts as ready between EngineUp and EngineDown: the hysteresis is EngineConnection's, EngineHealth only
    adds what the engine says of itself. The request plane and the records wait for the engine; while it is away they
    are WAITING, which readiness forgives where it is told to ignore the engine.
    """

    def __init__(self, *, ignore_engine: bool, now: Wall) -> None:
        self._ignore_engine = ignore_engine
        self._now = now
        self._engine: tuple[bool, str] = (False, "not discovered yet")
        self._engine_says = ""
        self._plane: tuple[bool, str] | None = None
        self._registered: tuple[bool, str] = (False, "not registered yet")
        self._stopping = ""
        self._engine_checks: dict[str, CheckStatus] = {}
        self._extras: dict[str, CheckStatus] = {}
        self._strikes: deque[tuple[datetime, str]] = deque(maxlen=STRIKES)
        self._checks: dict[Check, CheckStatus] = {}
        self._refresh()

    def apply(self, fact: HealthFact) -> bool:
        """Take a fact in; True if readiness changed by it."""
        before = self.ready
        match fact:
            case EngineUp():
                name = f"{fact.discovery.engine_name} {fact.discovery.engine_version}".strip()
                self._engine = (True, f"{name} serves {fact.discovery.model_id} as {fact.role.value}")
            case EngineDown():
                self._engine = (False, f"{'lost' if fact.lost else 'not serving'}: {fact.cause}")
                self._engine_says = ""
            case EngineHealth():
                self._hear_engine(fact)
            case PlaneState():
                self._plane = (fact.connected, fact.detail or ("connected" if fact.connected else "disconnected"))
            case Registered():
                self._registered = (True, f"{fact.model} as instance {fact.instance_id:x}")
            case Withdrawn():
                self._registered = (False, f"withdrawn: {fact.cause}")
            case KvFollowing():
                name = "kv_events" if fact.rank is None else f"kv_events/{fact.rank}"
                self._show(name, ready=fact.following, why=fact.detail)
            case EventPlaneState():
                self._show("event_plane", ready=fact.connected, why=fact.detail or "connected")
        self._refresh()
        return self.ready != before

    def strike(self, rule: str) -> None:
        """The engine broke a rule of the contract; a repeat offender is shown as degraded, and goes on serving."""
        self._strikes.append((self._now(), rule))

    def stopping(self, reason: str) -> None:
        """Mark the process as on its way out."""
        self._stopping = reason
        self._refresh()

    @property
    def ready(self) -> bool:
        """The answer to a readiness probe."""
        forgiven = {State.READY, State.WAITING} if self._ignore_engine else {State.READY}
        judged = set(Check) - ({Check.ENGINE} if self._ignore_engine else set())
        return all(self._checks[check].state in forgiven for check in judged)

    def report(self) -> HealthReport:
        """Return everything at this moment."""
        return HealthReport(
            ready=self.ready,
            endpoint_ready=all(status.state is State.READY for status in self._checks.values()),
            checks={check.value: self._checks[check] for check in Check}
            | self._engine_checks
            | self._contract()
            | self._extras,
        )

    def _contract(self) -> dict[str, CheckStatus]:
        if len(self._strikes) < STRIKES or self._now() - self._strikes[0][0] > STRIKE_WINDOW:
            return {}
        why = f"broke the contract {STRIKES} times within {STRIKE_WINDOW.seconds} s, last: {self._strikes[-1][1]}"
        return {"engine/contract": CheckStatus(State.DEGRADED, self._strikes[0][0], why)}

    def _hear_engine(self, fact: EngineHealth) -> None:
        missed = f"{fact.misses} polls in a row without an answer" if fact.misses else ""
        said = "" if fact.state is EngineState.READY else f"says {fact.state.value}"
        self._engine_says = ", ".join(filter(None, (said, missed, fact.detail)))
        now = self._now()
        known, self._engine_checks = self._engine_checks, {}
        for check in fact.checks[:MOST_ENGINE_CHECKS]:
            state = State.READY if check.state is EngineState.READY else State.NOT_READY
            why = check.message or check.state.value
            name = f"engine/{check.name}"
            self._engine_checks[name] = _status(known.get(name), state, why, now)

    def _show(self, what: str, *, ready: bool, why: str) -> None:
        name, state = f"extras/{what}", State.READY if ready else State.NOT_READY
        self._extras[name] = _status(self._extras.get(name), state, why, self._now())

    def _refresh(self) -> None:
        now = self._now()
        for check, (state, why) in self._judge().items():
            self._checks[check] = _status(self._checks.get(check), state, why, now)

    def _judge(self) -> dict[Check, tuple[State, str]]:
        engine_up, engine_why = self._engine
        pending = State.NOT_READY if engine_up else State.WAITING
        plane_up, plane_why = self._plane or (False, "not connected yet")
        unheard = pending if self._plane is None else State.NOT_READY
        registered, registered_why = self._registered
        return {
            Check.RUNTIME: (State.NOT_READY, self._stopping) if self._stopping else (State.READY, "running"),
            Check.PLANE: (State.READY if plane_up else unheard, plane_why),
            Check.DISCOVERY: (State.READY if registered else pending, registered_why),
            Check.ENGINE: (
                State.READY if engine_up else State.NOT_READY,
                "; ".join(filter(None, (engine_why, self._engine_says))),
            ),
        }


def _status(known: CheckStatus | None, state: State, why: str, now: datetime) -> CheckStatus:
    since = known.since if known is not None and known.state is state else now
    return CheckStatus(state, since, why[:LONGEST_REASON])

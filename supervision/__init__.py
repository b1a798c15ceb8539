"""The actor kit: supervised actors on pykka and asyncio. See README.md in this folder."""

from __future__ import annotations

from openengine_sidecar.supervision._actor import Actor
from openengine_sidecar.supervision._clock import INFINITY, Clock, LoopClock, TimerHandle
from openengine_sidecar.supervision._counters import Count, Counters
from openengine_sidecar.supervision._dead_letters import DeadLetter, DeadLetters, DeadReason
from openengine_sidecar.supervision._facts import Facts
from openengine_sidecar.supervision._future import AskFuture
from openengine_sidecar.supervision._ref import Ref
from openengine_sidecar.supervision._spec import (
    KILL,
    PROGRAMMING_ERRORS,
    AutoShutdown,
    Backoff,
    ChildSpec,
    Mailbox,
    Overflow,
    Restart,
    RestartBudget,
    Shutdown,
    Strategy,
)
from openengine_sidecar.supervision._status import ActorState, ActorStatus
from openengine_sidecar.supervision._supervisor import Supervisor
from openengine_sidecar.supervision._system import ActorSystem, Scheduler
from openengine_sidecar.supervision._thread_actor import ThreadActor
from openengine_sidecar.supervision._thread_host import Cancellation
from openengine_sidecar.supervision._tracing import SignalTrace, SignalTraces
from openengine_sidecar.supervision.errors import (
    ActorGoneError,
    AskDeadlockError,
    AskTimeoutError,
    BlockingCallError,
    ChildSpecError,
    EscalationError,
    MailboxFullError,
    NotReadyError,
    StartError,
    SupervisionError,
    ThreadCancelledError,
    UnknownMessageError,
)

__all__ = [
    "INFINITY",
    "KILL",
    "PROGRAMMING_ERRORS",
    "Actor",
    "ActorGoneError",
    "ActorState",
    "ActorStatus",
    "ActorSystem",
    "AskDeadlockError",
    "AskFuture",
    "AskTimeoutError",
    "AutoShutdown",
    "Backoff",
    "BlockingCallError",
    "Cancellation",
    "ChildSpec",
    "ChildSpecError",
    "Clock",
    "Count",
    "Counters",
    "DeadLetter",
    "DeadLetters",
    "DeadReason",
    "EscalationError",
    "Facts",
    "LoopClock",
    "Mailbox",
    "MailboxFullError",
    "NotReadyError",
    "Overflow",
    "Ref",
    "Restart",
    "RestartBudget",
    "Scheduler",
    "Shutdown",
    "SignalTrace",
    "SignalTraces",
    "StartError",
    "Strategy",
    "SupervisionError",
    "Supervisor",
    "ThreadActor",
    "ThreadCancelledError",
    "TimerHandle",
    "UnknownMessageError",
]

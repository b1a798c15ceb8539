"""Every error the kit raises, as one tree.

SupervisionError
├── ActorGoneError            nobody lives at the address any more (also pykka's ActorDeadError)
├── AskTimeoutError           no reply by the deadline (also the builtin TimeoutError and pykka's Timeout)
├── MailboxFullError          the mailbox is full and its policy is to refuse (also queue.Full)
├── UnknownMessageError       asked something that is not in the actor's protocol (a TypeError)
├── AskDeadlockError          the ask can never be answered: its target waits for the asker
├── BlockingCallError         a blocking call on a thread that runs an event loop
├── ThreadCancelledError      a thread-hosted handler noticed that it has to give up
├── ChildSpecError            a child specification or a supervisor makes no sense (a ValueError)
├── StartError                a start came to nothing, and not by an exception of the actor
│   └── NotReadyError         on_start took longer than its ready_timeout (also a TimeoutError)
└── EscalationError           a supervisor gave up; `cause` says what broke it
"""

from __future__ import annotations

import queue

import pykka

from openengine_sidecar.messages.errors import SidecarError
from openengine_sidecar.messages.signals import Cause


class SupervisionError(SidecarError):
    """Base of every error raised by the kit."""


class ActorGoneError(SupervisionError, pykka.ActorDeadError):
    """Nobody lives at this address any more, or ever did.

    Attributes:
        path: the address.
    """

    def __init__(self, path: str, why: str = "nobody lives there") -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class AskTimeoutError(SupervisionError, pykka.Timeout, TimeoutError):
    """No reply by the deadline.

    Attributes:
        path: who was asked.
        timeout: how long the asker was willing to wait, seconds.
    """

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__(f"{path} did not answer within {timeout:g} s")
        self.path = path
        self.timeout = timeout


class MailboxFullError(SupervisionError, queue.Full):
    """The mailbox is full and its policy is to refuse.

    Attributes:
        path: whose mailbox.
        capacity: how many messages it holds.
    """

    def __init__(self, path: str, capacity: int) -> None:
        super().__init__(f"mailbox of {path} is full ({capacity} messages)")
        self.path = path
        self.capacity = capacity


class UnknownMessageError(SupervisionError, TypeError):
    """Asked something that is not in the actor's protocol.

    Attributes:
        path: who was asked.
        message_type: name of the type that is not understood.
    """

    def __init__(self, path: str, message_type: str) -> None:
        super().__init__(f"{path} does not understand {message_type}")
        self.path = path
        self.message_type = message_type


class AskDeadlockError(SupervisionError, RuntimeError):
    """The ask can never be answered: its target waits, through `chain`, for the asker."""

    def __init__(self, chain: tuple[str, ...]) -> None:
        super().__init__("ask would wait for itself: " + " -> ".join(chain))
        self.chain = chain


class BlockingCallError(SupervisionError, RuntimeError):
    """A blocking call on a thread that runs an event loop; await it instead."""


class ThreadCancelledError(SupervisionError):
    """Raised by `ThreadActor.checkpoint` once the actor has to give up what it is doing."""


class ChildSpecError(SupervisionError, ValueError):
    """A child specification, or a supervisor, makes no sense."""


class StartError(SupervisionError):
    """A start came to nothing, and not by an exception of the actor.

    Attributes:
        path: whose start.
        cause: how it ended.
    """

    def __init__(self, path: str, cause: Cause) -> None:
        super().__init__(f"{path} did not start: {cause}")
        self.path = path
        self.cause = cause


class NotReadyError(StartError, TimeoutError):
    """`on_start` took longer than its ready_timeout."""


class EscalationError(SupervisionError):
    """A supervisor gave up on a child.

    Attributes:
        path: the supervisor.
        child: the child it gave up on.
        cause: the end that broke it.
    """

    def __init__(self, path: str, child: str, why: str, cause: Cause) -> None:
        super().__init__(f"{path} gave up on {child}: {why}; last: {cause}")
        self.path = path
        self.child = child
        self.cause = cause

    @property
    def origin(self) -> Cause:
        """The first cause, below every supervisor that gave up in turn."""
        cause = self.cause
        while isinstance(cause.error, EscalationError):
            cause = cause.error.cause
        return cause

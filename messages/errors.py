"""Every error this package raises, as one tree.

SidecarError
├── ConfigurationError            a flag, a variable or a model directory is unusable
├── DiscoveryError                the engine is not one we can serve; retrying does not help
├── WireError                     bytes from the Dynamo side that do not parse
├── StoreError                    the discovery store refused or lost a record
├── LoraError                     an adapter cannot be had; says which and why
│   ├── LoraRefusedError          its name, its address or its contents are not acceptable
│   ├── LoraSourceError           the place where it lies cannot be read
│   ├── LoraCacheError            the cache has no room, or its file system refused
│   └── LoraCancelledError        nobody wants it any more
└── RequestError                  ends one request; says which, and what its client is told
    ├── InvalidRequestError       the client's fault
    │   └── UnsupportedFeatureError   the engine does not advertise what was asked for
    ├── OverloadedError           no room now; try later or elsewhere
    ├── EngineCancelledError      the engine gave up the request by itself
    ├── EngineTimeoutError        the engine did not answer in time
    ├── EngineUnreachableError    the engine is healthy, this call did not reach it
    ├── EngineLostError           the engine is gone or draining
    ├── StreamBrokenError         this stream broke, the engine lives
    │   └── EngineProtocolError   the engine broke a rule of the contract
    ├── HandoffError              prefill and decode do not fit each other
    └── EngineFailureError        the engine failed inside
"""

from __future__ import annotations

from typing import ClassVar


class SidecarError(Exception):
    """Base of every error raised by this package."""


class ConfigurationError(SidecarError, ValueError):
    """A flag, an environment variable or a model directory is unusable.

    Attributes:
        option: the flag, variable or path at fault.
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option}: {problem}")
        self.option = option
        self.problem = problem


class DiscoveryError(SidecarError):
    """The engine answered discovery with something we must refuse."""

    def __init__(self, endpoint: str, problem: str) -> None:
        super().__init__(f"engine at {endpoint}: {problem}")
        self.endpoint = endpoint
        self.problem = problem


class WireError(SidecarError, ValueError):
    """Bytes from the Dynamo side do not parse, or a value for it must not be sent.

    Attributes:
        part: what was being read: `frame`, `header`, `body`, `address`; or `output`, what was being written.
    """

    def __init__(self, part: str, problem: str) -> None:
        super().__init__(f"{part}: {problem}")
        self.part = part
        self.problem = problem


class StoreError(SidecarError, OSError):
    """The discovery store refused, or lost, a record."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"discovery record {key}: {problem}")
        self.key = key
        self.problem = problem


class LoraError(SidecarError):
    """An adapter cannot be had.

    Attributes:
        subject: the adapter's name, its address, or the path at fault.
        problem: what is wrong and what to do, for whoever asked.
    """

    def __init__(self, subject: str, problem: str) -> None:
        super().__init__(f"{subject}: {problem}")
        self.subject = subject
        self.problem = problem


class LoraRefusedError(LoraError, ValueError):
    """The name, the address or the contents of an adapter are not acceptable; trying again does not help."""


class LoraSourceError(LoraError):
    """The place where an adapter lies cannot be read.

    Attributes:
        transient: whether the same attempt may succeed later.
    """

    def __init__(self, subject: str, problem: str, *, transient: bool) -> None:
        super().__init__(subject, problem)
        self.transient = transient


class LoraCacheError(LoraError):
    """The adapter cache has no room, or its file system refused."""


class LoraCancelledError(LoraError):
    """An adapter was being fetched, and nobody wants it any more."""


class RequestError(SidecarError):
    """Ends one request.

    Attributes:
        request_id: the request that ends.
        problem: what failed and what to do, for the operator.
        public: text shown to the client, or None for the frontend's fixed text.
        error_type: the Dynamo error kind (Dynamo typed error items).
        backend: whether the kind stands under `{"Backend": ...}`.
        status: the HTTP status the frontend answers with.
        client_fault: True where the client, not the engine, must change something.
        retryable: whether the unchanged request may succeed later or elsewhere.
        retry_after_ms: the engine's own wish, milliseconds, None where it said nothing.
    """

    error_type: ClassVar[str] = "Unknown"
    backend: ClassVar[bool] = True
    status: ClassVar[int] = 500
    client_fault: ClassVar[bool] = False
    retryable_by_default: ClassVar[bool] = False

    def __init__(
        self,
        request_id: str,
        problem: str,
        *,
        public: str | None = None,
        retryable: bool | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(f"request {request_id}: {problem}")
        self.request_id = request_id
        self.problem = problem
        self.public = public if public is not None else (problem if self.client_fault else None)
        self.retryable = self.retryable_by_default if retryable is None else retryable
        self.retry_after_ms = retry_after_ms


class InvalidRequestError(RequestError):
    """The client asked for something no worker of this model can do."""

    error_type = "InvalidArgument"
    status = 400
    client_fault = True


class UnsupportedFeatureError(InvalidRequestError):
    """The engine does not advertise what the request needs."""


class OverloadedError(RequestError):
    """No room now; another worker, or a later moment, may have some."""

    error_type = "WorkerOverloaded"
    backend = False
    status = 529
    retryable_by_default = True


class EngineCancelledError(RequestError):
    """The engine gave up the request by itself; what it sent is not a whole answer."""

    error_type = "Cancelled"
    status = 499


class EngineTimeoutError(RequestError, TimeoutError):
    """The engine did not answer in time."""

    error_type = "ConnectionTimeout"
    status = 504
    retryable_by_default = True


class EngineUnreachableError(RequestError):
    """This call did not reach an engine that is otherwise healthy."""

    error_type = "CannotConnect"
    status = 503
    retryable_by_default = True


class EngineLostError(RequestError):
    """The engine is gone or draining; the instance is being withdrawn."""

    error_type = "EngineShutdown"
    status = 503
    retryable_by_default = True


class StreamBrokenError(RequestError):
    """This stream broke while the engine lives."""

    error_type = "Disconnected"
    status = 503
    retryable_by_default = True


class EngineProtocolError(StreamBrokenError):
    """The engine broke a rule of the contract.

    Attributes:
        rule: short name of the rule, used as a metric label (`wrong_request_id`, `no_terminal`, ...).
    """

    def __init__(self, request_id: str, rule: str, problem: str) -> None:
        super().__init__(request_id, problem)
        self.rule = rule


class HandoffError(RequestError):
    """The two halves of a disaggregated request do not fit: the KV session is missing, misplaced or not this engine's.

    The client cannot help it, and neither can another attempt at the same pair.
    """

    error_type = "Unknown"
    status = 500


class EngineFailureError(RequestError):
    """The engine failed inside."""

    error_type = "Unknown"
    status = 500

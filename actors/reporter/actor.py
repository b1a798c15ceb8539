"""Reporter: keeps the health state, counts, and answers people and probes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, get_args

from openengine_sidecar.actors.config import ReporterConfig, WorkerIdentity
from openengine_sidecar.actors.reporter.extras import require_http
from openengine_sidecar.actors.reporter.health_state import HealthBook, HealthFact
from openengine_sidecar.actors.requests.protocol import ControlRequest
from openengine_sidecar.messages.facts import (
    KvCounted,
    LoadSample,
    StreamEnded,
)
from openengine_sidecar.messages.signals import Cause, Drain
from openengine_sidecar.supervision import Actor, Mailbox, Overflow, Ref

if TYPE_CHECKING:
    from openengine_sidecar.actors.reporter.http import SystemServer
    from openengine_sidecar.actors.reporter.metrics import Metrics

GATE = "/sidecar/serving/gate"
MAILBOX = Mailbox(capacity=65_536, overflow=Overflow.DROP_OLD)
"""For the Reporter's ChildSpec: a lost engine ends every stream within one turn of the loop."""

Counted = StreamEnded | KvCounted | LoadSample
ReporterMail = HealthFact | Counted


class Reporter(Actor[ReporterMail]):
    """Ready once its HTTP server listens, or at once without one; keeps the health state either way.

    Args:
        config: the system server; without a port nothing listens, and nothing is counted that nobody could read.
        identity: labels of every metric.
        streams_under: path of the actor whose children are the requests in flight.
        loras: who loads and unloads adapters; None where they are off, and no such page is served.

    Attributes:
        address: host and port of the server, None without one.
    """

    def __init__(
        self,
        config: ReporterConfig,
        identity: WorkerIdentity,
        *,
        streams_under: str = GATE,
        loras: Ref[ControlRequest] | None = None,
    ) -> None:
        super().__init__()
        self._config = config
        self._identity = identity
        self._streams_under = streams_under
        self._loras = loras
        self._book = HealthBook(ignore_engine=config.ignore_engine, now=lambda: datetime.now(UTC))
        self._metrics: Metrics | None = None
        self._server: SystemServer | None = None
        self.address: tuple[str, int] | None = None

    @property
    def ready(self) -> bool:
        """Whether this worker is ready."""
        return self._book.ready

    async def on_start(self) -> None:
        """Listen, then follow the facts.

        Raises:
            ConfigurationError: the extra `http` is missing, or the address cannot be listened on.
        """
        if self._config.port is not None:
            await self._listen()
        self.subscribe(*get_args(ReporterMail))

    async def on_message(self, message: ReporterMail) -> None:
        """Take a fact in."""
        if self._metrics is not None:
            self._metrics.observe(message)
        if isinstance(message, StreamEnded) and message.rule:
            self._book.strike(message.rule)
        if not isinstance(message, Counted) and self._book.apply(message):
            self._say_readiness()

    async def on_drain(self, drain: Drain) -> None:
        """Show that the process is on its way out; everybody else has drained by now."""
        self._book.stopping(drain.reason)

    async def on_stop(self, cause: Cause) -> None:
        """Stop answering."""
        del cause
        if self._server is not None:
            await self._server.stop()

    async def _listen(self) -> None:
        require_http()
        from openengine_sidecar.actors.reporter.pages import system_server  # noqa: PLC0415 - needs an extra

        self._server, self._metrics = system_server(
            self._config, self._identity, self._book, self.system, streams_under=self._streams_under, loras=self._loras
        )
        self.address = await self._server.start()
        self.log.info("system server on http://{}:{}", *self.address)

    def _say_readiness(self) -> None:
        report = self._book.report()
        if report.ready:
            self.log.info("ready")
        else:
            reasons = (f"{name}: {status.why}" for name, status in report.checks.items() if status.state != "ready")
            self.log.warning("not ready: {}", "; ".join(reasons))

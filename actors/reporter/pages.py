"""What the system server shows. Needs the extra `http`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from openengine_sidecar.actors.config import ReporterConfig, WorkerIdentity
from openengine_sidecar.actors.reporter.families import Labels
from openengine_sidecar.actors.reporter.health_state import HealthBook, HealthReport, State
from openengine_sidecar.actors.reporter.http import SystemServer
from openengine_sidecar.actors.reporter.loras import LoraPages
from openengine_sidecar.actors.reporter.metrics import CONTENT_TYPE, Metrics
from openengine_sidecar.actors.reporter.tree_metrics import TreeCollector
from openengine_sidecar.actors.requests.protocol import ControlRequest
from openengine_sidecar.supervision import ActorSystem, Ref, SupervisionError

_NANOS = 1_000_000_000


class Uptime(msgspec.Struct, frozen=True):
    """An age in whole seconds and the rest in nanoseconds, as Dynamo writes it."""

    secs: int
    nanos: int


class CheckBody(msgspec.Struct, frozen=True):
    """One check."""

    state: State
    since: datetime
    why: str


class HealthBody(msgspec.Struct, frozen=True):
    """The body of /health and /live: that of Dynamo 1.6.1's system server, with the checks beside it."""

    status: State
    uptime: Uptime
    endpoints: dict[str, State]
    checks: dict[str, CheckBody]


class ReporterPages:
    """Reads the Reporter's books and the actor system."""

    def __init__(self, book: HealthBook, metrics: Metrics, system: ActorSystem, endpoint: str) -> None:
        self._book = book
        self._metrics = metrics
        self._system = system
        self._endpoint = endpoint
        self._began = system.clock.monotonic()

    def health(self) -> tuple[bool, HealthBody]:
        """Return readiness, and the body of the answer."""
        report = self._book.report()
        return report.ready, health_body(report, self._endpoint, self._uptime())

    def metrics(self) -> tuple[str, bytes]:
        """Return content type and exposition."""
        return CONTENT_TYPE, self._metrics.render(self._book.report(), uptime=self._uptime())

    def actors(self) -> list[object]:
        """Return the actor tree, parents before their children."""
        return [*self._system.snapshot()]

    def trace(self, path: str, *, on: bool) -> bool:
        """Switch the message tracing of one actor; False where nobody lives at that path."""
        try:
            self._system.trace(path, enabled=on)
        except SupervisionError:
            return False
        return True

    def _uptime(self) -> float:
        return self._system.clock.monotonic() - self._began


def health_body(report: HealthReport, endpoint: str, uptime: float) -> HealthBody:
    """Write a report the way it is sent; uptime in seconds."""
    return HealthBody(
        status=_word(report.ready),
        uptime=Uptime(int(uptime), int(uptime % 1 * _NANOS)),
        endpoints={endpoint: _word(report.endpoint_ready)},
        checks={name: CheckBody(status.state, status.since, status.why) for name, status in report.checks.items()},
    )


def _word(ready: bool) -> State:  # noqa: FBT001 - the one thing it turns into a word
    return State.READY if ready else State.NOT_READY


def system_server(
    config: ReporterConfig,
    identity: WorkerIdentity,
    book: HealthBook,
    system: ActorSystem,
    *,
    streams_under: str,
    loras: Ref[ControlRequest] | None,
) -> tuple[SystemServer, Metrics]:
    """Make the server, and the metrics that are to observe every fact."""
    metrics = Metrics(identity, TreeCollector(system, Labels(identity), streams_under))
    more = () if loras is None else LoraPages(loras).routes()
    return SystemServer(config, ReporterPages(book, metrics, system, identity.endpoint), more), metrics

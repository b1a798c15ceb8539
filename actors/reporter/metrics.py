"""What is counted, and its exposition. Needs the extra `http`, so it is imported only where somebody may scrape."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from openengine_sidecar.actors.config import WorkerIdentity
from openengine_sidecar.actors.reporter.families import DynamoFamilies, Labels, OwnFamilies, Registry
from openengine_sidecar.actors.reporter.gaps import GapCollector
from openengine_sidecar.actors.reporter.health_state import HealthReport, State
from openengine_sidecar.actors.reporter.kv_metrics import KvMetrics
from openengine_sidecar.actors.reporter.reconnects import Reconnects
from openengine_sidecar.messages.engine.control import HealthState
from openengine_sidecar.messages.errors import RequestError, WireError
from openengine_sidecar.messages.facts import (
    EngineDown,
    EngineHealth,
    EngineUp,
    Outcome,
    Registered,
    StreamEnded,
    Withdrawn,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """Counts facts, and renders them together with what is read at the moment of the scrape."""

    def __init__(self, identity: WorkerIdentity, *further: Collector) -> None:
        self._identity = identity
        self._registry = Registry()
        labels = Labels(identity)
        self._dynamo = DynamoFamilies(self._registry, labels)
        self._own = OwnFamilies(self._registry, labels)
        self._kv = KvMetrics(self._registry, labels)
        self._gaps = GapCollector(labels)
        self._registry.register(self._gaps)
        self._reconnects = Reconnects()
        for collector in further:
            self._registry.register(collector)

    def observe(self, fact: object) -> None:
        """Count a fact; one that nothing counts passes by."""
        own = self._own
        match fact:
            case StreamEnded():
                self._ended(fact)
            case EngineUp():
                self._registry.component = self._identity.serving(fact.role).component
                own.engine_ups.inc()
            case EngineDown():
                own.engine_downs(str(fact.lost).lower()).inc()
            case EngineHealth():
                for state in HealthState:
                    own.engine_state(state.value).set(state is fact.state)
            case Registered():
                own.registrations.inc()
            case Withdrawn():
                own.withdrawals.inc()
            case _:
                self._kv.observe(fact)
        back = self._reconnects.observe(fact)
        if back is not None:
            own.reconnects(back).inc()

    def render(self, report: HealthReport, *, uptime: float) -> bytes:
        """Return the exposition in Prometheus's text format; uptime in seconds."""
        self._dynamo.uptime.set(uptime)
        self._own.ready.set(report.ready)
        for name, status in report.checks.items():
            if "/" not in name:
                self._own.checks(name).set(status.state is State.READY)
        return generate_latest(self._registry)

    def _ended(self, fact: StreamEnded) -> None:
        self._dynamo.requests.inc()
        self._own.outcomes(fact.outcome.value).inc()
        if fact.outcome is Outcome.CANCELLED:
            self._dynamo.cancellations.inc()
        if fact.outcome is not Outcome.REFUSED:
            self._dynamo.duration.observe(fact.duration)
        if fact.aborts:
            self._own.aborts(fact.reason or "failed").inc(fact.aborts)
        if fact.kv is not None:
            self._own.kv_sessions(fact.kv.value).inc()
        if fact.hold is not None:
            self._own.decode_holds(fact.hold.value).inc()
        if fact.rule:
            self._own.violations(fact.rule).inc()
        for rule, times in fact.oddities.items():
            self._own.oddities(rule).inc(times)
        for hint in fact.dropped:
            self._own.dropped_hints(hint).inc()
        if fact.error:
            self._failed(fact)
        self._tokens(fact)

    def _failed(self, fact: StreamEnded) -> None:
        client_fault = fact.error in _CLIENT_FAULTS
        self._own.errors(fact.error, "client" if client_fault else "worker").inc()
        if fact.outcome is Outcome.REFUSED:
            self._dynamo.rejections.inc()
        elif not client_fault:
            self._dynamo.errors("deserialization" if fact.error == WireError.__name__ else "generate").inc()

    def _tokens(self, fact: StreamEnded) -> None:
        self._own.output_tokens.inc(fact.output_tokens)
        if fact.usage is not None:
            self._own.prompt_tokens.inc(fact.usage.prompt_tokens)
            self._own.cached_tokens.inc(fact.usage.cached_prompt_tokens or 0)
        if fact.ttft is not None:
            self._dynamo.first_response.observe(fact.ttft)
            if fact.output_tokens > 1:
                self._own.per_token.observe((fact.duration - fact.ttft) / (fact.output_tokens - 1))
        if fact.gaps is not None:
            self._gaps.add(fact.gaps)


def _classes(base: type[RequestError]) -> Iterable[type[RequestError]]:
    yield base
    for derived in base.__subclasses__():
        yield from _classes(derived)


_CLIENT_FAULTS = frozenset(kind.__name__ for kind in _classes(RequestError) if kind.client_fault)

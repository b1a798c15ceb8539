"""The metric families: names, texts, labels and buckets, in a registry of their own.

Names and labels are Dynamo's where Dynamo 1.6.1 has them; ours, with the same labels, stand beside them under
`openengine_sidecar_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from openengine_sidecar.actors.config import WorkerIdentity

OWN = "openengine_sidecar_"
COMPONENT = "dynamo_component"
DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 600)
FIRST_TOKEN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

_Kind = TypeVar("_Kind", Counter, Gauge, Histogram)


class Registry(CollectorRegistry):
    """A registry without the `_created` series that would double every counter.

    Attributes:
        component: where this worker stands by its role, which is known only once its engine is.
    """

    component: str | None = None

    def collect(self) -> Iterable[Metric]:
        """Yield the families."""
        for family in super().collect():
            kept = (sample for sample in family.samples if not sample.name.endswith("_created"))
            family.samples = [self._placed(sample) for sample in kept]
            yield family

    def _placed(self, sample: Sample) -> Sample:
        if self.component is None:
            return sample
        return sample._replace(labels={**sample.labels, COMPONENT: self.component})


class Labels:
    """The labels that every metric of one worker carries."""

    names = ("dynamo_namespace", COMPONENT, "dynamo_endpoint", "worker_id")

    def __init__(self, identity: WorkerIdentity) -> None:
        self.values = (identity.namespace, identity.component, identity.endpoint, f"{identity.instance_id:x}")


class _Families:
    def __init__(self, registry: Registry, labels: Labels) -> None:
        self._registry = registry
        self._labels = labels

    def _one(self, kind: type[_Kind], name: str, text: str, **options: Any) -> _Kind:
        family: _Kind = kind(name, text, Labels.names, registry=self._registry, **options)
        return family.labels(*self._labels.values)

    def _many(self, kind: type[_Kind], name: str, text: str, *labels: str) -> Callable[..., _Kind]:
        family: _Kind = kind(name, text, Labels.names + labels, registry=self._registry)
        return lambda *values: family.labels(*self._labels.values, *values)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return self._one(Histogram, name, text, buckets=buckets)


class DynamoFamilies(_Families):
    """Dynamo's own names."""

    def __init__(self, registry: Registry, labels: Labels) -> None:
        super().__init__(registry, labels)
        component = "dynamo_component_"
        self.requests = self._one(Counter, component + "requests", "Requests that ended.")
        self.duration = self._histogram(
            component + "request_duration_seconds", "From acknowledgement to the end.", DURATION_BUCKETS
        )
        self.errors = self._many(
            Counter, component + "errors", "Requests that failed through no fault of the client.", "error_type"
        )
        self.cancellations = self._one(Counter, component + "cancellation", "Requests cancelled.")
        self.uptime = self._one(Gauge, component + "uptime_seconds", "Age of this worker.")
        self.first_response = self._histogram(
            "dynamo_work_handler_time_to_first_response_seconds",
            "From acknowledgement to the first token.",
            FIRST_TOKEN_BUCKETS,
        )
        self.rejections = self._one(Counter, "dynamo_rejection_request", "Requests refused for want of room.")


class KvFamilies(_Families):
    """KV events and the event plane."""

    def __init__(self, registry: Registry, labels: Labels) -> None:
        super().__init__(registry, labels)
        self.lost = self._one(
            Counter,
            "dynamo_component_kv_publisher_engines_dropped_events",
            "Batches of KV events that the engine sent and that did not arrive.",
        )
        self.events = self._many(Counter, OWN + "kv_events", "What became of KV events.", "dp_rank", "outcome")
        self.following = self._many(Gauge, OWN + "kv_following", "1 while a rank's KV events are followed.", "dp_rank")
        self.plane = self._one(Gauge, OWN + "event_plane_connected", "1 while the event plane is connected.")


class OwnFamilies(_Families):
    """What Dynamo has no name for."""

    def __init__(self, registry: Registry, labels: Labels) -> None:
        super().__init__(registry, labels)
        self._requests()
        self._handoffs()
        self._engine()

    def _requests(self) -> None:
        self.outcomes = self._many(Counter, OWN + "requests", "Requests that ended, by outcome.", "outcome")
        self.prompt_tokens = self._one(Counter, OWN + "prompt_tokens", "Prompt tokens the engine counted.")
        self.cached_tokens = self._one(
            Counter, OWN + "cached_prompt_tokens", "Prompt tokens found in the engine's prefix cache."
        )
        self.output_tokens = self._one(Counter, OWN + "output_tokens", "Tokens streamed.")
        self.per_token = self._histogram(
            OWN + "seconds_per_output_token", "Mean gap between the tokens of one request.", TOKEN_BUCKETS
        )
        self.aborts = self._many(Counter, OWN + "aborts", "Aborts sent to the engine, by reason.", "reason")
        self.errors = self._many(
            Counter, OWN + "errors", "Requests that failed or were refused, by class and whose fault.", "error", "fault"
        )
        self.violations = self._many(
            Counter, OWN + "protocol_violations", "Rules of the contract that the engine broke.", "rule"
        )
        self.oddities = self._many(
            Counter, OWN + "protocol_oddities", "What the contract forbids and what cost no request.", "rule"
        )
        self.dropped_hints = self._many(
            Counter, OWN + "dropped_hints", "Hints left out because the engine does not know them.", "hint"
        )

    def _handoffs(self) -> None:
        self.kv_sessions = self._many(
            Counter, OWN + "kv_sessions", "KV that halves of disaggregated requests answered for, by its end.", "end"
        )
        self.decode_holds = self._many(
            Counter,
            OWN + "decode_holds",
            "Cancelled decodes that waited for their engine to take the KV over, by what ended the wait.",
            "end",
        )

    def _engine(self) -> None:
        self.engine_ups = self._one(Counter, OWN + "engine_ups", "Times the engine was found serving.")
        self.engine_downs = self._many(Counter, OWN + "engine_downs", "Times the engine stopped serving.", "lost")
        self.engine_state = self._many(
            Gauge, OWN + "engine_state", "1 for the state the engine last reported.", "state"
        )
        self.registrations = self._one(Counter, OWN + "registrations", "Times the records were put up.")
        self.withdrawals = self._one(Counter, OWN + "withdrawals", "Times the records were taken down.")
        self.ready = self._one(Gauge, OWN + "ready", "1 while the worker is ready.")
        self.reconnects = self._many(
            Counter, OWN + "reconnects", "Connections that came back, by what they are to.", "to"
        )
        self.checks = self._many(Gauge, OWN + "check_ready", "1 while this part of readiness is ready.", "check")

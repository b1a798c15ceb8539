"""What is counted and measured of KV events and load. Needs the extra `http`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from openengine_sidecar.actors.reporter.families import OWN, KvFamilies, Labels, Registry
from openengine_sidecar.messages.engine.control import RankLoad
from openengine_sidecar.messages.facts import EventPlaneState, KvCounted, KvFollowing, LoadSample

RANK: Final = "dp_rank"

Reading = Callable[[RankLoad], float | None]


def _usage(load: RankLoad) -> float | None:
    if load.used_kv_blocks is None or not load.total_kv_blocks:
        return None
    return load.used_kv_blocks / load.total_kv_blocks


READINGS: Final[tuple[tuple[str, str, Reading], ...]] = (
    ("dynamo_component_total_blocks", "KV blocks that a rank has.", lambda load: load.total_kv_blocks),
    ("dynamo_component_gpu_cache_usage_percent", "Share of a rank's KV blocks in use, 0 to 1.", _usage),
    (OWN + "kv_used_blocks", "KV blocks of a rank in use.", lambda load: load.used_kv_blocks),
    (OWN + "engine_running_requests", "Requests that a rank of the engine runs.", lambda load: load.running_requests),
    (OWN + "engine_queued_requests", "Requests that wait in a rank of the engine.", lambda load: load.queued_requests),
)
"""Gauges by name; what a rank does not report has no sample."""


class LoadCollector(Collector):
    """The load as it was told last: a number that is not known any more has no sample."""

    def __init__(self, labels: Labels) -> None:
        self.sample = LoadSample(ranks=())
        self._labels = labels

    def collect(self) -> Iterable[Metric]:
        """Read the sample."""
        for name, text, reading in READINGS:
            family = GaugeMetricFamily(name, text, labels=(*Labels.names, RANK))
            for load in self.sample.ranks:
                value = reading(load)
                if value is not None:
                    family.add_metric((*self._labels.values, str(load.rank)), value)
            yield family


class KvMetrics:
    """Counts the facts of KV events, and keeps the last of load."""

    def __init__(self, registry: Registry, labels: Labels) -> None:
        self._families = KvFamilies(registry, labels)
        self._load = LoadCollector(labels)
        registry.register(self._load)

    def observe(self, fact: object) -> None:
        """Take a fact in; one that is about something else passes by."""
        match fact:
            case KvCounted():
                self._counted(fact)
            case KvFollowing():
                if fact.rank is not None:
                    self._families.following(str(fact.rank)).set(fact.following)
            case EventPlaneState():
                self._families.plane.set(fact.connected)
            case LoadSample():
                self._load.sample = fact
            case _:
                pass

    def _counted(self, fact: KvCounted) -> None:
        for outcome, number in fact.outcomes.items():
            self._families.events(str(fact.rank), outcome).inc(number)
        if fact.missing:
            self._families.lost.inc(fact.missing)

"""Metrics read off the actor system at the moment of a scrape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from openengine_sidecar.actors.reporter.families import OWN, Labels
from openengine_sidecar.supervision import ActorStatus, ActorSystem, Count, DeadReason


class TreeCollector(Collector):
    """Restarts, rejections and their like, dead letters by reason, mailboxes, and the requests in flight.

    Args:
        system: what is read.
        labels: carried by every sample.
        streams_under: path of the actor whose children are the requests in flight. They are counted, never listed.
    """

    def __init__(self, system: ActorSystem, labels: Labels, streams_under: str) -> None:
        self._system = system
        self._labels = labels
        self._prefix = f"{streams_under}/"

    def collect(self) -> Iterable[Metric]:
        """Read the system."""
        tree = self._system.snapshot()
        lasting = [status for status in tree if not status.path.startswith(self._prefix)]
        in_flight = self._gauge("dynamo_component_inflight_requests", "Requests acknowledged and not ended.")
        in_flight.add_metric(self._labels.values, len(tree) - len(lasting))
        return [
            in_flight,
            self._counts("supervision", "What befell actors and their mail.", "event", self._system.counters, [*Count]),
            self._counts(
                "dead_letters",
                "Messages not delivered, by reason.",
                "reason",
                self._system.dead_letters.counts,
                [*DeadReason],
            ),
            self._mailboxes("mailbox_depth", "Messages waiting.", lasting, "mailbox"),
            self._mailboxes("mailbox_high_water", "Most messages that ever waited.", lasting, "high_water"),
        ]

    def describe(self) -> Iterable[Metric]:
        """Name nothing in advance: a registry would otherwise read the system once more on registration."""
        return []

    def _gauge(self, name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, text, labels=(*Labels.names, *labels))

    def _counts(
        self, name: str, text: str, label: str, counts: Mapping[str, int], known: Iterable[str]
    ) -> CounterMetricFamily:
        family = CounterMetricFamily(OWN + name, text, labels=(*Labels.names, label))
        for value in known:
            family.add_metric((*self._labels.values, str(value)), counts[value])
        return family

    def _mailboxes(self, name: str, text: str, tree: Iterable[ActorStatus], field: str) -> GaugeMetricFamily:
        family = self._gauge(OWN + name, text, "actor")
        for status in tree:
            family.add_metric((*self._labels.values, status.path), getattr(status, field))
        return family

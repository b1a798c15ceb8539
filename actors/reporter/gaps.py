"""The gaps between tokens, counted where the tokens pass and added up here. Needs the extra `http`."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from openengine_sidecar.actors.reporter.families import OWN, Labels
from openengine_sidecar.messages.facts import GAP_BOUNDS, TokenGaps


class GapCollector(Collector):
    """A histogram that takes whole requests."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._counts = [0] * (len(GAP_BOUNDS) + 1)
        self._seconds = 0.0

    def add(self, gaps: TokenGaps) -> None:
        """Add the gaps of one request."""
        self._counts = [known + more for known, more in zip(self._counts, gaps.counts, strict=True)]
        self._seconds += gaps.seconds

    def collect(self) -> Iterable[Metric]:
        """Write the histogram, whose buckets hold all that is below."""
        below, buckets = 0, list[tuple[str, float]]()
        for bound, count in zip((*map(str, GAP_BOUNDS), "+Inf"), self._counts, strict=True):
            below += count
            buckets.append((bound, below))
        family = HistogramMetricFamily(
            OWN + "inter_token_seconds", "From one token of a request to the next.", labels=Labels.names
        )
        family.add_metric(self._labels.values, buckets, self._seconds)
        return [family]

from __future__ import annotations

import pytest

from openengine_sidecar.actors.reporter.metrics import Metrics
from openengine_sidecar.messages.engine.control import RankLoad
from openengine_sidecar.messages.facts import (
    EventPlaneState,
    KvCounted,
    KvFollowing,
    LoadSample,
    Outcome,
    PlaneState,
    StreamEnded,
    TokenGaps,
)
from tests.reporter.facts import CONNECTED, DISCONNECTED, DOWN, NOT_SERVING, UP
from tests.reporter.test_metrics import IDENTITY, scrape

GAUGES = {
    "dynamo_component_total_blocks",
    "dynamo_component_gpu_cache_usage_percent",
    "openengine_sidecar_kv_used_blocks",
    "openengine_sidecar_engine_running_requests",
    "openengine_sidecar_engine_queued_requests",
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(IDENTITY)


def gauges(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return {key: value for key, value in scrape(metrics).items() if key[0] in GAUGES}


def test_c61_load_is_told_by_rank_and_absent_is_not_zero(metrics: Metrics) -> None:
    assert gauges(metrics) == {}
    full = RankLoad(rank=0, running_requests=3, queued_requests=0, used_kv_blocks=2, total_kv_blocks=8)
    metrics.observe(LoadSample(ranks=(full, RankLoad(rank=1, running_requests=0))))
    assert gauges(metrics) == {
        ("dynamo_component_total_blocks", "0"): 8,
        ("dynamo_component_gpu_cache_usage_percent", "0"): 0.25,
        ("openengine_sidecar_kv_used_blocks", "0"): 2,
        ("openengine_sidecar_engine_running_requests", "0"): 3,
        ("openengine_sidecar_engine_running_requests", "1"): 0,
        ("openengine_sidecar_engine_queued_requests", "0"): 0,
    }


def test_c61_a_rank_that_is_not_known_any_more_has_no_sample(metrics: Metrics) -> None:
    metrics.observe(LoadSample(ranks=(RankLoad(rank=0, running_requests=3),)))
    metrics.observe(LoadSample(ranks=()))
    assert gauges(metrics) == {}


def test_f31_events_are_counted_by_rank_and_outcome_and_missing_batches_under_dynamos_name(metrics: Metrics) -> None:
    for _ in range(2):
        metrics.observe(KvCounted(rank=3, outcomes={"stored": 5, "gap": 1}, missing=4))
    values = scrape(metrics)
    assert values["openengine_sidecar_kv_events_total", "3", "stored"] == 10
    assert values["openengine_sidecar_kv_events_total", "3", "gap"] == 2
    assert values["dynamo_component_kv_publisher_engines_dropped_events_total",] == 8


def test_it_shows_which_ranks_are_followed_and_whether_the_event_plane_is_there(metrics: Metrics) -> None:
    for fact in (
        KvFollowing(rank=0, following=True),
        KvFollowing(rank=1, following=True),
        KvFollowing(rank=1, following=False),
        KvFollowing(rank=None, following=False),
        EventPlaneState(connected=True),
    ):
        metrics.observe(fact)
    values = scrape(metrics)
    assert {key[1]: value for key, value in values.items() if key[0] == "openengine_sidecar_kv_following"} == {
        "0": 1,
        "1": 0,
    }
    assert values["openengine_sidecar_event_plane_connected",] == 1


def test_only_what_was_there_can_come_back(metrics: Metrics) -> None:
    for fact in (
        DISCONNECTED,
        CONNECTED,
        DISCONNECTED,
        CONNECTED,
        PlaneState(connected=True),
        EventPlaneState(connected=True),
        UP,
        NOT_SERVING,
        UP,
        DOWN,
        UP,
    ):
        metrics.observe(fact)
    values = scrape(metrics)
    back = {key[1]: value for key, value in values.items() if key[0] == "openengine_sidecar_reconnects_total"}
    assert back == {"request_plane": 1, "engine": 1}


def test_gaps_between_tokens_add_up_over_requests(metrics: Metrics) -> None:
    counts = (1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1)
    for _ in range(2):
        gaps = TokenGaps(counts=counts, seconds=4.5)
        metrics.observe(StreamEnded(request_id="r", outcome=Outcome.FINISHED, gaps=gaps))
    values = scrape(metrics)
    name = "openengine_sidecar_inter_token_seconds"
    assert [values[f"{name}_bucket", bound] for bound in ("0.001", "0.0025", "0.005", "2.5", "+Inf")] == [2, 2, 6, 6, 8]
    assert (values[f"{name}_sum",], values[f"{name}_count",]) == (9.0, 8)

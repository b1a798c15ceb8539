from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from openengine_sidecar.actors.config import WorkerIdentity
from openengine_sidecar.actors.reporter.health_state import HealthBook
from openengine_sidecar.actors.reporter.metrics import Metrics
from openengine_sidecar.messages.engine.control import HealthState
from openengine_sidecar.messages.engine.discovery import Role
from openengine_sidecar.messages.engine.generation import Usage
from openengine_sidecar.messages.facts import EngineHealth, HoldEnd, KvEnd, Outcome, StreamEnded
from tests.reporter.facts import DOWN, EVERYTHING, NOT_SERVING, UP, WITHDRAWN

IDENTITY = WorkerIdentity(instance_id=0xABC, namespace="ns", component="c", endpoint="e")
LABELS = {"dynamo_namespace": "ns", "dynamo_component": "c", "dynamo_endpoint": "e", "worker_id": "abc"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(IDENTITY)


def scrape(metrics: Metrics, *, uptime: float = 1.0, book: HealthBook | None = None) -> dict[tuple[str, ...], float]:
    report = (book or HealthBook(ignore_engine=False, now=lambda: NOW)).report()
    values: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(metrics.render(report, uptime=uptime).decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert {name: labels.pop(name) for name in LABELS} == LABELS
            values[sample.name, *labels.values()] = sample.value
    return values


def ended(outcome: Outcome = Outcome.FINISHED, **fields: object) -> StreamEnded:
    return StreamEnded(request_id="r", outcome=outcome, **fields)  # type: ignore[arg-type]  # fields of the test's choice


def test_a_finished_request_counts_under_dynamos_names_and_ours(metrics: Metrics) -> None:
    usage = Usage(prompt_tokens=7, completion_tokens=5, total_tokens=12, cached_prompt_tokens=3)
    metrics.observe(ended(usage=usage, output_tokens=5, ttft=0.5, duration=2.5))
    values = scrape(metrics)
    assert values["dynamo_component_requests_total",] == 1
    assert values["dynamo_component_request_duration_seconds_sum",] == 2.5
    assert values["dynamo_component_request_duration_seconds_bucket", "2.5"] == 1
    assert values["dynamo_component_request_duration_seconds_bucket", "1.0"] == 0
    assert values["dynamo_work_handler_time_to_first_response_seconds_sum",] == 0.5
    assert values["openengine_sidecar_requests_total", "finished"] == 1
    assert values["openengine_sidecar_prompt_tokens_total",] == 7
    assert values["openengine_sidecar_cached_prompt_tokens_total",] == 3
    assert values["openengine_sidecar_output_tokens_total",] == 5
    assert values["openengine_sidecar_seconds_per_output_token_sum",] == 0.5


def test_oddities_and_dropped_hints_are_counted_by_name(metrics: Metrics) -> None:
    metrics.observe(ended(oddities={"trailing_status": 2}, dropped=("priority",)))
    values = scrape(metrics)
    assert values["openengine_sidecar_protocol_oddities_total", "trailing_status"] == 2
    assert values["openengine_sidecar_dropped_hints_total", "priority"] == 1


@pytest.mark.parametrize("end", list(KvEnd))
def test_the_kv_of_halves_is_counted_by_its_end(metrics: Metrics, end: KvEnd) -> None:
    metrics.observe(ended(kv=end))
    metrics.observe(ended())
    values = scrape(metrics)
    assert values["openengine_sidecar_kv_sessions_total", end.value] == 1
    assert sum(value for name, value in values.items() if name[0] == "openengine_sidecar_kv_sessions_total") == 1


@pytest.mark.parametrize("hold", list(HoldEnd))
def test_held_decodes_are_counted_by_what_ended_the_wait(metrics: Metrics, hold: HoldEnd) -> None:
    metrics.observe(ended(Outcome.CANCELLED, kv=KvEnd.TAKEN, hold=hold))
    assert scrape(metrics)["openengine_sidecar_decode_holds_total", hold.value] == 1


def test_labels_follow_the_role_once_it_is_known() -> None:
    metrics = Metrics(WorkerIdentity(instance_id=1))
    metrics.observe(ended())
    report = HealthBook(ignore_engine=False, now=lambda: NOW).report()
    assert b'dynamo_component="backend"' in metrics.render(report, uptime=1.0)
    metrics.observe(msgspec.structs.replace(UP, role=Role.PREFILL))
    rendered = metrics.render(report, uptime=1.0)
    assert b'dynamo_component="prefill"' in rendered
    assert b'dynamo_component="backend"' not in rendered


def test_a_single_token_has_no_gap(metrics: Metrics) -> None:
    metrics.observe(ended(output_tokens=1, ttft=0.5, duration=0.5))
    values = scrape(metrics)
    assert values["openengine_sidecar_seconds_per_output_token_count",] == 0
    assert values["dynamo_work_handler_time_to_first_response_seconds_count",] == 1


def test_a_request_without_a_token_or_usage_adds_none(metrics: Metrics) -> None:
    metrics.observe(ended(Outcome.CANCELLED, aborts=1, reason="client_gone"))
    values = scrape(metrics)
    assert values["dynamo_work_handler_time_to_first_response_seconds_count",] == 0
    assert values["openengine_sidecar_prompt_tokens_total",] == 0
    assert values["dynamo_component_cancellation_total",] == 1
    assert values["openengine_sidecar_aborts_total", "client_gone"] == 1


def test_the_clients_fault_is_no_error_of_ours(metrics: Metrics) -> None:
    for error in ("InvalidRequestError", "UnsupportedFeatureError"):
        metrics.observe(ended(Outcome.FAILED, error=error))
    values = scrape(metrics)
    assert values["openengine_sidecar_errors_total", "InvalidRequestError", "client"] == 1
    assert not [key for key in values if key[0] == "dynamo_component_errors_total"]


def test_errors_keep_dynamos_kinds(metrics: Metrics) -> None:
    metrics.observe(ended(Outcome.FAILED, error="WireError"))
    metrics.observe(ended(Outcome.FAILED, error="EngineProtocolError", rule="no_terminal"))
    values = scrape(metrics)
    assert values["dynamo_component_errors_total", "deserialization"] == 1
    assert values["dynamo_component_errors_total", "generate"] == 1
    assert values["openengine_sidecar_protocol_violations_total", "no_terminal"] == 1


def test_a_refusal_is_a_rejection_and_has_no_duration(metrics: Metrics) -> None:
    metrics.observe(ended(Outcome.REFUSED, error="OverloadedError"))
    values = scrape(metrics)
    assert values["dynamo_rejection_request_total",] == 1
    assert values["dynamo_component_request_duration_seconds_count",] == 0
    assert values["openengine_sidecar_requests_total", "refused"] == 1
    assert not [key for key in values if key[0] == "dynamo_component_errors_total"]


def test_the_engines_comings_and_goings_are_counted(metrics: Metrics) -> None:
    for fact in (*EVERYTHING, DOWN, WITHDRAWN, UP, NOT_SERVING):
        metrics.observe(fact)
    values = scrape(metrics)
    assert values["openengine_sidecar_engine_ups_total",] == 2
    assert values["openengine_sidecar_engine_downs_total", "true"] == 1
    assert values["openengine_sidecar_engine_downs_total", "false"] == 1
    assert values["openengine_sidecar_registrations_total",] == 1
    assert values["openengine_sidecar_withdrawals_total",] == 1


def test_one_engine_state_is_set_at_a_time(metrics: Metrics) -> None:
    for state in (HealthState.READY, HealthState.DRAINING):
        metrics.observe(EngineHealth(state=state))
    values = scrape(metrics)
    assert {key[1]: value for key, value in values.items() if key[0] == "openengine_sidecar_engine_state"} == {
        state.value: float(state is HealthState.DRAINING) for state in HealthState
    }


def test_readiness_and_uptime_are_those_of_the_moment(metrics: Metrics) -> None:
    book = HealthBook(ignore_engine=False, now=lambda: NOW)
    assert scrape(metrics, book=book)["openengine_sidecar_ready",] == 0
    for fact in EVERYTHING:
        book.apply(fact)
    values = scrape(metrics, uptime=12.5, book=book)
    assert values["openengine_sidecar_ready",] == 1
    assert values["openengine_sidecar_check_ready", "plane"] == 1
    assert values["dynamo_component_uptime_seconds",] == 12.5


def test_no_series_tells_when_a_counter_was_made(metrics: Metrics) -> None:
    metrics.observe(ended())
    assert not [key for key in scrape(metrics) if key[0].endswith("_created")]


def test_two_workers_in_one_process_do_not_share_a_registry() -> None:
    first, second = Metrics(IDENTITY), Metrics(IDENTITY)
    first.observe(ended())
    assert scrape(second)["dynamo_component_requests_total",] == 0

"""Answers of the control calls in the sidecar's words."""

from __future__ import annotations

from openengine_sidecar.messages.engine.control import Health, HealthCheck, HealthState, Load, RankLoad
from openengine_sidecar.proto.fields import given
from openengine_sidecar.proto.rev2.lifecycle_pb2 import HealthResponse
from openengine_sidecar.proto.rev2.observability_pb2 import LoadInfo, RankLoadInfo
from openengine_sidecar.proto.rev2_dialect.enums import HEALTH_STATES
from openengine_sidecar.proto.text import peer_text


def health(response: HealthResponse) -> Health:
    """Translate health; a state that this build does not know is UNKNOWN, which is not ready."""
    return Health(
        HEALTH_STATES.get(response.state, HealthState.UNKNOWN),
        tuple(
            HealthCheck(
                peer_text(check.name),
                HEALTH_STATES.get(check.state, HealthState.UNKNOWN),
                peer_text(check.message),
            )
            for check in response.checks
        ),
    )


def load(info: LoadInfo) -> Load:
    """Translate load; absent stays None."""
    return Load(
        instance_id=peer_text(info.instance_id),
        timestamp_unix_nanos=given(info, "timestamp_unix_nanos"),
        running_requests=given(info, "running_requests"),
        queued_requests=given(info, "queued_requests"),
        active_kv_sessions=given(info, "active_kv_sessions"),
        used_kv_blocks=given(info, "used_kv_blocks"),
        total_kv_blocks=given(info, "total_kv_blocks"),
        ranks=tuple(_rank(rank) for rank in info.ranks),
    )


def _rank(info: RankLoadInfo) -> RankLoad:
    return RankLoad(
        rank=given(info, "data_parallel_rank"),
        running_requests=given(info, "running_requests"),
        queued_requests=given(info, "queued_requests"),
        used_kv_blocks=given(info, "used_kv_blocks"),
        total_kv_blocks=given(info, "total_kv_blocks"),
    )

"""How it is served: planes, requests and limits, health, shutdown, logging."""

from __future__ import annotations

import click

from openengine_sidecar.launch.options import kinds
from openengine_sidecar.launch.options.setting import Heading, Setting

_PLANES = Heading("Planes")
_REQUESTS = Heading("Requests and limits")
_KV = Heading("KV events and load")
_HEALTH = Heading("Health")
_SHUTDOWN = Heading("Shutdown")
_LOGGING = Heading("Logging")

_PLANE_SETTINGS: tuple[Setting, ...] = (
    _PLANES.dynamo(
        "--discovery-backend",
        "DYN_DISCOVERY_BACKEND",
        kinds.DISCOVERY_BACKEND,
        "Where records are kept; the frontend must use the same.",
        default_text="file",
    ),
    _PLANES.dynamo(
        "--file-kv",
        "DYN_FILE_KV",
        kinds.STORE_DIRECTORY,
        "Directory of the file backend.",
        "discovery.root",
        default_text="$TMPDIR/dynamo_store_kv",
    ),
    _PLANES.own("--file-kv-heartbeat-secs", "discovery.heartbeat", kinds.SECONDS, "Pause between two signs of life."),
    _PLANES.own(
        "--file-kv-ttl-secs",
        "discovery.time_to_live",
        kinds.SECONDS,
        "Age at which a record without a sign of life is dead; Dynamo's is fixed at 10.",
    ),
    _PLANES.dynamo(
        "--request-plane",
        "DYN_REQUEST_PLANE",
        kinds.REQUEST_PLANE,
        "How requests arrive; the frontend must use the same.",
        default_text="nats",
    ),
    _PLANES.dynamo(
        "--response-plane",
        "DYN_RESPONSE_PLANE",
        kinds.RESPONSE_PLANE,
        "How answers leave; the frontend must use the same.",
        default_text="tcp",
    ),
    _PLANES.dynamo(
        "--event-plane",
        "DYN_EVENT_PLANE",
        kinds.EVENT_PLANE,
        "How KV events and load leave; the frontend must use the same.",
    ),
    _PLANES.dynamo(
        "--nats-server", "NATS_SERVER", kinds.NATS_SERVERS, "NATS servers, separated by commas.", "nats.servers"
    ),
    _PLANES.dynamo("--nats-username", "NATS_AUTH_USERNAME", kinds.TEXT, "NATS user.", "nats.user"),
    _PLANES.dynamo("--nats-password", "NATS_AUTH_PASSWORD", kinds.TEXT, "NATS password.", "nats.password"),
    _PLANES.own("--nats-reconnect-wait-secs", "nats.reconnect_wait", kinds.SECONDS, "Pause before a reconnect."),
)

_REQUEST_SETTINGS: tuple[Setting, ...] = (
    _REQUESTS.dynamo(
        "--engine-request-limit",
        "DYN_ENGINE_REQUEST_LIMIT",
        kinds.COUNT,
        "Requests in flight before further ones are refused as overload; unset sets no limit.",
        "admission.request_limit",
    ),
    _REQUESTS.refused(
        "--dynamo-request-queue-limit",
        "DYN_DYNAMO_REQUEST_QUEUE_LIMIT",
        "requests beyond --engine-request-limit are refused at once, none is queued; unset it",
    ),
    _REQUESTS.own("--dial-timeout-secs", "requests.dial_timeout", kinds.SECONDS, "Longest dial back to the frontend."),
    _REQUESTS.own(
        "--opening-timeout-secs", "requests.opening_timeout", kinds.SECONDS, "Longest wait for a stream's first event."
    ),
    _REQUESTS.own(
        "--idle-timeout-secs",
        "requests.idle_timeout",
        kinds.SECONDS,
        "Longest silence between two events of a stream; unset waits for ever.",
    ),
    _REQUESTS.own("--abort-timeout-secs", "requests.abort_timeout", kinds.SECONDS, "Longest single try to abort."),
    _REQUESTS.own("--abort-attempts", "requests.abort_attempts", kinds.COUNT, "Tries to abort one request."),
    _REQUESTS.own(
        "--cancel-timeout-secs",
        "requests.cancel_timeout",
        kinds.SECONDS,
        "How long an aborted stream may take to end before its call is cancelled.",
    ),
    _REQUESTS.own(
        "--decode-cancel-hold-secs",
        "requests.decode_cancel_hold",
        kinds.SECONDS_OR_ZERO,
        "How long a cancelled decode may wait for its engine to take the prefill's KV over, so that none is stranded. "
        "Engines that abort by KV session need no such wait.",
    ),
    _REQUESTS.own(
        "--max-session-bytes",
        "requests.max_session_bytes",
        kinds.BYTES,
        "Largest KV session carried from prefill to decode.",
    ),
    _REQUESTS.own(
        "--max-frame-bytes", "requests.max_frame_bytes", kinds.BYTES, "Largest frame of a request or an answer."
    ),
    _REQUESTS.switch(
        "--drop-unsupported-hints",
        "requests.drop_unsupported_hints",
        "Drop and count hints (priority) that the engine cannot take, instead of refusing the request.",
    ),
)

_KV_SETTINGS: tuple[Setting, ...] = (
    _KV.own(
        "--kv-events",
        "kv.events",
        kinds.KV_EVENTS,
        "Tell routers what the engine's cache holds: auto where the engine offers it, required or end, off.",
    ),
    _KV.switch(
        "--kv-events-live-only",
        "kv.live_only",
        "Offer routers no way to ask for what they missed; a router that misses something forgets the rank.",
    ),
    _KV.own(
        "--kv-index-blocks",
        "kv.index_blocks",
        kinds.COUNT,
        "Most blocks of a rank that are remembered; unset takes what the engine says it has.",
    ),
    _KV.own(
        "--kv-queue-blocks",
        "kv.queue_blocks",
        kinds.COUNT,
        "Blocks in events that wait for a slow event plane; the oldest go first, and routers ask for them.",
    ),
    _KV.own("--kv-timeout-secs", "kv.timeout", kinds.SECONDS, "Longest single question for the sources of events."),
    _KV.own(
        "--kv-repeat-interval-secs",
        "kv.repeat_interval",
        kinds.SECONDS,
        "Silence after which the newest event is said again, for routers that missed it.",
    ),
    _KV.own(
        "--load-interval-secs",
        "load.interval",
        kinds.SECONDS_OR_ZERO,
        "Pause between two polls of load; 0 is off.",
    ),
    _KV.own("--load-timeout-secs", "load.timeout", kinds.SECONDS, "Longest single poll of load."),
    _KV.own(
        "--load-age-limit-secs", "load.age_limit", kinds.SECONDS, "How long a number holds that is not measured again."
    ),
)

_HEALTH_SETTINGS: tuple[Setting, ...] = (
    _HEALTH.dynamo(
        "--system-port",
        "DYN_SYSTEM_PORT",
        kinds.PORT,
        "Port of /live, /health, /metrics and /actors; 0 picks one, -1 is off. Needs the extra `http`.",
        "reporter.port",
        default_text="off",
    ),
    _HEALTH.dynamo(
        "--system-host",
        "DYN_SYSTEM_HOST",
        kinds.TEXT,
        "Address it listens on; 0.0.0.0 for every interface.",
        "reporter.host",
    ),
    _HEALTH.dynamo(
        "--system-health-path", "DYN_SYSTEM_HEALTH_PATH", kinds.HTTP_PATH, "Path of readiness.", "reporter.health_path"
    ),
    _HEALTH.dynamo(
        "--system-live-path", "DYN_SYSTEM_LIVE_PATH", kinds.HTTP_PATH, "Path of liveness.", "reporter.live_path"
    ),
    _HEALTH.switch(
        "--health-ignores-engine",
        "reporter.ignore_engine",
        "Readiness does not wait for the engine; for pods in which this worker must be up first.",
    ),
    _HEALTH.own("--health-interval-secs", "engine.health_interval", kinds.SECONDS, "Pause between two polls."),
    _HEALTH.own("--health-timeout-secs", "engine.health_timeout", kinds.SECONDS, "Longest single poll."),
    _HEALTH.own("--health-misses", "engine.health_misses", kinds.COUNT, "Polls missed in a row before withdrawing."),
    _HEALTH.own("--degraded-is-ready", "engine.degraded_is_ready", kinds.TRUTH, "Serve while the engine is degraded."),
    _HEALTH.dynamo(
        "--health-check-enabled",
        "DYN_HEALTH_CHECK_ENABLED",
        kinds.TRUTH,
        "Ask the engine for a small real run when it had no request for a while.",
        "engine.canary",
    ),
    _HEALTH.dynamo("--canary-wait-secs", "DYN_CANARY_WAIT_TIME", kinds.SECONDS, "That while.", "engine.canary_wait"),
    _HEALTH.dynamo(
        "--health-check-timeout-secs",
        "DYN_HEALTH_CHECK_REQUEST_TIMEOUT",
        kinds.SECONDS,
        "Longest such run.",
        "engine.canary_timeout",
    ),
)

_SHUTDOWN_SETTINGS: tuple[Setting, ...] = (
    _SHUTDOWN.dynamo(
        "--grace-period-secs",
        "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS",
        kinds.SECONDS_OR_ZERO,
        "How long requests are still taken after the records were withdrawn; skipped when idle.",
        "drain.grace",
    ),
    _SHUTDOWN.dynamo(
        "--drain-timeout-secs",
        "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS",
        kinds.SECONDS,
        "Longest whole shutdown, the grace included; what still runs then is cancelled.",
        "drain.timeout",
    ),
    _SHUTDOWN.switch(
        "--drain-engine",
        "drain.drain_engine",
        "Drain the engine too, after our own streams; there is no way back for it.",
    ),
)

_LOGGING_SETTINGS: tuple[Setting, ...] = (
    _LOGGING.dynamo(
        "--log-filter",
        "DYN_LOG",
        kinds.LOG_FILTER,
        "Level, and levels of parts, as in info,actors.engine=debug,nats=off.",
        default_text="info",
    ),
    _LOGGING.setting(
        ("--log-format",),
        ("DYN_SIDECAR_LOG_FORMAT", "DYN_LOGGING_JSONL"),
        "One line of text or one JSON object per record; true means json.",
        type=kinds.LOG_FORMAT,
        default_text="text",
    ),
    _LOGGING.setting(
        ("--log-local-time",), ("DYN_LOG_USE_LOCAL_TZ",), "Local time in place of UTC.", type=click.BOOL, is_flag=True
    ),
)

OPERATION: tuple[Setting, ...] = (
    _PLANE_SETTINGS + _REQUEST_SETTINGS + _KV_SETTINGS + _HEALTH_SETTINGS + _SHUTDOWN_SETTINGS + _LOGGING_SETTINGS
)

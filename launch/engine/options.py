"""Options of the reference engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SHIPPED_MODEL = Path(__file__).resolve().parent.parent / "model"
SCHEMA_RELEASE = "cea19cb06acf03c911b84d5c147e519b60dd92a6"
MEBIBYTE = 1024 * 1024
ROLES = ("aggregated", "prefill", "decode")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Everything that shapes one reference engine. Durations are seconds, sizes tokens, blocks or bytes.

    `without` names features (rows of the feature table) that are neither advertised nor honoured. `faults`, `answers`
    and `health` are scripts, see the modules of those names; with `prompt_faults` a prompt may carry faults too.
    `max_context_length` None takes the model directory's.
    `kv_events` names the transports on which KV events are offered (`grpc`, `zmq`), none by default; `kv_history` is
    the number of batches remembered for replay, 0 offers none; `kv_patience` how many may wait for one subscriber.
    `role` is one of ROLES; `kv_port` is where a prefill engine hands sessions over, `kv_session_ttl` how long it holds
    one that nobody takes; without `kv_abort_cleanup` an abort by KV session is UNIMPLEMENTED.
    `ping_strikes_after` is the interval below which a client's pings without data are strikes, as stock gRPC servers
    count them; None tolerates any.
    """

    host: str = "127.0.0.1"
    port: int = 0
    model_path: Path = SHIPPED_MODEL
    served_model_name: str | None = None
    aliases: tuple[str, ...] = ()
    token_delay: float = 0.0
    tokens_per_event: int = 1
    seed: int = 0
    max_context_length: int | None = None
    max_output_tokens: int | None = None
    max_num_sequences: int = 16
    max_top_n: int = 20
    kv_block_size: int = 16
    total_kv_blocks: int = 8192
    max_running_requests: int = 4096
    max_loras: int = 8
    data_parallel_size: int = 1
    data_parallel_start_rank: int = 0
    kv_events: frozenset[str] = frozenset()
    kv_event_encoding: str = "decimal_int64"
    kv_snapshots: bool = True
    kv_history: int = 1024
    kv_patience: int = 4096
    kv_topic: str = "kv-events"
    minimal: bool = False
    without: frozenset[str] = frozenset()
    role: str = "aggregated"
    kv_port: int = 0
    kv_session_ttl: float = 60.0
    kv_abort_cleanup: bool = True
    engine_name: str = "openengine-reference"
    reasoning_parser: str = ""
    tool_call_parser: str = ""
    schema_revision: int = 2
    minimum_client_revision: int = 1
    schema_release: str = SCHEMA_RELEASE
    start_delay: float = 0.0
    health: str = "ready"
    faults: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    prompt_faults: bool = False
    keep_requests: int = 64
    max_message_bytes: int = 64 * MEBIBYTE
    ping_strikes_after: float | None = None

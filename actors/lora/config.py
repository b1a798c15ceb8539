"""Frozen configuration of LoRA adapters. Durations are seconds, sizes bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE
GIBIBYTE = 1024 * MEBIBYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterLimits:
    """What one adapter may consist of, wherever it lies."""

    max_bytes: int = 8 * GIBIBYTE
    max_files: int = 256
    max_depth: int = 4  # directories between the adapter's own and a file
    max_config_bytes: int = MEBIBYTE  # adapter_config.json


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferConfig:
    """How adapters are read from other places. Credentials come from where boto3 and huggingface_hub look for them."""

    attempts: int = 5  # in a row that brought nothing
    retry_wait: float = 0.5  # before the second attempt, doubled before each further one
    retry_wait_max: float = 10.0
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    chunk_bytes: int = 256 * KIBIBYTE  # a fetch can be cancelled between two; a broken connection costs less than one
    s3_endpoint: str | None = None  # None takes what boto3 finds (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, profiles)
    hub_endpoint: str | None = None  # None takes huggingface_hub's (HF_ENDPOINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraConfig:
    """Whether and how a worker serves adapters.

    Attributes:
        cache: directory that this worker, its neighbours and the engine see under the same path; without one,
            adapters are loaded only from where the engine sees them already.
        cache_bytes: what the cache may hold at most; None leaves that to the disk.
        fetch_timeout: for bringing one adapter into the cache.
        load_timeout: for one LoadLora, UnloadLora or ListLoras call of the engine.
        idle_timeout: how long an unload waits for requests that use the adapter.
        adopt: whether adapters that the engine serves already become models of this worker.
        max_waiting: operations that may wait for one adapter's turn.
        retry_interval: pause before an adapter that was live, and failed, is tried again.
    """

    enabled: bool = False
    cache: Path | None = None
    cache_bytes: int | None = None
    fetch_timeout: float = 1800.0
    load_timeout: float = 120.0
    idle_timeout: float = 60.0
    adopt: bool = True
    max_waiting: int = 256
    retry_interval: float = 5.0
    limits: AdapterLimits = field(default_factory=AdapterLimits)
    transfer: TransferConfig = field(default_factory=TransferConfig)

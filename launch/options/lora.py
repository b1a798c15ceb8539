"""LoRA adapters: whether, from where, how patiently."""

from __future__ import annotations

from openengine_sidecar.launch.options import kinds
from openengine_sidecar.launch.options.setting import Heading, Setting

_LORA = Heading("LoRA adapters")

LORA: tuple[Setting, ...] = (
    _LORA.dynamo(
        "--lora-enabled",
        "DYN_LORA_ENABLED",
        kinds.TRUTH,
        "Load and unload adapters while requests run: /v1/loras on the system port, and three control endpoints.",
        "lora.enabled",
    ),
    _LORA.dynamo(
        "--lora-path",
        "DYN_LORA_PATH",
        kinds.STORE_DIRECTORY,
        "Cache of adapters from s3:// and hf://; the engine must see it under the same path.",
        "lora.cache",
        default_text="$HOME/.cache/dynamo_loras",
    ),
    _LORA.own(
        "--lora-cache-bytes",
        "lora.cache_bytes",
        kinds.BYTES,
        "Most that the cache holds: least recently used go first, never one in use; unset leaves it to the disk.",
    ),
    _LORA.own("--lora-fetch-timeout-secs", "lora.fetch_timeout", kinds.SECONDS, "Longest fetch of one adapter."),
    _LORA.own(
        "--lora-load-timeout-secs", "lora.load_timeout", kinds.SECONDS, "Longest single adapter call to the engine."
    ),
    _LORA.own(
        "--lora-idle-timeout-secs",
        "lora.idle_timeout",
        kinds.SECONDS,
        "How long an unload waits for requests that use the adapter.",
    ),
    _LORA.own(
        "--lora-retry-interval-secs",
        "lora.retry_interval",
        kinds.SECONDS,
        "Pause before an adapter that was live, and was lost, is tried again.",
    ),
    _LORA.own(
        "--lora-adopt", "lora.adopt", kinds.TRUTH, "Serve adapters that the engine holds already when it is met."
    ),
    _LORA.own(
        "--lora-max-gpu-count",
        "model.max_loras",
        kinds.COUNT,
        "Adapters that the engine holds at once, told to routers; unset says nothing.",
    ),
    _LORA.dynamo(
        "--lora-s3-endpoint",
        "AWS_ENDPOINT",
        kinds.TEXT,
        "URL of the S3 service; unset takes what boto3 finds. Credentials are its environment's.",
    ),
)

"""From parsed settings to the frozen configuration of a worker."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from openengine_sidecar.actors.config import FileDiscoveryConfig, ReporterConfig, SidecarConfig
from openengine_sidecar.actors.lora.config import TransferConfig
from openengine_sidecar.actors.reporter.extras import require_http
from openengine_sidecar.launch.log_filter import LogFilter
from openengine_sidecar.launch.logs import LogOptions
from openengine_sidecar.launch.options import SERVE_SETTINGS
from openengine_sidecar.launch.options.setting import SECTIONS, default_of
from openengine_sidecar.messages.errors import ConfigurationError

_HIGHEST_ID = 2**63 - 1
_RESERVED_PATHS = frozenset({"/metrics", "/actors", "/actors/trace"})


def sidecar_config(values: Mapping[str, object]) -> SidecarConfig:
    """Build the configuration of a worker, with an instance id of its own.

    Args:
        values: converted values of the settings of `serve` by parameter name; None stands for not given.

    Raises:
        ConfigurationError: two settings contradict each other, or one needs an extra that is not installed.
    """
    sections = _by_section(values)
    identity, discovery = sections["identity"], sections["discovery"]
    identity["instance_id"] = draw_instance_id()
    if suffix := values.get("namespace_worker_suffix"):
        identity["namespace"] = with_suffix(identity.get("namespace") or default_of("identity.namespace"), str(suffix))
    identity["component_by_role"] = "component" not in identity
    discovery.setdefault("root", default_store())
    sections["lora"].setdefault("cache", default_lora_cache())
    if endpoint := values.get("lora_s3_endpoint"):
        sections["lora"]["transfer"] = TransferConfig(s3_endpoint=str(endpoint))
    config = SidecarConfig(**{name: SECTIONS[name](**fields) for name, fields in sections.items()})
    _check_store(config.discovery)
    _check_paths(config.reporter)
    if config.reporter.port is not None:
        require_http()
    return config


def log_options(values: Mapping[str, object]) -> LogOptions:
    """Build the logging options of a worker from the same values."""
    return LogOptions(
        json=values.get("log_format") == "json",
        filter=cast("LogFilter | None", values.get("log_filter")) or LogFilter(),
        local_time=bool(values.get("log_local_time")),
    )


def draw_instance_id() -> int:
    """Draw the id of one life of a worker: positive, 63 bit, so that it survives every signed 64 bit hop."""
    return secrets.randbelow(_HIGHEST_ID) + 1


def with_suffix(namespace: str, suffix: str) -> str:
    """Append `-suffix` to a namespace that does not end so already (Dynamo's rule for rolling updates)."""
    return namespace if namespace.endswith(f"-{suffix}") else f"{namespace}-{suffix}"


def default_store() -> Path:
    """Return Dynamo's default directory of the file store."""
    return Path(os.environ.get("TMPDIR") or "/tmp") / "dynamo_store_kv"  # noqa: S108 - where every Dynamo process looks


def default_lora_cache() -> Path:
    """Return Dynamo's default directory for adapters."""
    return Path.home() / ".cache" / "dynamo_loras"


def _by_section(values: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for setting in SERVE_SETTINGS:
        value = values.get(str(setting.name))
        for path in setting.fields if value is not None else ():
            section, _, field = path.partition(".")
            sections[section][field] = value
    return sections


def _check_store(discovery: FileDiscoveryConfig) -> None:
    if discovery.heartbeat >= discovery.time_to_live:
        option = "--file-kv-heartbeat-secs (DYN_SIDECAR_FILE_KV_HEARTBEAT_SECS)"
        problem = f"{discovery.heartbeat:g} s is not shorter than --file-kv-ttl-secs, {discovery.time_to_live:g} s"
        raise ConfigurationError(option, problem)


def _check_paths(reporter: ReporterConfig) -> None:
    for option, path, taken in (
        ("--system-health-path (DYN_SYSTEM_HEALTH_PATH)", reporter.health_path, _RESERVED_PATHS),
        ("--system-live-path (DYN_SYSTEM_LIVE_PATH)", reporter.live_path, _RESERVED_PATHS | {reporter.health_path}),
    ):
        if path in taken:
            problem = f"{path} already serves something else"
            raise ConfigurationError(option, problem)

"""Asking an engine who it is, and refusing the answers that cannot be served."""

from __future__ import annotations

import grpc
import grpc.aio

from openengine_sidecar.actors.config import EngineConfig
from openengine_sidecar.messages.engine.control import Health, HealthState
from openengine_sidecar.messages.engine.discovery import Discovery, Role
from openengine_sidecar.messages.errors import DiscoveryError
from openengine_sidecar.proto.dialect import Dialect, EngineCallError
from openengine_sidecar.proto.selection import select_dialect
from openengine_sidecar.proto.validation import validate

SAME_ACROSS_RESTARTS = ("model_id", "role", "schema_release")


async def describe(channel: grpc.aio.Channel, config: EngineConfig, *, timeout: float) -> tuple[Dialect, Discovery]:
    """Find the schema spoken and read what the engine says of itself.

    Raises:
        EngineCallError: a call failed; ask again later.
        DiscoveryError: the answer must be refused; asking again does not help.
    """
    dialect = await select_dialect(channel, endpoint=config.endpoint, timeout=timeout)
    discovery = await dialect.discover(channel, model=config.model, timeout=timeout, endpoint=config.endpoint)
    validate(discovery, dialect, endpoint=config.endpoint, pin=config.schema_release)
    if discovery.capabilities.token_ids_input is not True:
        raise DiscoveryError(config.endpoint, "it does not advertise token ids as input")
    serving_role(discovery, config)
    return dialect, discovery


async def ask_health(dialect: Dialect, channel: grpc.aio.Channel, *, timeout: float, probe: bool = False) -> Health:
    """Ask for health; an engine that has no such method is READY while it answers discovery.

    With `probe` a small real run is asked for, and nothing takes its place.

    Raises:
        EngineCallError: the call failed.
    """
    try:
        return await dialect.health(channel, probe=probe, timeout=timeout)
    except EngineCallError as error:
        if probe or error.status is not grpc.StatusCode.UNIMPLEMENTED:
            raise
    await dialect.speaks(channel, timeout=timeout)
    return Health(HealthState.READY)


def serving_role(discovery: Discovery, config: EngineConfig) -> Role:
    """Decide the role to serve as: the configured one, else the engine's, else aggregated.

    Raises:
        DiscoveryError: the two contradict each other, or the engine cannot hand KV over.
    """
    wanted, said = config.role, discovery.role
    if wanted is not None and said is not None and wanted is not said:
        problem = f"it serves as {said.value}, this worker is configured as {wanted.value}"
        raise DiscoveryError(config.endpoint, problem)
    role = wanted or said or Role.AGGREGATED
    if role is not Role.AGGREGATED and discovery.kv_connector is not None and discovery.kv_connector.enabled is False:
        raise DiscoveryError(config.endpoint, f"its KV connector is off, so it cannot serve as {role.value}")
    return role


def require_same_engine(old: Discovery, new: Discovery, endpoint: str) -> None:
    """Refuse an engine that came back as something else.

    Raises:
        DiscoveryError: model, role or schema release differ.
    """
    for field in SAME_ACROSS_RESTARTS:
        before, now = getattr(old, field), getattr(new, field)
        if before != now:
            raise DiscoveryError(endpoint, f"it came back with {field} {now!r}, was {before!r}")

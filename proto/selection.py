"""Finding out which schema an engine speaks."""

from __future__ import annotations

from collections.abc import Sequence

import grpc.aio

from openengine_sidecar.messages.errors import DiscoveryError
from openengine_sidecar.proto.dialect import Dialect
from openengine_sidecar.proto.rev2_dialect import Revision2

DIALECTS: tuple[Dialect, ...] = (Revision2(),)
"""Every schema that this build speaks, in the order in which an engine is asked."""


async def select_dialect(
    channel: grpc.aio.Channel, *, endpoint: str, timeout: float, dialects: Sequence[Dialect] = DIALECTS
) -> Dialect:
    """Ask the engine in each schema until one answers.

    Only UNIMPLEMENTED on a discovery method means "another schema". An engine that is not reachable, or not ready to
    answer, says nothing about its schema.

    Args:
        channel: where to ask.
        endpoint: the engine's name in errors.
        timeout: seconds, for each call.
        dialects: the schemas to try, in order.

    Raises:
        EngineCallError: a discovery call failed otherwise; ask again later.
        DiscoveryError: something listens that speaks none of the schemas.
    """
    for dialect in dialects:
        if await dialect.speaks(channel, timeout=timeout):
            return dialect
    tried = ", ".join(dialect.name for dialect in dialects)
    raise DiscoveryError(endpoint, f"no known OpenEngine service answered (tried: {tried})")

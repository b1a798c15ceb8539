"""Which part an engine plays."""

from __future__ import annotations

from openengine_sidecar.launch.engine.generation import Generator
from openengine_sidecar.launch.engine.options import EngineOptions
from openengine_sidecar.launch.engine.requests import RequestTable
from openengine_sidecar.launch.engine.roles.aggregated import Aggregated
from openengine_sidecar.launch.engine.roles.base import Part
from openengine_sidecar.launch.engine.roles.decode import Decode
from openengine_sidecar.launch.engine.roles.kinds import DECODE, PREFILL
from openengine_sidecar.launch.engine.roles.prefill import Prefill
from openengine_sidecar.launch.engine.stats import Stats


def part_of(options: EngineOptions, generator: Generator, table: RequestTable, stats: Stats) -> Part:
    """Make the part that an engine with these options plays."""
    if options.role == PREFILL.name:
        return Prefill(options, generator, stats)
    if options.role == DECODE.name:
        return Decode(options, generator, table, stats)
    return Aggregated(generator)

"""The reference engine: a deterministic OpenEngine server for tests, demos and fault drills. An engine simulator."""

from openengine_sidecar.launch.engine.options import EngineOptions
from openengine_sidecar.launch.engine.reference import ReferenceEngine

__all__ = ["EngineOptions", "ReferenceEngine"]

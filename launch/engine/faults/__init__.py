"""Misbehaviour on demand. Importing the package fills the registry."""

from openengine_sidecar.launch.engine.faults import calls, content, contract, endings, handoff, kv
from openengine_sidecar.launch.engine.faults.registry import FAULTS, Fault, FaultScriptError, Scene, parse

__all__ = [
    "FAULTS",
    "Fault",
    "FaultScriptError",
    "Scene",
    "calls",
    "content",
    "contract",
    "endings",
    "handoff",
    "kv",
    "parse",
]

"""The test kit: time, order and failure in the hands of a test."""

from __future__ import annotations

from openengine_sidecar.supervision.testing._faults import InjectedError, crash_at, crash_now
from openengine_sidecar.supervision.testing._gate import Gate
from openengine_sidecar.supervision.testing._probe import Probe
from openengine_sidecar.supervision.testing._scheduler import SeededScheduler
from openengine_sidecar.supervision.testing._stage import Stage
from openengine_sidecar.supervision.testing._virtual_clock import VirtualClock

__all__ = [
    "Gate",
    "InjectedError",
    "Probe",
    "SeededScheduler",
    "Stage",
    "VirtualClock",
    "crash_at",
    "crash_now",
]

"""The discovery store as the Registrar sees it, whatever backend keeps it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from loguru import logger

INSTANCE_ID_BITS = 63


def new_instance_id() -> int:
    """An id for this process: random, positive, 63 bit, so that it is an ordinary number everywhere."""
    return secrets.randbelow(2**INSTANCE_ID_BITS - 1) + 1


class Mishap(StrEnum):
    """What befell a record that this worker owns."""

    RESTORED = "restored"
    """It had vanished (the process was stopped, the store was wiped) and stands again."""

    NOT_KEPT = "not_kept"
    """It could not be kept alive, or not be written again; the next beat tries again."""

    NOT_WITHDRAWN = "not_withdrawn"
    """It could not be taken out; nobody keeps it alive any more, so it will expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """One mishap. `problem` is for people, empty for `RESTORED`."""

    key: str
    mishap: Mishap
    problem: str = ""


ReportMishap = Callable[[StoreReport], None]
"""Hears of mishaps on the thread that noticed; must be quick."""


def log_mishap(report: StoreReport) -> None:
    """Tells the log."""
    logger.warning("discovery record {}: {} {}", report.key, report.mishap.value, report.problem)


class DiscoveryStore(Protocol):
    """Records that stand while this process lives and owns them; keys are those of `messages.dynamo.naming`."""

    async def open(self) -> None:
        """Makes ready to publish and begins to keep records alive.

        Raises:
            StoreError: the backend cannot be used.
        """
        ...

    async def publish(self, key: str, value: bytes) -> None:
        """Puts a record under a key and keeps it alive; replaces what this worker had there.

        Raises:
            StoreError: the backend refused, or another live worker holds the key. What stood before stays.
        """
        ...

    async def withdraw(self, key: str) -> None:
        """Takes a record out; nothing happens for a key that this worker does not own.

        Raises:
            StoreError: the backend refused. The record is no longer kept alive and will expire.
        """
        ...

    async def withdraw_all(self) -> None:
        """Takes every record out, cards first and instances last.

        Raises:
            StoreError: the first that could not be taken out; the others are gone.
        """
        ...

    async def close(self) -> None:
        """Takes every record out and stops; what fails is reported, not raised. Harmless when repeated."""
        ...

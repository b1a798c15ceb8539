"""Keeping records in discovery on an actor's behalf, for as long as the worker is registered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from loguru import logger

from openengine_sidecar.actors.kv.telling import Offices
from openengine_sidecar.actors.records import PublishRecord, WithdrawRecord
from openengine_sidecar.actors.requests.protocol import Expose
from openengine_sidecar.supervision import ActorGoneError, AskTimeoutError, Clock, MailboxFullError

ASK_TIMEOUT = 10.0
RETRY = 1.0


class Announcer:
    """Puts records up whenever the worker is registered, and an endpoint before them, where there is one.

    Args:
        offices: who is asked.
        records: in the order in which they must appear.
        exposed: the endpoint that they speak of.
        clock: of the pause between two tries.
    """

    def __init__(
        self, offices: Offices, records: Sequence[PublishRecord], clock: Clock, *, exposed: Expose | None = None
    ) -> None:
        self._offices = offices
        self._records = records
        self._exposed = exposed
        self._clock = clock

    async def announce(self) -> None:
        """Put everything up; tries until it stands, so cancel it when the worker is withdrawn."""
        while (problem := await self._try()) is not None:
            logger.debug("not announced yet: {}", problem)
            await self._clock.sleep(RETRY)

    def withdraw(self) -> None:
        """Take everything down, the last first, without waiting."""
        registrar = self._offices.registrar
        for record in reversed(self._records):
            if registrar.is_alive:
                registrar.tell(WithdrawRecord(key=record.key))

    async def _try(self) -> str | None:
        try:
            if self._exposed is not None:
                await self._offices.gate.ask(self._exposed, timeout=ASK_TIMEOUT)
            for record in self._records:
                problem: Any = await self._offices.registrar.ask(record, timeout=ASK_TIMEOUT)
                if problem is not None:
                    return str(problem)
        except (AskTimeoutError, ActorGoneError, MailboxFullError) as error:
            return str(error)
        return None


def replaced(task: asyncio.Task[None] | None) -> None:
    """Cancel a task that another one takes the place of."""
    if task is not None:
        task.cancel()

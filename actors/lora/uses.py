"""Which adapters requests may use now, and how many requests use each: shared by the controller and the streams."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from openengine_sidecar.actors.lora.names import shown
from openengine_sidecar.actors.lora.steps import Phase
from openengine_sidecar.messages.errors import EngineUnreachableError, InvalidRequestError


class AdapterUses:
    """Adapters as requests see them. Belongs to one event loop; only the controller shows adapters.

    A use begins only while its adapter is live. It may outlive that: who unloads waits for it.
    """

    def __init__(self) -> None:
        self._phases: Mapping[str, Phase] = {}
        self._running: Counter[str] = Counter()
        self._waiters: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)

    def show(self, phases: Mapping[str, Phase]) -> None:
        """Say where every adapter stands that there is."""
        self._phases = phases

    def running(self, name: str) -> int:
        """How many requests use an adapter."""
        return self._running[name]

    @contextmanager
    def use(self, request_id: str, name: str) -> Generator[None]:
        """Use an adapter for as long as the context lasts; an empty name is the base model.

        Raises:
            InvalidRequestError: there is no such adapter here.
            EngineUnreachableError: there is, but not at this moment; another worker may have it.
        """
        if not name:
            yield
            return
        phase = self._phases.get(name, Phase.ABSENT)
        if phase is Phase.ABSENT:
            raise InvalidRequestError(request_id, f"adapter {shown(name)} is not loaded")
        if phase is not Phase.LIVE:
            raise EngineUnreachableError(request_id, f"adapter {shown(name)} is {phase.value}")
        self._running[name] += 1
        try:
            yield
        finally:
            self._running[name] -= 1
            if not self._running[name]:
                del self._running[name]
                self._wake(name)

    async def quiet(self, name: str) -> None:
        """Wait until no request uses an adapter."""
        while self._running[name]:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters[name].append(waiter)
            await waiter

    def _wake(self, name: str) -> None:
        for waiter in self._waiters.pop(name, ()):
            if not waiter.done():
                waiter.set_result(None)

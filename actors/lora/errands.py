"""Fetches under way: each in a child of the controller, each with an order to stop at hand."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

from openengine_sidecar.actors.lora.cache import AdapterCache, Lease
from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.fetch import FetchedAdapter, Fetcher
from openengine_sidecar.actors.lora.fetching import AdapterFetch, FetchAdapter
from openengine_sidecar.actors.lora.leases import Leases
from openengine_sidecar.actors.lora.steps import Fetched, FetchFailed
from openengine_sidecar.messages.errors import LoraCacheError, LoraError
from openengine_sidecar.supervision import KILL, Actor, ChildSpec, Ref, Restart

PATIENCE = 60.0
"""Seconds that a fetch may take to notice that its time is up."""


class Errands:
    """What the controller has done elsewhere than on its loop.

    Args:
        owner: whose children the fetches are.
        fetcher: fetches.
        timeout: seconds that one may take.
    """

    def __init__(self, owner: Actor[Any], fetcher: Fetcher, timeout: float) -> None:
        self._owner = owner
        self._fetcher = fetcher
        self._timeout = timeout
        self._tokens: dict[str, CancelToken] = {}
        self._numbers = count(1)

    def expect(self, name: str, address: str) -> None:
        """A fetch is about to begin; from here on it can be cancelled."""
        self._tokens[name] = CancelToken(address)

    def cancel(self, name: str, reason: str) -> None:
        """Order a fetch to stop."""
        if token := self._tokens.get(name):
            token.cancel(reason)

    def cancel_all(self, reason: str) -> None:
        """Order every fetch to stop."""
        for token in self._tokens.values():
            token.cancel(reason)

    async def fetch(self, name: str, address: str, leases: Leases) -> Fetched | FetchFailed:
        """Fetch an adapter; where that succeeds its lease is kept in `leases`."""
        token, clock = self._tokens[name], self._owner.clock
        timer = clock.call_at(clock.monotonic() + self._timeout, token.cancel, f"it took longer than {self._timeout} s")
        try:
            fetched = await self._in_thread(address, token)
        except Exception as error:  # noqa: BLE001 - whatever befell the fetch, it is this adapter's failure alone
            self._owner.log.opt(exception=error).error("fetching {} from {} failed", name, address)
            return FetchFailed(f"{address}: the fetch failed: {error!r}")
        finally:
            timer.cancel()
            token.cancel("it is over")
            del self._tokens[name]
        if isinstance(fetched, LoraError):
            return FetchFailed(str(fetched))
        leases.keep(name, str(fetched.path), fetched.lease)
        return Fetched(str(fetched.path))

    def hold(self, cache: AdapterCache | None, path: str) -> asyncio.Task[Lease | None]:
        """Begin to hold what lies in the cache already."""
        return self._owner.background(self._hold(cache, path), name=f"hold {path}")

    async def _hold(self, cache: AdapterCache | None, path: str) -> Lease | None:
        if cache is None:
            return None
        try:
            return await asyncio.to_thread(cache.hold, Path(path))
        except LoraCacheError as error:
            self._owner.log.error("{} may be evicted while it is in use: {}", path, error)
            return None

    async def _in_thread(self, address: str, token: CancelToken) -> FetchedAdapter | LoraError:
        spec = ChildSpec(
            name=f"fetch-{next(self._numbers)}",
            factory=lambda: AdapterFetch(self._fetcher, token),
            restart=Restart.TEMPORARY,
            shutdown=KILL,
        )
        child: Ref[FetchAdapter] = await self._owner.spawn(spec)
        try:
            answer: FetchedAdapter | LoraError = await child.ask(
                FetchAdapter(address), timeout=self._timeout + PATIENCE
            )
        finally:
            child.cancel("done")
        return answer

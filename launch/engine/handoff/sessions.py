"""The KV sessions that a prefill engine holds until somebody takes them, releases them, or their time is up."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from openengine_sidecar.launch.engine.stats import SessionCounts

REMEMBERED = 65_536


@dataclass(slots=True)
class HeldSession:
    """One session that is being held.

    Attributes:
        digest: the prompt's.
        tokens: prompt tokens whose KV it holds.
        rank: data-parallel rank that holds it.
        refusal: why a pull will be refused, where a fault wants that.
        delay: seconds that a pull takes.
    """

    session_id: str
    digest: int
    tokens: int
    rank: int
    refusal: str = ""
    delay: float = 0.0
    timer: asyncio.TimerHandle | None = None


class SessionStore:
    """Holds sessions by id, each for `ttl` seconds at most.

    Args:
        ttl: the engine's own time-out, for what nobody takes or releases.
        counts: what became of them.
        changed: called after every change.
    """

    def __init__(self, ttl: float, counts: SessionCounts, changed: Callable[[], None]) -> None:
        self._ttl = ttl
        self._counts = counts
        self._changed = changed
        self._held: dict[str, HeldSession] = {}
        self._over: OrderedDict[str, None] = OrderedDict()

    def hold(self, session: HeldSession) -> None:
        """Take a new session in."""
        self._held[session.session_id] = session
        session.timer = asyncio.get_running_loop().call_later(self._ttl, self._expire, session.session_id)
        self._counts.created += 1
        self._changed()

    def find(self, session_id: str) -> HeldSession | None:
        """Look a session up."""
        return self._held.get(session_id)

    def over(self, session_id: str) -> bool:
        """Tell whether a session of this id was here and is over."""
        return session_id in self._over

    def blocks(self, rank: int, size: int) -> int:
        """Sum up the blocks of `size` tokens that sessions hold on one rank."""
        return sum(-(-session.tokens // size) for session in self._held.values() if session.rank == rank)

    def taken(self, session_id: str) -> bool:
        """Free a session because a decode engine has it now; False where it is not held."""
        return self._free(session_id, "taken")

    def released(self, session_id: str) -> bool:
        """Free a session because somebody gave it up; False where it is not held."""
        return self._free(session_id, "released")

    def lost(self, session_id: str) -> bool:
        """Forget a session, as a fault would; False where it is not held."""
        return self._free(session_id, "lost")

    def close(self) -> None:
        """Free everything without counting: the engine ends."""
        for session in self._held.values():
            if session.timer is not None:
                session.timer.cancel()
        self._held.clear()

    def _expire(self, session_id: str) -> None:
        self._free(session_id, "expired")

    def _free(self, session_id: str, how: str) -> bool:
        session = self._held.pop(session_id, None)
        if session is None:
            return False
        if session.timer is not None:
            session.timer.cancel()
        if how != "lost":
            self._over[session_id] = None
            if len(self._over) > REMEMBERED:
                self._over.popitem(last=False)
        setattr(self._counts, how, getattr(self._counts, how) + 1)
        self._changed()
        return True

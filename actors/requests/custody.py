"""Custody: who answers for the KV of one request, by what this half of it can see. Without I/O or clock.

The engines own the life of a session; a worker can only tell its own engine to let go, and must know when that is its
business:

- prefill: from the moment that the session is known until the frontend has it;
- decode: from the request's arrival until its engine took the KV over, which its first token, or its end, shows.

Whatever is left after that, the engine's own time-out frees.
"""

from __future__ import annotations

from typing import Protocol

from openengine_sidecar.messages.engine.control import AbortOutcome
from openengine_sidecar.messages.engine.discovery import Discovery, Role
from openengine_sidecar.messages.engine.generation import (
    Event,
    Fault,
    FaultCode,
    Finished,
    FinishReason,
    KvSession,
    PrefillReady,
    Tokens,
)
from openengine_sidecar.messages.facts import KvEnd

_FREED = {AbortOutcome.ABORTED: KvEnd.RELEASED, AbortOutcome.UNSPECIFIED: KvEnd.RELEASED, AbortOutcome.GONE: KvEnd.GONE}


class Custody(Protocol):
    """One request's.

    Attributes:
        session: what its worker has to let go, None while there is nothing, or once it is somebody else's business.
        end: what became of it, None until that is known.
        by_session: whether the engine says that an abort by session frees it.
        holds: whether an abort by request id would strand the session now.
    """

    session: KvSession | None
    end: KvEnd | None
    by_session: bool

    @property
    def holds(self) -> bool:  # noqa: D102 - an attribute, described above
        ...

    def saw(self, event: Event) -> None:
        """Takes an event in, whether the contract allows it or not."""
        ...

    def delivered(self) -> None:
        """The frontend has the whole answer."""
        ...

    def aborted(self) -> None:
        """The engine was told to abort the request by its id."""
        ...

    def let_go(self, outcome: AbortOutcome | None) -> None:
        """The engine was told to abort the session; None and UNSUPPORTED freed nothing."""
        ...


class NoCustody:
    """Of a request that one engine serves whole: there is no session."""

    session: KvSession | None = None
    end: KvEnd | None = None
    by_session = False
    holds = False

    def saw(self, event: Event) -> None:
        """Nothing to see."""

    def delivered(self) -> None:
        """Nothing to deliver."""

    def aborted(self) -> None:
        """Nothing depends on it."""

    def let_go(self, outcome: AbortOutcome | None) -> None:
        """Nothing to let go."""


class _SessionCustody:
    """What both halves have in common: a session that is to be let go at most once."""

    def __init__(self, session: KvSession | None, *, by_session: bool) -> None:
        self.session = session
        self.end: KvEnd | None = None
        self.by_session = by_session

    def delivered(self) -> None:
        """Changes nothing."""

    def aborted(self) -> None:
        """Changes nothing."""

    def let_go(self, outcome: AbortOutcome | None) -> None:
        """Ends it."""
        self._over(KvEnd.LEFT if outcome is None else _FREED.get(outcome, KvEnd.LEFT))

    def _over(self, end: KvEnd) -> None:
        self.session = None
        self.end = end


class PrefillCustody(_SessionCustody):
    """Of a prefill: the engine hands a session out, the frontend gets it."""

    holds = False

    def __init__(self, *, by_session: bool) -> None:
        super().__init__(None, by_session=by_session)

    def saw(self, event: Event) -> None:
        """A handoff makes the session this worker's business."""
        if isinstance(event.body, PrefillReady) and event.body.session is not None:
            self.session, self.end = event.body.session, None

    def delivered(self) -> None:
        """The session is the decode half's business now."""
        if self.session is not None:
            self._over(KvEnd.DELIVERED)

    def aborted(self) -> None:
        """The engine frees what it had begun; a session may cross the abort, and is seen then."""
        if self.session is None:
            self.end = KvEnd.ABORTED


class DecodeCustody(_SessionCustody):
    """Of a decode: the session lies with the prefill engine until this half's engine has taken it."""

    @property
    def holds(self) -> bool:
        """Until the KV was taken over: an engine that gives up before tells nobody at the prefill's side."""
        return self.session is not None

    def saw(self, event: Event) -> None:
        """A token, or an end that is no abort's, shows that the KV was taken; an unknown session that it is gone."""
        body = event.body
        if self.session is None:
            return
        if (isinstance(body, Tokens) and body.token_ids) or (
            isinstance(body, Finished) and body.reason is not FinishReason.CANCELLED
        ):
            self._over(KvEnd.TAKEN)
        elif isinstance(body, Fault) and body.code is FaultCode.KV_SESSION_NOT_FOUND:
            self._over(KvEnd.GONE)


def custody_of(role: Role, session: KvSession | None, discovery: Discovery) -> Custody:
    """The custody of a request that came to a worker of this role, with this session."""
    connector = discovery.kv_connector
    by_session = connector is not None and connector.abort_cleanup is True
    if role is Role.PREFILL:
        return PrefillCustody(by_session=by_session)
    if role is Role.DECODE:
        return DecodeCustody(session, by_session=by_session)
    return NoCustody()

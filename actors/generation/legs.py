"""What each role makes of a request and of its answer: the whole of it, its prefill, or its decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from openengine_sidecar.actors.generation import handoff, routing
from openengine_sidecar.actors.generation.prefill import HandoffTranslator
from openengine_sidecar.actors.generation.response import ResponseTranslator
from openengine_sidecar.actors.generation.stopping import prefill_stopping, stopping
from openengine_sidecar.actors.generation.terms import Terms
from openengine_sidecar.messages.dynamo.request import PreprocessedRequest, Routing
from openengine_sidecar.messages.dynamo.response import LLMEngineOutput
from openengine_sidecar.messages.engine.discovery import Role
from openengine_sidecar.messages.engine.generation import Event, GenerateCall, KvSession, Stopping

_RANK = "routing.dp_rank"
_PREFILL_RANK = "routing.prefill_dp_rank"


class Translator(Protocol):
    """Turns the events of one stream into output items."""

    def outputs(self, event: Event) -> Sequence[LLMEngineOutput]:
        """Translates one event into the items that it is worth.

        Raises:
            RequestError: the event ends the request with an error.
        """
        ...


class Leg(Protocol):
    """The part of a request that one role serves. Its methods raise what `translate` raises."""

    def stopping(self, request: PreprocessedRequest, terms: Terms) -> Stopping:
        """Says when the engine is to stop."""
        ...

    def rank(self, route: Routing, terms: Terms) -> int | None:
        """Picks the data-parallel rank to name."""
        ...

    def session(self, request: PreprocessedRequest, terms: Terms) -> KvSession | None:
        """Finds the KV session to go on from."""
        ...

    def translator(self, call: GenerateCall, request: PreprocessedRequest, terms: Terms) -> Translator:
        """Makes the translator of the answer."""
        ...


class Whole:
    """A request from prompt to answer."""

    def stopping(self, request: PreprocessedRequest, terms: Terms) -> Stopping:
        """As asked."""
        return stopping(request, terms)

    def rank(self, route: Routing, terms: Terms) -> int | None:
        """The router's."""
        return routing.data_parallel_rank(_RANK, route.dp_rank, terms)

    def session(self, request: PreprocessedRequest, terms: Terms) -> KvSession | None:
        """There is none."""
        handoff.no_session(request, terms)
        return None

    def translator(self, call: GenerateCall, request: PreprocessedRequest, terms: Terms) -> Translator:
        """Of tokens."""
        del request, terms
        return ResponseTranslator(call)


class Prefill:
    """The prompt alone; what comes of it is a session to hand over."""

    def stopping(self, request: PreprocessedRequest, terms: Terms) -> Stopping:
        """After one token."""
        return prefill_stopping(request, terms)

    def rank(self, route: Routing, terms: Terms) -> int | None:
        """The router's, under the name that it has for this half."""
        if route.prefill_dp_rank is not None:
            return routing.data_parallel_rank(_PREFILL_RANK, route.prefill_dp_rank, terms)
        return routing.data_parallel_rank(_RANK, route.dp_rank, terms)

    def session(self, request: PreprocessedRequest, terms: Terms) -> KvSession | None:
        """There is none yet."""
        handoff.no_session(request, terms)
        return None

    def translator(self, call: GenerateCall, request: PreprocessedRequest, terms: Terms) -> Translator:
        """Of the handoff."""
        del request
        return HandoffTranslator(call, terms.offer.discovery, terms.config)


class Decode:
    """The answer alone, from a session that a prefill left."""

    def stopping(self, request: PreprocessedRequest, terms: Terms) -> Stopping:
        """As asked."""
        return stopping(request, terms)

    def rank(self, route: Routing, terms: Terms) -> int | None:
        """None: the session's own rank decides."""
        del route, terms
        return None

    def session(self, request: PreprocessedRequest, terms: Terms) -> KvSession | None:
        """The prefill's."""
        return handoff.handed_over(request, terms)

    def translator(self, call: GenerateCall, request: PreprocessedRequest, terms: Terms) -> Translator:
        """Of tokens; the usage tells what the prefill found cached."""
        return ResponseTranslator(call, prefilled=handoff.cached_tokens(request, terms))


LEGS: Mapping[Role, Leg] = MappingProxyType({Role.AGGREGATED: Whole(), Role.PREFILL: Prefill(), Role.DECODE: Decode()})

"""The KV session of a request: where one belongs, and whether it fits the engine that is to go on from it."""

from __future__ import annotations

from collections.abc import Iterator

from openengine_sidecar.actors.generation.capabilities import describe
from openengine_sidecar.actors.generation.terms import Terms
from openengine_sidecar.messages.dynamo.handoff import KvHandoff, read_handoff
from openengine_sidecar.messages.dynamo.request import PreprocessedRequest
from openengine_sidecar.messages.engine.discovery import Discovery, KvConnector, Parallelism
from openengine_sidecar.messages.engine.generation import KvSession, KvSessionContent
from openengine_sidecar.messages.errors import WireError
from openengine_sidecar.proto.fields import FieldError
from openengine_sidecar.proto.handoff.reading import peek_session, read_session
from openengine_sidecar.proto.text import peer_text

_CACHED = "prefill_result.prompt_tokens_details.cached_tokens"
_NO_CONNECTOR = KvConnector()


def no_session(request: PreprocessedRequest, terms: Terms) -> None:
    """Makes sure that a role which starts from the prompt was given nothing to go on from.

    Raises:
        HandoffError: it was.
    """
    if request.prefill_result is not None:
        terms.mismatch(f"the result of a prefill belongs to a decode worker, this one serves as {terms.offer.role}")


def handed_over(request: PreprocessedRequest, terms: Terms) -> KvSession:
    """Takes the session that the prefill half left.

    Raises:
        HandoffError: there is none, it cannot be read, or it is not one that this engine's connector takes.
    """
    result = request.prefill_result
    if result is None or result.disaggregated_params is None:
        terms.mismatch("a decode worker goes on from a prefill, and the request brings the result of none")
    try:
        handoff = read_handoff(result.disaggregated_params)
        wire = handoff.wire()
        if len(wire) > terms.config.max_session_bytes:
            terms.mismatch(f"the KV session is {len(wire)} bytes; see --max-session-bytes")
        content = read_session(wire)
    except (WireError, FieldError) as error:
        terms.mismatch(str(error))
    discovery = terms.offer.discovery
    if problem := fits_connector(content, discovery) or _other_version(handoff, discovery):
        terms.mismatch(problem)
    return content.session


def session_in(request: PreprocessedRequest) -> KvSession | None:
    """Finds the session that a request brings, whatever else is wrong with either; None where none can be made out."""
    result = request.prefill_result
    try:
        return None if result is None else peek_session(read_handoff(result.disaggregated_params).wire())
    except (WireError, FieldError):
        return None


def cached_tokens(request: PreprocessedRequest, terms: Terms) -> int | None:
    """Finds how many prompt tokens the prefill half had cached; None where it did not say.

    Raises:
        InvalidRequestError: the number is none.
    """
    details = request.prefill_result and request.prefill_result.prompt_tokens_details
    cached = (details or {}).get("cached_tokens")
    if cached is not None and (type(cached) is not int or cached < 0):
        terms.reject(_CACHED, cached, "not a number of tokens")
    return cached


def fits_connector(content: KvSessionContent, discovery: Discovery) -> str:
    """Says what of a session contradicts an engine's connector and ranks; empty where nothing does.

    What either side does not say is left to the engine.
    """
    return next(_contradictions(content, discovery.kv_connector or _NO_CONNECTOR, discovery), "")


def _contradictions(content: KvSessionContent, connector: KvConnector, discovery: Discovery) -> Iterator[str]:
    session, backend = content.session, connector.transfer_backend
    if session.transfer_backend and backend and session.transfer_backend != backend:
        yield f"the KV session is for transfer backend {peer_text(session.transfer_backend)}, the engine has {backend}"
    for endpoint in content.endpoints:
        if endpoint.protocol and connector.protocols and endpoint.protocol not in connector.protocols:
            spoken = describe(connector.protocols)
            yield f"the KV session is fetched over {endpoint.protocol}, the engine speaks {spoken}"
    ranks = discovery.parallelism.ranks
    if session.dp_rank not in ranks and _says_ranks(discovery.parallelism):
        yield f"the KV session lies on rank {session.dp_rank}, the engine's are {ranks.start} to {ranks.stop - 1}"


def _says_ranks(parallelism: Parallelism) -> bool:
    return (parallelism.data, parallelism.data_rank, parallelism.data_start_rank) != (None, None, None)


def _other_version(handoff: KvHandoff, discovery: Discovery) -> str:
    connector = discovery.kv_connector
    known = connector.schema_version if connector is not None else None
    if None in {handoff.schema_version, known} or handoff.schema_version == known:
        return ""
    return f"the KV session is of attribute schema {handoff.schema_version}, the engine's connector of {known}"

"""From a prefill's events to its one output item: the handoff."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.generation.handoff import fits_connector
from openengine_sidecar.actors.generation.response import cancelled_by_engine, completion_usage
from openengine_sidecar.messages.dynamo.handoff import KvHandoff, pack_handoff
from openengine_sidecar.messages.dynamo.response import FinishReason, LLMEngineOutput
from openengine_sidecar.messages.engine.discovery import Discovery
from openengine_sidecar.messages.engine.generation import (
    Event,
    Fault,
    Finished,
    GenerateCall,
    KvSession,
    KvSessionContent,
    PrefillReady,
)
from openengine_sidecar.messages.errors import EngineProtocolError, HandoffError
from openengine_sidecar.proto.faults import error_from_fault
from openengine_sidecar.proto.fields import FieldError
from openengine_sidecar.proto.handoff.reading import read_session
from openengine_sidecar.proto.text import peer_text


class HandoffTranslator:
    """Translates the events of a prefill's stream, each accepted by its rules before.

    Its tokens go nowhere: decode makes all of them. The router asks a decode worker only after a chunk that ends with
    `length`; anything else would pass for the whole answer.
    """

    def __init__(self, call: GenerateCall, discovery: Discovery, config: RequestConfig) -> None:
        self._request_id = call.request_id
        self._discovery = discovery
        self._limit = config.max_session_bytes

    def outputs(self, event: Event) -> Sequence[LLMEngineOutput]:
        """Translates one event.

        Raises:
            EngineCancelledError: the engine gave the prefill up by itself.
            EngineProtocolError: its session cannot be carried, or is not of its own connector.
            HandoffError: its session is larger than may be carried.
            RequestError: the engine reported that it failed; the class is the fault's.
        """
        body = event.body
        if isinstance(body, PrefillReady) and body.session is not None:
            usage = None if event.usage is None else completion_usage(event.usage)
            handoff = self._packed(body.session)
            return (
                LLMEngineOutput(
                    token_ids=[],
                    finish_reason=FinishReason.LENGTH,
                    completion_usage=usage,
                    disaggregated_params=handoff,
                ),
            )
        if isinstance(body, Finished):
            raise cancelled_by_engine(self._request_id, body)
        if isinstance(body, Fault):
            raise error_from_fault(self._request_id, body)
        return ()

    def _packed(self, session: KvSession) -> KvHandoff:
        size = len(session.wire)
        if size > self._limit:
            problem = f"the KV session is {size} bytes, at most {self._limit} are carried; see --max-session-bytes"
            raise HandoffError(self._request_id, problem)
        try:
            content = read_session(session.wire)
        except FieldError as error:
            raise EngineProtocolError(self._request_id, "unfit_session", str(error)) from error
        if problem := fits_connector(content, self._discovery):
            raise EngineProtocolError(self._request_id, "foreign_session", problem)
        connector = self._discovery.kv_connector
        version = connector.schema_version if connector is not None else None
        return pack_handoff(session.wire, schema_version=version, readable=self._readable(content))

    def _readable(self, content: KvSessionContent) -> dict[str, Any]:
        session, discovery = content.session, self._discovery
        return {
            "session_id": peer_text(session.session_id),
            "transfer_backend": peer_text(session.transfer_backend),
            "endpoints": [f"{each.protocol}://{each.host}:{each.port}" for each in content.endpoints],
            "dp_rank": session.dp_rank,
            "attributes": content.attributes,
            "engine": f"{discovery.engine_name} {discovery.engine_version}",
            "instance_id": discovery.instance_id,
            "schema_release": discovery.schema_release,
        }

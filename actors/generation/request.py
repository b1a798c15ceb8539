"""From Dynamo's request to an engine's call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.generation import context, routing
from openengine_sidecar.actors.generation.capabilities import Offer
from openengine_sidecar.actors.generation.extra import extra_args
from openengine_sidecar.actors.generation.guide import guide
from openengine_sidecar.actors.generation.legs import LEGS, Leg, Translator
from openengine_sidecar.actors.generation.media import media, media_options
from openengine_sidecar.actors.generation.sampling import sampling
from openengine_sidecar.actors.generation.scoring import logprobs
from openengine_sidecar.actors.generation.terms import Terms
from openengine_sidecar.messages.dynamo.request import InboundRequest, Routing
from openengine_sidecar.messages.engine.discovery import Discovery, Role
from openengine_sidecar.messages.engine.generation import GenerateCall

_NOWHERE = Routing()


@dataclass(frozen=True, slots=True)
class Translation:
    """A request in the engine's words.

    Attributes:
        call: what to ask the engine.
        translator: of what it will answer.
        dropped: names of the hints that were left out, for counting.
    """

    call: GenerateCall
    translator: Translator
    dropped: tuple[str, ...] = ()


def translate(
    inbound: InboundRequest,
    *,
    request_id: str,
    discovery: Discovery,
    role: Role,
    config: RequestConfig,
    trace: Mapping[str, str],
) -> Translation:
    """Translates a request for the engine that `discovery` describes; `fields` says what becomes of each field.

    Args:
        inbound: the request as it was read.
        request_id: the engine's request id, unique per attempt.
        discovery: what the engine said of itself.
        role: what this worker serves as.
        config: bounds and manners of requests.
        trace: headers of the inbound request; only the W3C trace headers are picked.

    Raises:
        InvalidRequestError: a value that no engine could take.
        UnsupportedFeatureError: something that this engine does not advertise, or that its schema cannot say.
        HandoffError: a KV session where this role takes none, none where it needs one, or one that does not fit.
    """
    leg = LEGS[role]
    terms = Terms(request_id, Offer(discovery, role), config)
    terms.refuse_what_cannot_travel(inbound)
    call = _call(inbound, leg, terms, trace)
    return Translation(call, leg.translator(call, inbound.request, terms), tuple(terms.dropped))


def _call(inbound: InboundRequest, leg: Leg, terms: Terms, trace: Mapping[str, str]) -> GenerateCall:
    request, extra = inbound.request, extra_args(inbound.request.extra_args, terms)
    if not request.token_ids:
        terms.reject("token_ids", [], "there is no prompt")
    route, output = request.routing or _NOWHERE, request.output_options
    items = media(request, extra.messages, terms)
    return GenerateCall(
        request_id=terms.request_id,
        model=terms.offer.discovery.model_id,
        token_ids=request.token_ids,
        sampling=sampling(request.sampling_options, terms),
        stopping=leg.stopping(request, terms),
        output_logprobs=logprobs("output_options.logprobs", output.logprobs, terms),
        prompt_logprobs=logprobs("output_options.prompt_logprobs", output.prompt_logprobs, terms),
        guide=guide(request.sampling_options.guided_decoding, terms),
        media=items,
        media_options=media_options(request.mm_processor_kwargs, items, terms),
        lora_name=routing.lora_name(route, terms),
        priority=routing.priority(route, terms),
        data_parallel_rank=leg.rank(route, terms),
        bypass_prefix_cache=routing.bypass_prefix_cache(extra, terms),
        cache_salt=routing.cache_salt(route, extra, terms),
        kv_session=leg.session(request, terms),
        metadata=context.metadata(extra, terms),
        trace=context.trace(trace, terms),
    )

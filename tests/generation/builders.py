from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.generation.request import Translation, translate
from openengine_sidecar.actors.generation.response import ResponseTranslator
from openengine_sidecar.actors.generation.rules import StreamRules
from openengine_sidecar.messages.dynamo.control import Codec
from openengine_sidecar.messages.dynamo.request import InboundRequest, decode_request
from openengine_sidecar.messages.dynamo.response import LLMEngineOutput
from openengine_sidecar.messages.engine.discovery import (
    CandidateMode,
    Capabilities,
    Discovery,
    Limits,
    LogprobCapability,
    Parallelism,
    Role,
)
from openengine_sidecar.messages.engine.generation import (
    Event,
    EventBody,
    Finished,
    FinishReason,
    GenerateCall,
    GuideMode,
    Logprobs,
    MediaSource,
    Modality,
    Sampling,
    StopMatch,
    Stopping,
    TokenDetail,
    Tokens,
    Usage,
)

ID = "5e0b.1"
PROMPT = [84, 82, 68]
USAGE = Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5)

STOCK: dict[str, Any] = {
    "model": "toy",
    "token_ids": PROMPT,
    "stop_conditions": {
        "max_tokens": None,
        "stop": None,
        "stop_token_ids": None,
        "stop_token_ids_visible": None,
        "stop_token_ids_hidden": [257],
        "min_tokens": None,
        "ignore_eos": None,
        "max_thinking_tokens": None,
    },
    "sampling_options": {"n": None, "best_of": None, "temperature": None, "guided_decoding": None},
    "output_options": {"logprobs": None, "prompt_logprobs": None, "skip_special_tokens": None},
    "eos_token_ids": [257],
    "mdc_sum": "29529cab",
    "annotations": [],
    "routing": {},
    "router_config_override": None,
}

CAPABLE = Capabilities(
    token_ids_input=True,
    prompt_logprobs=LogprobCapability(supported=True, modes=(CandidateMode.TOP_N,), max_top_n=5),
    output_logprobs=LogprobCapability(supported=True, modes=(CandidateMode.TOP_N,), max_top_n=20),
    guided_decoding=True,
    guide_modes=tuple(GuideMode),
    max_num_sequences=4,
    priority=True,
    stop_in_output=True,
    cache_salt=True,
    prefix_cache_bypass=True,
    lora=True,
    multimodal=True,
    aggregate_modalities=tuple(Modality),
    prefill_decode_modalities=(Modality.IMAGE,),
    media_sources=tuple(MediaSource),
    media_options=True,
)


def engine(
    capabilities: Capabilities = CAPABLE,
    *,
    limits: Limits | None = None,
    parallelism: Parallelism | None = None,
) -> Discovery:
    return Discovery(
        dialect="rev2",
        engine_name="any",
        engine_version="1",
        instance_id="i",
        schema_revision=2,
        minimum_client_revision=1,
        schema_release="cea19cb",
        role=None,
        supported_models=("org/toy",),
        model_id="org/toy",
        served_model_name="toy",
        limits=limits or Limits(max_context_length=100, max_output_tokens=40),
        parallelism=parallelism or Parallelism(data=4, data_start_rank=2),
        capabilities=capabilities,
    )


def but(**changes: Any) -> Discovery:
    return engine(msgspec.structs.replace(CAPABLE, **changes))


FULL = engine()
BARE = engine(Capabilities(token_ids_input=True), limits=Limits(), parallelism=Parallelism())


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for key, value in changes.items():
        before = both.get(key)
        both[key] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return both


def nested(path: str, value: Any) -> dict[str, Any]:
    head, _, rest = path.partition(".")
    return {head: nested(rest, value) if rest else value}


def inbound(changes: Mapping[str, Any] | None = None) -> InboundRequest:
    return decode_request(msgspec.msgpack.encode(merged(STOCK, changes or {})), Codec.MSGPACK)


def translated(
    changes: Mapping[str, Any] | None = None,
    discovery: Discovery = FULL,
    *,
    role: Role = Role.AGGREGATED,
    config: RequestConfig | None = None,
    trace: Mapping[str, str] | None = None,
) -> Translation:
    return translate(
        inbound(changes),
        request_id=ID,
        discovery=discovery,
        role=role,
        config=config or RequestConfig(),
        trace=trace or {},
    )


def called(changes: Mapping[str, Any] | None = None, discovery: Discovery = FULL, **how: Any) -> GenerateCall:
    return translated(changes, discovery, **how).call


def call(
    *, n: int | None = None, top_n: int | None = -1, prompt_top_n: int | None = -1, max_tokens: int | None = None
) -> GenerateCall:
    return GenerateCall(
        request_id=ID,
        model="org/toy",
        token_ids=PROMPT,
        sampling=Sampling(num_sequences=n),
        stopping=Stopping(max_tokens=max_tokens),
        output_logprobs=None if top_n == -1 else Logprobs(top_n=top_n),
        prompt_logprobs=None if prompt_top_n == -1 else Logprobs(top_n=prompt_top_n),
    )


def event(body: EventBody, usage: Usage | None = None) -> Event:
    return Event(ID, body, usage)


def tokens(*token_ids: int, index: int | None = 0, text: str = "", usage: Usage | None = None) -> Event:
    return event(Tokens(index=index, token_ids=list(token_ids), text=text), usage)


def detailed(*details: TokenDetail, index: int = 0) -> Event:
    return event(Tokens(index=index, token_ids=[detail.token_id for detail in details], details=details))


def finished(
    reason: FinishReason = FinishReason.STOP,
    *,
    index: int | None = 0,
    usage: Usage | None = USAGE,
    match: StopMatch | None = None,
    message: str = "",
) -> Event:
    return event(Finished(index=index, reason=reason, match=match, message=message), usage)


def answered_by(translation: Translation, *events: Event, role: Role, whole: bool = True) -> list[LLMEngineOutput]:
    """What a translated request is answered; `whole` where the events are a whole stream."""
    rules = StreamRules(translation.call, role)
    items: list[LLMEngineOutput] = []
    for each in events:
        rules.accept(each)
        items.extend(translation.translator.outputs(each))
    if whole:
        rules.closed()
    return items


def answered(of: GenerateCall, *events: Event, role: Role = Role.AGGREGATED) -> list[LLMEngineOutput]:
    rules, translator = StreamRules(of, role), ResponseTranslator(of)
    items: list[LLMEngineOutput] = []
    for each in events:
        rules.accept(each)
        items.extend(translator.outputs(each))
    rules.closed()
    return items

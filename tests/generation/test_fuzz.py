from __future__ import annotations

import math
import os
from collections import Counter
from contextlib import suppress
from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.generation.request import translate
from openengine_sidecar.actors.generation.response import ResponseTranslator
from openengine_sidecar.actors.generation.rules import StreamRules
from openengine_sidecar.messages.dynamo.control import Codec
from openengine_sidecar.messages.dynamo.encoding import ENCODERS
from openengine_sidecar.messages.dynamo.request import decode_request
from openengine_sidecar.messages.dynamo.response import Envelope, LLMEngineOutput
from openengine_sidecar.messages.dynamo.two_part import FrameDecoder
from openengine_sidecar.messages.engine.discovery import Discovery, Role
from openengine_sidecar.messages.engine.generation import Event, Finished, GenerateCall, Guide, MediaItem, Tokens
from openengine_sidecar.messages.errors import InvalidRequestError, RequestError, WireError
from openengine_sidecar.proto.fields import FieldError
from openengine_sidecar.proto.rev2_dialect.requests import encode
from tests.generation.builders import FULL
from tests.generation.strategies import CALLS, ENGINES, REQUESTS, TRACES, VALID_REQUESTS, corrupted, streams

pytestmark = pytest.mark.timeout(3600)

EXAMPLES = 10_000 if os.environ.get("OPENENGINE_TESTS") == "long" else 200

fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def round_trip(items: list[LLMEngineOutput], codec: Codec) -> list[LLMEngineOutput]:
    decode = msgspec.msgpack.decode if codec is Codec.MSGPACK else msgspec.json.decode
    bodies = [frame.body for frame in FrameDecoder().feed(ENCODERS[codec].outputs(items))]
    envelopes = [decode(body, type=Envelope, strict=True) for body in bodies]
    return [
        envelope.data.data for envelope in envelopes if envelope.data is not None and envelope.data.data is not None
    ]


def only_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(only_finite, value.values()))
    return all(map(only_finite, value)) if isinstance(value, list) else True


class Run:
    """One stream through rules and translator, as a stream actor drives them."""

    def __init__(self, of: GenerateCall, events: list[Event]) -> None:
        self.rules = StreamRules(of, Role.AGGREGATED)
        self.items: list[LLMEngineOutput] = []
        self.error: RequestError | None = None
        translator = ResponseTranslator(of)
        try:
            for event in events:
                self.rules.accept(event)
                self.items.extend(translator.outputs(event))
            self.rules.closed()
        except RequestError as error:
            self.error = error

    @property
    def ended(self) -> Counter[int]:
        return Counter(item.index or 0 for item in self.items if item.finish_reason is not None)


@fuzz
@given(wire=REQUESTS, discovery=ENGINES, trace=TRACES, lenient=st.booleans())
def test_any_request_becomes_a_call_or_a_client_fault(
    *, wire: dict[str, Any], discovery: Discovery, trace: dict[str, str], lenient: bool
) -> None:
    with suppress(WireError, InvalidRequestError):
        inbound = decode_request(msgspec.msgpack.encode(wire), Codec.MSGPACK)
        config = RequestConfig(drop_unsupported_hints=lenient)
        translation = translate(
            inbound, request_id="r", discovery=discovery, role=Role.AGGREGATED, config=config, trace=trace
        )
        asks_for_no_more_than_is_offered(translation.call, discovery)
        assert translation.call.token_ids == wire["token_ids"] != []
        assert len(translation.call.media) >= sum(map(len, (wire.get("multi_modal_data") or {}).values()))
        assert lenient or set(translation.dropped) <= {"mm_processor_kwargs"}
        with suppress(FieldError):
            encode(translation.call)


@fuzz
@given(VALID_REQUESTS)
def test_a_valid_request_is_served_whole_by_a_capable_engine(wire: dict[str, Any]) -> None:
    order = wire.pop("order", [])
    inbound = decode_request(msgspec.msgpack.encode(wire), Codec.MSGPACK)
    translation = translate(
        inbound, request_id="r", discovery=FULL, role=Role.AGGREGATED, config=RequestConfig(), trace={}
    )
    call, request = translation.call, inbound.request
    assert translation.dropped == ()
    assert encode(call)
    assert [(item.value, item.uuid) for item in call.media] == order
    assert (call.guide is None) == (request.sampling_options.guided_decoding is None)
    assert (call.sampling.num_sequences, call.sampling.seed) == (
        request.sampling_options.n,
        request.sampling_options.seed,
    )
    assert set(call.stopping.stop_texts) == set(request.stop_conditions.stop or [])
    assert set(call.stopping.stop_token_ids) == {
        *(request.stop_conditions.stop_token_ids or []),
        *(request.stop_conditions.stop_token_ids_hidden or []),
    }


def asks_for_no_more_than_is_offered(call: GenerateCall, discovery: Discovery) -> None:
    offered = discovery.capabilities
    asked = {
        "priority": call.priority is not None,
        "stop_in_output": bool(call.stopping.include_stop),
        "cache_salt": call.cache_salt is not None,
        "prefix_cache_bypass": bool(call.bypass_prefix_cache),
        "lora": call.lora_name != "",
        "multimodal": call.media != (),
        "media_options": call.media_options is not None,
        "guided_decoding": call.guide is not None,
    }
    assert all(getattr(offered, name) is True for name, wanted in asked.items() if wanted)
    assert (call.sampling.num_sequences or 1) <= max(1, offered.max_num_sequences or 1)
    assert call.data_parallel_rank is None or (discovery.parallelism.data or 0) > 1
    guided_and_shown_as_offered(call.guide, call.media, discovery)


def guided_and_shown_as_offered(guide: Guide | None, media: tuple[MediaItem, ...], discovery: Discovery) -> None:
    offered = discovery.capabilities
    assert guide is None or guide.mode in offered.guide_modes
    assert {item.modality for item in media} <= set(offered.aggregate_modalities)
    assert {item.source for item in media} <= set(offered.media_sources)


@fuzz
@given(st.data(), CALLS)
def test_a_good_stream_arrives_whole(data: st.DataObject, of: GenerateCall) -> None:
    events = data.draw(streams(of))
    run = Run(of, events)
    assert (run.error, run.rules.terminal) == (None, True)
    outputs = range(of.sampling.num_sequences or 1)
    assert run.ended == dict.fromkeys(outputs, 1)
    for index in outputs:
        sent = [
            event.body.token_ids for event in events if isinstance(event.body, Tokens) and event.body.index == index
        ]
        got = [item.token_ids for item in run.items if (item.index or 0) == index]
        assert [*chain(*got)] == [*chain(*sent)]
    assert [item.completion_usage is not None for item in run.items] == [False] * (len(run.items) - 1) + [True]
    assert run.rules.usage == events[-1].usage
    assert run.rules.oddities.keys() <= {"empty_tokens"}


@fuzz
@given(st.data(), CALLS)
def test_a_good_stream_is_encoded_without_loss(data: st.DataObject, of: GenerateCall) -> None:
    items = Run(of, data.draw(streams(of))).items
    assert all(only_finite(msgspec.to_builtins(item)) for item in items)
    for codec in Codec:
        assert round_trip(items, codec) == items


@fuzz
@given(st.data(), CALLS)
def test_logprobs_stay_aligned(data: st.DataObject, of: GenerateCall) -> None:
    for item in Run(of, data.draw(streams(of))).items:
        if of.output_logprobs is None or item.finish_reason is not None:
            assert (item.log_probs, item.top_logprobs) == (None, None)
            continue
        tops = item.top_logprobs or []
        assert len(item.token_ids) == len(item.log_probs or []) == len(tops)
        assert [top[0].token_id for top in tops] == item.token_ids
        assert all(len(top) <= 1 + (of.output_logprobs.top_n or 0) for top in tops)


@fuzz
@given(st.data(), CALLS)
def test_a_corrupted_stream_ends_once_and_only_in_known_ways(data: st.DataObject, of: GenerateCall) -> None:
    events = data.draw(corrupted(of))
    run = Run(of, events)
    outputs = of.sampling.num_sequences or 1
    assert all(count == 1 and 0 <= index < outputs for index, count in run.ended.items())
    assert sum(item.completion_usage is not None for item in run.items) <= 1
    if run.error is None:
        assert run.ended.total() == outputs
        last = min(place for place, event in enumerate(events) if isinstance(event.body, Finished) and event.usage)
        assert run.rules.oddities["event_after_terminal"] == len(events) - last - 1
    bound = of.stopping.max_tokens
    for index in range(outputs):
        made = sum(len(item.token_ids) for item in run.items if (item.index or 0) == index)
        assert bound is None or made <= bound
    assert round_trip(run.items, Codec.MSGPACK) == run.items

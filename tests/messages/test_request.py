from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from openengine_sidecar.messages.dynamo.control import Codec, decode_control
from openengine_sidecar.messages.dynamo.request import (
    GuidedDecoding,
    InboundRequest,
    MediaEntry,
    PreprocessedRequest,
    Routing,
    decode_request,
)
from openengine_sidecar.messages.dynamo.two_part import decode_frame
from openengine_sidecar.messages.errors import WireError

VECTORS = Path(__file__).parent / "vectors"
MINIMUM = {"model": "toy", "token_ids": [1, 2]}


def encode(value: object, codec: Codec = Codec.MSGPACK) -> bytes:
    return msgspec.msgpack.encode(value) if codec is Codec.MSGPACK else msgspec.json.encode(value)


def stock(name: str) -> InboundRequest:
    frame = decode_frame((VECTORS / f"{name}.request.bin").read_bytes())
    return decode_request(frame.body, decode_control(frame.header).codec)


def test_a_stock_chat_arrives_whole() -> None:
    inbound = stock("chat")
    request = inbound.request
    assert inbound.unknown == {}
    assert request.model == "toy/M.1"
    assert len(request.token_ids) == 20
    assert request.stop_conditions.max_tokens == 3
    assert request.stop_conditions.stop == ["zz", "yy"]
    assert request.stop_conditions.stop_token_ids_hidden == request.eos_token_ids == [2]
    assert request.sampling_options.temperature == pytest.approx(0.7)
    assert request.sampling_options.seed == 7
    assert request.output_options.logprobs == 2
    assert request.routing == Routing(cache_salt="s1", priority=3, priority_jump=3.0)
    assert request.extra_args == {"nvext": {"cache_salt": "s1"}}
    assert request.mdc_sum == "be86ea9c298bdf77c024ea4456670b2ed017b5dcefdbfc063ba0c13f08541d99"


def test_a_stock_json_body_arrives_whole() -> None:
    inbound = stock("json")
    options = inbound.request.sampling_options
    assert inbound.unknown == {}
    assert options.guided_decoding == GuidedDecoding(regex="a+")
    assert (options.top_k, options.include_stop_str_in_output) == (5, True)
    assert inbound.request.stop_conditions.ignore_eos is True
    assert inbound.request.output_options.prompt_logprobs == 1
    assert inbound.request.output_options.skip_special_tokens is False


def test_a_stock_schema_is_kept_as_it_is() -> None:
    guided = stock("schema").request.sampling_options.guided_decoding
    assert guided == GuidedDecoding(json={"type": "object", "properties": {"a": {"type": "integer"}}})


def test_stock_media_arrive_by_kind_with_their_uuids() -> None:
    inbound = stock("media")
    assert inbound.unknown == {}
    assert inbound.request.multi_modal_data == {
        "image_url": [MediaEntry(url="data:image/png;base64,iVBORw0KGgo=")],
        "audio_url": [MediaEntry(url="https://example.com/a.wav")],
        "video_url": [MediaEntry(url="https://example.com/v.mp4")],
    }
    assert inbound.request.multi_modal_uuids == {"image_url": ["u1"], "audio_url": [None], "video_url": [None]}
    assert inbound.request.annotations == ["formatted_prompt", "token_ids"]
    assert inbound.request.extra_args is not None
    kinds = [part["type"] for part in inbound.request.extra_args["messages"][0]["content"]]
    assert kinds == ["text", "image_url", "audio_url", "video_url"]


@pytest.mark.parametrize("codec", Codec)
def test_the_minimum_is_a_request(codec: Codec) -> None:
    expected = PreprocessedRequest(model="toy", token_ids=[1, 2])
    assert decode_request(encode(MINIMUM, codec), codec) == InboundRequest(expected, {})


@pytest.mark.parametrize("codec", Codec)
def test_ids_above_63_bits_arrive_unsigned(codec: Codec) -> None:
    huge = 2**64 - 1
    routing = {"backend_instance_id": huge, "allowed_worker_ids": [huge], "decode_worker_id": 2**63}
    bootstrap = {"bootstrap_host": "h", "bootstrap_port": 9401, "bootstrap_room": huge}
    request = decode_request(encode(MINIMUM | {"routing": routing, "bootstrap_info": bootstrap}, codec), codec).request
    assert request.routing == Routing(backend_instance_id=huge, allowed_worker_ids=[huge], decode_worker_id=2**63)
    assert request.bootstrap_info is not None
    assert request.bootstrap_info.bootstrap_room == huge


def test_binary_values_of_a_handoff_stay_binary() -> None:
    bootstrap = {"bootstrap_host": "h", "bootstrap_port": 1, "bootstrap_room": 2, "handoff_id": bytes(range(16))}
    request = decode_request(encode(MINIMUM | {"bootstrap_info": bootstrap}), Codec.MSGPACK).request
    assert request.bootstrap_info is not None
    assert request.bootstrap_info.handoff_id == bytes(range(16))


def test_a_prefill_result_is_opaque() -> None:
    result = {"disaggregated_params": {"handle": "x", "n": 2**53 + 1, "f": 0.0, "no": False, "none": None}}
    request = decode_request(encode(MINIMUM | {"prefill_result": result}), Codec.MSGPACK).request
    assert request.prefill_result is not None
    assert request.prefill_result.disaggregated_params == result["disaggregated_params"]


def test_a_probe_says_so() -> None:
    assert decode_request(encode(MINIMUM | {"_HEALTH_CHECK": True}), Codec.MSGPACK).request.health_check is True


@pytest.mark.parametrize("codec", Codec)
def test_unknown_fields_are_kept_by_path(codec: Codec) -> None:
    body: dict[str, Any] = MINIMUM | {
        "thinking_budget": {"tokens": 5},
        "sampling_options": {"top_p": 0.5, "dry_run": False, "guided_decoding": {"regex": "a", "lark": "b"}},
        "routing": {"zone": "eu", "routing_constraints": {"deny": ["x"]}},
        "stop_conditions": {"stop_regex": 0},
    }
    assert decode_request(encode(body, codec), codec).unknown == {
        "thinking_budget": {"tokens": 5},
        "sampling_options.dry_run": False,
        "sampling_options.guided_decoding.lark": "b",
        "routing.zone": "eu",
        "routing.routing_constraints.deny": ["x"],
        "stop_conditions.stop_regex": 0,
    }


def test_an_unknown_field_that_is_null_says_nothing() -> None:
    body = MINIMUM | {"later": None, "sampling_options": {"later": None}, "routing": None}
    assert decode_request(encode(body), Codec.MSGPACK).unknown == {}


def test_free_form_values_hold_nothing_unknown() -> None:
    body = MINIMUM | {"extra_args": {"nvext": {"extra_fields": ["timing"]}}, "mm_processor_kwargs": {"fps": 2}}
    inbound = decode_request(encode(body), Codec.MSGPACK)
    assert inbound.unknown == {}
    assert inbound.request.extra_args == {"nvext": {"extra_fields": ["timing"]}}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"model": None}, "$.model"),
        ({"token_ids": "ab"}, "$.token_ids"),
        ({"token_ids": [1, -1]}, "$.token_ids[1]"),
        ({"token_ids": [2**32]}, "$.token_ids[0]"),
        ({"token_ids": [1.5]}, "$.token_ids[0]"),
        ({"stop_conditions": {"max_tokens": -1}}, "$.stop_conditions.max_tokens"),
        ({"sampling_options": {"temperature": "hot"}}, "$.sampling_options.temperature"),
        ({"sampling_options": {"guided_decoding": {"choice": [1]}}}, "$.sampling_options.guided_decoding.choice[0]"),
        ({"routing": {"dp_rank": True}}, "$.routing.dp_rank"),
        ({"multi_modal_data": {"image_url": [{"Blob": "x"}]}}, "$.multi_modal_data[...][0]"),
        ({"annotations": [3]}, "$.annotations[0]"),
    ],
)
@pytest.mark.parametrize("codec", Codec)
def test_a_field_of_the_wrong_type_is_named_by_its_path(codec: Codec, change: dict[str, Any], path: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_request(encode(MINIMUM | change, codec), codec)
    assert caught.value.part == "body"
    assert path in caught.value.problem


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xc1", id="not-msgpack"),
        pytest.param(encode(MINIMUM)[:-1], id="truncated"),
        pytest.param(encode(MINIMUM) + b"\x00", id="trailing"),
        pytest.param(encode([MINIMUM]), id="not-a-map"),
        pytest.param(encode({"model": "toy"}), id="no-tokens"),
        pytest.param(encode(MINIMUM, Codec.JSON), id="json-as-msgpack"),
        pytest.param(b"\x83" + encode(MINIMUM)[1:] + b"\xa1x" + b"\x91" * 5000, id="deep"),
        pytest.param(b"\x83" + encode(MINIMUM)[1:] + b"\xa1x\xdd\xff\xff\xff\xff", id="absurd-array"),
        pytest.param(b"\x83" + encode(MINIMUM)[1:] + b"\xa1x\xa1\xff", id="bad-utf8-in-unknown"),
    ],
)
def test_bytes_that_are_no_request_are_refused(body: bytes) -> None:
    with pytest.raises(WireError) as caught:
        decode_request(body, Codec.MSGPACK)
    assert caught.value.part == "body"

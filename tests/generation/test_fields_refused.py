from __future__ import annotations

import re
from typing import Any

import pytest

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.generation.fields import FIELDS, Fate, attribute_paths
from openengine_sidecar.messages.dynamo.request import PreprocessedRequest
from openengine_sidecar.messages.errors import InvalidRequestError, UnsupportedFeatureError
from tests.generation.builders import BARE, STOCK, called, merged, nested, translated
from tests.generation.test_fields_carried import CARRIED, Carried

IMAGE_PART = {"type": "image_url", "image_url": {"url": "", "detail": "high"}}
REFUSED: dict[str, dict[str, Any]] = {
    "prompt_embeds": {"token_ids": [], "prompt_embeds": "AAAA"},
    "sampling_options.use_beam_search": nested("sampling_options.use_beam_search", value=True),
    "sampling_options.length_penalty": nested("sampling_options.length_penalty", 0.5),
    "stop_conditions.max_thinking_tokens": nested("stop_conditions.max_thinking_tokens", 0),
    "output_options.formatted_prompt": nested("output_options.formatted_prompt", value=True),
    "output_options.no_stop_trim": nested("output_options.no_stop_trim", value=True),
    "sampling_options.guided_decoding.whitespace_pattern": nested(
        "sampling_options.guided_decoding", {"regex": "a", "whitespace_pattern": " "}
    ),
    "multi_modal_data.*.Decoded": nested("multi_modal_data.image_url", [{"Decoded": {"nixl": 1}}]),
    "multi_modal_data.*.UuidOnly": nested("multi_modal_data.image_url", [{"UuidOnly": "cat-7"}]),
    "extra_args.messages.image_url.detail": merged(
        nested("multi_modal_data.image_url", [{"Url": "https://h/x"}]),
        nested("extra_args.messages", [{"content": [IMAGE_PART]}]),
    ),
    "media_io_kwargs": {"media_io_kwargs": {"video": {"num_frames": 3}}},
    "bootstrap_info": {"bootstrap_info": {"bootstrap_host": "h", "bootstrap_port": 1, "bootstrap_room": 2}},
    "encoder_result": {"encoder_result": {}},
    "extra_args.nvext.metadata_upload": nested("extra_args.nvext.metadata_upload", {"url": "https://h"}),
    "require_reasoning": {"require_reasoning": True},
    "generate_request": {"generate_request": {}},
}

HARMLESS = [
    ("sampling_options.use_beam_search", False),
    ("sampling_options.length_penalty", 1.0),
    ("output_options.formatted_prompt", False),
    ("output_options.no_stop_trim", False),
    ("require_reasoning", False),
    ("sampling_options.top_k", -1),
    ("sampling_options.top_k", 0),
    ("sampling_options.best_of", 1),
    ("sampling_options.guided_decoding", {}),
    ("routing.lora_name", ""),
    ("extra_args", {}),
    ("multi_modal_data", {"image_url": []}),
    ("multi_modal_uuids", {"image_url": [None]}),
    ("brand_new", None),
]

FRONTEND = {
    "eos_token_ids": [1, 2],
    "output_options.skip_special_tokens": False,
    "output_options.return_tokens_as_token_ids": True,
    "routing.backend_instance_id": 2**63,
    "routing.prefill_worker_id": 1,
    "routing.decode_worker_id": 2**64 - 1,
    "routing.expected_output_tokens": 5,
    "routing.priority_jump": 3.5,
    "routing.strict_priority": 2,
    "routing.allowed_worker_ids": [1],
    "routing.routing_constraints.required_taints": ["a"],
    "routing.routing_constraints.preferred_taints": {"a": 1},
    "router": {"ttft_target": 1},
    "router_config_override": {"router_temperature": 0.5},
    "mm_routing_info": {"routing_token_ids": [1]},
    "extra_args.formatted_prompt": "user:a",
    "extra_args.mm_hashes": ["0011223344556677"],
    "extra_args.mm_hashes_by_modality": {"image": ["0011223344556677"]},
    "extra_args.nvext.extra_fields": ["timing"],
    "annotations": ["formatted_prompt", "a:b"],
    "agent_context": {"session_id": "s"},
    "migration_link.trace_id": "t",
    "migration_link.span_id": "s",
    "request_timestamp_ms": 3.5,
    "mdc_sum": "00",
    "_HEALTH_CHECK": True,
}

UNKNOWN = [
    "brand_new",
    "stop_conditions.brand_new",
    "sampling_options.guided_decoding.brand_new",
    "routing.brand_new",
    "routing.routing_constraints.brand_new",
    "extra_args.brand_new",
    "extra_args.nvext.brand_new",
]


@pytest.mark.parametrize(("field", "changes"), [*REFUSED.items()], ids=REFUSED)
def test_a_field_the_schema_cannot_say_is_refused_by_name(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedFeatureError) as refusal:
        called(changes)
    assert refusal.value.problem.startswith(re.sub(r"\*\..*", "image_url", field))
    assert refusal.value.public == refusal.value.problem


@pytest.mark.parametrize(("field", "value"), HARMLESS)
def test_a_value_that_asks_for_nothing_passes(field: str, value: object) -> None:
    assert called(nested(field, value)) == called()
    assert called(nested(field, value), BARE) == called(None, BARE)


@pytest.mark.parametrize(("field", "value"), [*FRONTEND.items()], ids=FRONTEND)
def test_the_frontends_own_business_passes_and_is_not_sent(field: str, value: object) -> None:
    assert called(nested(field, value), BARE) == called(None, BARE)


@pytest.mark.parametrize("field", UNKNOWN)
@pytest.mark.parametrize("value", [0, False, "", {}], ids=repr)
def test_an_unknown_field_is_refused_by_name_whatever_it_says(field: str, value: object) -> None:
    with pytest.raises(UnsupportedFeatureError, match=field.replace(".", r"\.")):
        called(nested(field, value))


def needs_something(case: Carried) -> bool:
    return bool(FIELDS[case.field].needs) and case.field != "stop_conditions.max_tokens"


@pytest.mark.parametrize("case", [*filter(needs_something, CARRIED)], ids=lambda case: case.field)
def test_an_engine_that_advertises_nothing_refuses_every_extra(case: Carried) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"needs .* the engine advertises") as refusal:
        called(case.changes, BARE, role=case.role)
    assert refusal.value.client_fault
    assert refusal.value.status == 400


@pytest.mark.parametrize(
    "case", [case for case in CARRIED if not FIELDS[case.field].needs], ids=lambda case: case.field
)
def test_what_needs_no_capability_needs_none(case: Carried) -> None:
    capable = {"multi_modal_uuids", "extra_args.messages", "sampling_options.best_of"}
    spoken = capable | {"stop_conditions.stop_token_ids_visible", "sampling_options.guided_decoding.backend"}
    if case.field not in spoken:
        called(case.changes, BARE, role=case.role)


def test_an_engine_that_advertises_nothing_still_serves_plain_text() -> None:
    call = called(None, BARE)
    assert (call.token_ids, call.stopping.stop_token_ids, call.stopping.max_tokens) == (
        STOCK["token_ids"],
        (257,),
        None,
    )


def test_every_refused_field_has_a_case() -> None:
    refused = {name for name, row in FIELDS.items() if row.fate is Fate.REFUSED}
    assert set(REFUSED) == refused


def test_every_field_of_the_frontend_has_a_case() -> None:
    assert set(FRONTEND) == {name for name, row in FIELDS.items() if row.fate is Fate.FRONTEND}


def test_every_field_of_the_request_has_a_row() -> None:
    names = attribute_paths(PreprocessedRequest)
    free = {"extra_args", "multi_modal_data"}
    handed_off = {name for name in names if name.split(".")[0] in {"prefill_result", "bootstrap_info"}}
    holders = {name for name in names if any(other.startswith(f"{name}.") for other in names)}
    assert names.keys() - free - handed_off - holders <= FIELDS.keys()


def test_f39_a_refusal_is_a_client_fault_with_text_for_the_client() -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        called({"token_ids": []})
    error = refusal.value
    assert (error.error_type, error.status, error.client_fault, error.request_id) == (
        "InvalidArgument",
        400,
        True,
        "5e0b.1",
    )
    assert error.public == "token_ids (messages, prompt) is []: there is no prompt"


def test_a_long_value_is_shortened_in_the_refusal() -> None:
    with pytest.raises(UnsupportedFeatureError) as refusal:
        called({"media_io_kwargs": {"video": "x" * 100_000}})
    assert len(refusal.value.problem) < 300


def test_a_hint_is_dropped_and_named_where_the_configuration_says_so() -> None:
    config = RequestConfig(drop_unsupported_hints=True)
    translation = translated(nested("routing.priority", 3), BARE, config=config)
    assert translation.dropped == ("routing.priority",)
    assert translation.call == called(None, BARE)


def test_a_hint_the_engine_honours_is_never_dropped() -> None:
    translation = translated(nested("routing.priority", 0), config=RequestConfig(drop_unsupported_hints=True))
    assert (translation.call.priority, translation.dropped) == (0, ())


def test_the_image_detail_is_a_hint_too() -> None:
    config = RequestConfig(drop_unsupported_hints=True)
    translation = translated(REFUSED["extra_args.messages.image_url.detail"], config=config)
    assert translation.dropped == ("extra_args.messages.image_url.detail",)
    assert len(translation.call.media) == 1

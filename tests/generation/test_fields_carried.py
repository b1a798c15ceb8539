from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import pytest

from openengine_sidecar.actors.generation.fields import FIELDS, Fate
from openengine_sidecar.messages.engine.discovery import Role
from openengine_sidecar.messages.engine.generation import (
    GenerateCall,
    Guide,
    GuideMode,
    Logprobs,
    MediaItem,
    MediaSource,
    Modality,
)
from tests.generation.builders import called, merged, nested
from tests.generation.handoffs import handed, session, wire_of

PNG = "data:image/png;base64,iVBORw0KGgo="
GUIDED = "sampling_options.guided_decoding"
IMAGE = nested("multi_modal_data.image_url", [{"Url": PNG}])
SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}}


class Carried(NamedTuple):
    field: str
    changes: dict[str, Any]
    attribute: str
    value: Any
    role: Role = Role.AGGREGATED
    base: dict[str, Any] | None = None


def plain(field: str, attribute: str, value: Any, became: Any = None) -> Carried:
    return Carried(field, nested(field, value), attribute, value if became is None else became)


def shown(kind: str, modality: Modality) -> Carried:
    item = MediaItem(modality=modality, source=MediaSource.URL, value="https://host/x")
    return Carried(
        f"multi_modal_data.{kind}", nested(f"multi_modal_data.{kind}", [{"Url": item.value}]), "media", (item,)
    )


def guided(name: str, mode: GuideMode, value: Any, text: str) -> Carried:
    return plain(f"{GUIDED}.{name}", "guide", value, Guide(mode=mode, value=text))


CARRIED = [
    plain("model", "model", "toy", "org/toy"),
    plain("token_ids", "token_ids", [1, 0, 2**32 - 1]),
    plain("sampling_options.temperature", "sampling.temperature", 0.8999999761581421),
    plain("sampling_options.top_p", "sampling.top_p", 0.5),
    plain("sampling_options.min_p", "sampling.min_p", 0.25),
    plain("sampling_options.frequency_penalty", "sampling.frequency_penalty", -0.5),
    plain("sampling_options.presence_penalty", "sampling.presence_penalty", 0.5),
    plain("sampling_options.repetition_penalty", "sampling.repetition_penalty", 1.25),
    plain("sampling_options.top_k", "sampling.top_k", 7),
    plain("sampling_options.seed", "sampling.seed", 2**64 - 1),
    plain("sampling_options.n", "sampling.num_sequences", 3),
    Carried("sampling_options.best_of", {"sampling_options": {"n": 2, "best_of": 2}}, "sampling.num_sequences", 2),
    plain("sampling_options.include_stop_str_in_output", "stopping.include_stop", value=True),
    plain("stop_conditions.max_tokens", "stopping.max_tokens", 9),
    plain("stop_conditions.min_tokens", "stopping.min_tokens", 2),
    plain("stop_conditions.stop", "stopping.stop_texts", ["b", "a", "b"], ("b", "a")),
    plain("stop_conditions.stop_token_ids", "stopping.stop_token_ids", [300, 257, 3], (3, 257, 300)),
    plain("stop_conditions.stop_token_ids_hidden", "stopping.stop_token_ids", [9, 8, 9], (8, 9)),
    Carried(
        "stop_conditions.stop_token_ids_visible",
        {
            "sampling_options": {"include_stop_str_in_output": True},
            "stop_conditions": {"stop_token_ids_visible": [5]},
        },
        "stopping.stop_token_ids",
        (5, 257),
    ),
    plain("stop_conditions.ignore_eos", "stopping.ignore_eos", value=True),
    plain("output_options.logprobs", "output_logprobs", 4, Logprobs(top_n=4)),
    plain("output_options.prompt_logprobs", "prompt_logprobs", 5, Logprobs(top_n=5)),
    guided("json", GuideMode.JSON_SCHEMA, SCHEMA, msgspec.json.encode(SCHEMA).decode()),
    Carried(
        f"{GUIDED}.json (any object)",
        nested(f"{GUIDED}.json", {"type": "object"}),
        "guide",
        Guide(mode=GuideMode.JSON_OBJECT),
    ),
    guided("regex", GuideMode.REGEX, "a+", "a+"),
    guided("grammar", GuideMode.EBNF_GRAMMAR, "root ::= x", "root ::= x"),
    plain(f"{GUIDED}.choice", "guide", ["yes", "no"], Guide(mode=GuideMode.CHOICE, choices=("yes", "no"))),
    guided("structural_tag", GuideMode.STRUCTURAL_TAG, {"type": "structural_tag"}, '{"type":"structural_tag"}'),
    Carried(f"{GUIDED}.backend", nested(GUIDED, {"regex": "a", "backend": "xgrammar"}), "guide.backend", "xgrammar"),
    plain("routing.lora_name", "lora_name", "my/adapter"),
    plain("routing.priority", "priority", -3),
    plain("routing.dp_rank", "data_parallel_rank", 5),
    plain("routing.cache_salt", "cache_salt", "tenant"),
    shown("image_url", Modality.IMAGE),
    shown("video_url", Modality.VIDEO),
    shown("audio_url", Modality.AUDIO),
    Carried(
        "extra_args.messages.input_audio",
        nested(
            "extra_args.messages",
            [{"content": [{"type": "input_audio", "input_audio": {"data": "AAEC", "format": "wav"}, "uuid": "u"}]}],
        ),
        "media",
        (
            MediaItem(
                modality=Modality.AUDIO,
                source=MediaSource.RAW_BYTES,
                value=b"\x00\x01\x02",
                mime_type="audio/wav",
                uuid="u",
            ),
        ),
    ),
    Carried(
        "multi_modal_data.*.Url (http, https)",
        nested("multi_modal_data.image_url", [{"Url": "http://host/x.png"}]),
        "media",
        (MediaItem(modality=Modality.IMAGE, source=MediaSource.URL, value="http://host/x.png"),),
    ),
    Carried(
        "multi_modal_data.*.Url (data:)",
        IMAGE,
        "media",
        (MediaItem(modality=Modality.IMAGE, source=MediaSource.DATA_URI, value=PNG),),
    ),
    Carried(
        "multi_modal_uuids",
        merged(IMAGE, nested("multi_modal_uuids.image_url", ["u1"])),
        "media",
        (MediaItem(modality=Modality.IMAGE, source=MediaSource.DATA_URI, value=PNG, uuid="u1"),),
    ),
    Carried(
        "extra_args.messages",
        merged(
            nested("multi_modal_data", {"audio_url": [{"Url": "https://h/a"}], "image_url": [{"Url": PNG}]}),
            nested(
                "extra_args.messages",
                [{"content": [{"type": "image_url", "image_url": {"url": ""}}, {"type": "audio_url"}]}],
            ),
        ),
        "media",
        (
            MediaItem(modality=Modality.IMAGE, source=MediaSource.DATA_URI, value=PNG),
            MediaItem(modality=Modality.AUDIO, source=MediaSource.URL, value="https://h/a"),
        ),
    ),
    Carried(
        "mm_processor_kwargs",
        merged(IMAGE, {"mm_processor_kwargs": {"fps": 2}}),
        "media_options",
        {"image": {"fps": 2}},
    ),
    plain("extra_args.bypass_prefix_cache", "bypass_prefix_cache", value=True),
    plain("extra_args.disable_prefix_cache", "bypass_prefix_cache", value=True),
    plain("extra_args.nvext.cache_salt", "cache_salt", "tenant"),
    plain("extra_args.metadata", "metadata", {"team": "a"}),
    plain("routing.prefill_dp_rank", "data_parallel_rank", 4)._replace(role=Role.PREFILL),
    Carried(
        "prefill_result.disaggregated_params",
        handed(),
        "kv_session",
        session(),
        Role.DECODE,
        handed(wire_of(dp_rank=3)),
    ),
    Carried(
        "prefill_result.prompt_tokens_details",
        merged(handed(), nested("prefill_result.prompt_tokens_details", {"cached_tokens": 3})),
        "kv_session",
        session(),
        Role.DECODE,
        handed(),
    ),
]


@pytest.mark.parametrize("case", CARRIED, ids=lambda case: case.field)
def test_a_field_reaches_the_call(case: Carried) -> None:
    assert attrgetter(case.attribute)(called(case.changes, role=case.role)) == case.value


@pytest.mark.parametrize("case", CARRIED, ids=lambda case: case.field)
def test_a_field_changes_nothing_else_of_the_call(case: Carried) -> None:
    part = case.attribute.partition(".")[0]
    allowed = {part, "media"} if part == "media_options" else {part}
    if case.field == "stop_conditions.stop_token_ids_visible":
        allowed.add("sampling")
    before, after = called(case.base, role=case.role), called(case.changes, role=case.role)
    assert {name for name in GenerateCall.__struct_fields__ if getattr(before, name) != getattr(after, name)} <= allowed


def test_every_carried_field_has_a_case() -> None:
    carried = {name for name, row in FIELDS.items() if row.fate is Fate.CARRIED}
    assert {case.field for case in CARRIED} == carried

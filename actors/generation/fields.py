"""The one table of request fields: what becomes of each, and what it needs.

The rule for whatever a request holds:

- a field of the table is carried, refused, or the frontend's own business, as its row says; a carried one is refused
  when the engine does not advertise what it needs. A hint may be dropped, and counted, by option;
- a field that is not in the table, at any depth that has fixed names, is refused by name. Null says nothing anywhere.

So nothing is lost in silence. Names are the wire's, with dots; `*` stands for every kind of media.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, get_args

import msgspec

from openengine_sidecar.actors.generation import capabilities as need
from openengine_sidecar.actors.generation.capabilities import Need
from openengine_sidecar.messages.engine.generation import GuideMode, MediaSource, Modality


class Fate(StrEnum):
    """What becomes of a field."""

    CARRIED = "carried"
    REFUSED = "refused"
    FRONTEND = "frontend"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One row.

    Attributes:
        name: where the field stands in the request.
        client: how a client of the frontend asks for it, where that is possible.
        carries: the revision 2 field that takes it.
        needs: what the engine must advertise, all of it.
        harmless: values, besides null, that ask for nothing.
        hint: may be dropped and counted instead of refused, when configured so.
        note: the bounds of a carried field, the reason for any other fate.
    """

    name: str
    fate: Fate
    client: str = ""
    carries: str = ""
    needs: tuple[Need, ...] = ()
    harmless: tuple[object, ...] = ()
    hint: bool = False
    note: str = ""


def _carried(name: str, carries: str, *needs: Need, client: str = "", hint: bool = False, note: str = "") -> Field:
    return Field(name=name, fate=Fate.CARRIED, carries=carries, needs=needs, client=client, hint=hint, note=note)


def _refused(name: str, note: str, *, client: str = "", harmless: tuple[object, ...] = (), hint: bool = False) -> Field:
    return Field(name=name, fate=Fate.REFUSED, note=note, client=client, harmless=harmless, hint=hint)


def _frontend(name: str, note: str) -> Field:
    return Field(name=name, fate=Fate.FRONTEND, note=note)


def _guide(name: str, carries: str, mode: GuideMode, *, client: str, note: str = "") -> Field:
    field = f"sampling_options.guided_decoding.{name}"
    return _carried(field, f"guided.{carries}", need.GUIDED, need.guide_mode(mode), client=client, note=note)


def _media(name: str, kind: Modality, note: str = "") -> Field:
    return _carried(name, "media", need.MULTIMODAL, need.modality(kind), client=name.rpartition(".")[2], note=note)


_PROMPT = (
    _carried("model", "model", client="model", note="the engine's own model id is sent; an adapter goes by lora_name"),
    _carried("token_ids", "token_ids", client="messages, prompt", note="not empty, shorter than the context"),
    _refused("prompt_embeds", "the engine takes token ids", client="prompt_embeds"),
)

_SAMPLING = (
    *(
        _carried(f"sampling_options.{name}", f"sampling.{name}", client=name, note="finite")
        for name in (
            "temperature",
            "top_p",
            "min_p",
            "frequency_penalty",
            "presence_penalty",
            "repetition_penalty",
        )
    ),
    _carried("sampling_options.top_k", "sampling.top_k", client="top_k", note="-1 and 0 are off, and not sent"),
    _carried("sampling_options.seed", "sampling.seed", client="seed", note="0 to 2^64-1"),
    _carried("sampling_options.n", "sampling.num_sequences", need.SEQUENCES, client="n", note="1 needs nothing"),
    _carried("sampling_options.best_of", "sampling.num_sequences", client="best_of", note="must equal n"),
    _refused("sampling_options.use_beam_search", "the schema has no beam search", harmless=(False,)),
    _refused("sampling_options.length_penalty", "the schema has no length penalty", harmless=(1.0,)),
    _carried(
        "sampling_options.include_stop_str_in_output",
        "stopping.include_stop_in_output",
        need.STOP_IN_OUTPUT,
        client="include_stop_str_in_output",
        note="false needs nothing",
    ),
)

_STOPPING = (
    _carried(
        "stop_conditions.max_tokens",
        "stopping.max_tokens",
        need.OUTPUT_TOKENS,
        client="max_tokens",
        note="at least 1; absent: the room the prompt leaves in the context, within max_output_tokens",
    ),
    _carried("stop_conditions.min_tokens", "stopping.min_tokens", client="min_tokens", note="not above max_tokens"),
    _carried("stop_conditions.stop", "stopping.conditions", client="stop", note="no empty text"),
    _carried(
        "stop_conditions.stop_token_ids", "stopping.conditions", client="stop_token_ids", note="merged with the hidden"
    ),
    _carried("stop_conditions.stop_token_ids_hidden", "stopping.conditions", note="holds the model's end of sequence"),
    _carried(
        "stop_conditions.stop_token_ids_visible",
        "stopping.conditions",
        note="only with include_stop_str_in_output: the schema does not tell visible from hidden",
    ),
    _carried("stop_conditions.ignore_eos", "stopping.ignore_eos", client="ignore_eos"),
    _refused("stop_conditions.max_thinking_tokens", "the schema has no thinking budget", client="max_thinking_tokens"),
    _frontend("eos_token_ids", "the ids to stop on come as hidden stops"),
)

_OUTPUT = (
    _carried(
        "output_options.logprobs",
        "response.return_output_logprobs, output_candidates",
        *need.OUTPUT_LOGPROBS,
        client="logprobs, top_logprobs",
        note="0 is the chosen token alone",
    ),
    _carried(
        "output_options.prompt_logprobs",
        "response.return_prompt_logprobs, prompt_candidates",
        *need.PROMPT_LOGPROBS,
        client="prompt_logprobs, echo with logprobs",
        note="0 is the prompt's tokens alone",
    ),
    _frontend("output_options.skip_special_tokens", "the frontend detokenizes"),
    _frontend("output_options.return_tokens_as_token_ids", "the frontend names the tokens in its answers"),
    _refused("output_options.formatted_prompt", "the prompt's text stays in the frontend", harmless=(False,)),
    _refused("output_options.no_stop_trim", "the schema has one flag for stops in the output", harmless=(False,)),
)

_GUIDED = (
    _guide("json", "json_schema", GuideMode.JSON_SCHEMA, client="response_format, tool_choice, guided_json"),
    _guide(
        "json (any object)",
        "json_object",
        GuideMode.JSON_OBJECT,
        client="response_format json_object",
        note='the schema {"type": "object"} alone; goes as json_schema where json_object is not offered',
    ),
    _guide("regex", "regex", GuideMode.REGEX, client="guided_regex"),
    _guide("grammar", "ebnf_grammar", GuideMode.EBNF_GRAMMAR, client="guided_grammar"),
    _guide("choice", "choice", GuideMode.CHOICE, client="guided_choice"),
    _guide("structural_tag", "structural_tag", GuideMode.STRUCTURAL_TAG, client="structural tags of tool parsers"),
    _carried(
        "sampling_options.guided_decoding.backend",
        "guided.backend",
        client="guided_decoding_backend",
        note="only with a guide; the engine judges the name",
    ),
    _refused(
        "sampling_options.guided_decoding.whitespace_pattern",
        "the schema has no whitespace pattern",
        client="guided_whitespace_pattern",
    ),
)

_ROUTING = (
    _carried("routing.lora_name", "lora_name", need.LORA, client="model", note="empty is the base model"),
    _carried("routing.priority", "priority", need.PRIORITY, client="nvext.agent_hints.priority", hint=True),
    _carried(
        "routing.dp_rank",
        "kv.data_parallel_rank",
        need.DATA_PARALLEL,
        client="nvext.dp_rank",
        note="within the advertised ranks; the first one needs nothing and is not sent to a single rank; "
        "on a decode worker the session's rank decides",
    ),
    _carried(
        "routing.prefill_dp_rank",
        "kv.data_parallel_rank",
        need.DATA_PARALLEL,
        note="on a prefill worker, before dp_rank; elsewhere the router's business",
    ),
    _carried("routing.cache_salt", "kv.cache_salt", need.CACHE_SALT, client="cache_salt, nvext.cache_salt"),
    *(
        _frontend(f"routing.{name}", "the router's business")
        for name in (
            "backend_instance_id",
            "prefill_worker_id",
            "decode_worker_id",
            "expected_output_tokens",
            "priority_jump",
            "strict_priority",
            "allowed_worker_ids",
            "routing_constraints.required_taints",
            "routing_constraints.preferred_taints",
        )
    ),
    _frontend("router", "the router's business"),
    _frontend("router_config_override", "the router's business"),
    _frontend("mm_routing_info", "the router's business"),
)

_MEDIA = (
    _media("multi_modal_data.image_url", Modality.IMAGE),
    _media("multi_modal_data.video_url", Modality.VIDEO),
    _media("multi_modal_data.audio_url", Modality.AUDIO),
    _media(
        "extra_args.messages.input_audio",
        Modality.AUDIO,
        note="goes as raw bytes, or else as a data URI; the frontend forwards it only beside other media",
    ),
    _carried("multi_modal_data.*.Url (http, https)", "media.url", need.source(MediaSource.URL)),
    _carried(
        "multi_modal_data.*.Url (data:)",
        "media.data_uri",
        need.source(MediaSource.DATA_URI),
        note="goes as raw bytes where only these are offered",
    ),
    _refused("multi_modal_data.*.Decoded", "media decoded by the frontend cannot be handed on"),
    _refused("multi_modal_data.*.UuidOnly", "the schema has no media by uuid alone"),
    _carried("multi_modal_uuids", "media.uuid", client="uuid", note="one for each item, or null"),
    _carried("extra_args.messages", "media (order)", note="gives the order of media of several kinds"),
    _refused(
        "extra_args.messages.image_url.detail",
        "the schema has no detail level",
        client="image_url.detail",
        harmless=("auto",),
        hint=True,
    ),
    _carried(
        "mm_processor_kwargs",
        "media_options",
        need.MULTIMODAL,
        need.MEDIA_OPTIONS,
        client="mm_processor_kwargs",
        note="keyed by kind, or flat for each kind present; without media moot, dropped and counted",
    ),
    _refused("media_io_kwargs", "the schema has one map of media options", client="media_io_kwargs"),
)

_CACHE = (
    *(
        _carried(
            f"extra_args.{name}", "kv.bypass_prefix_cache", need.CACHE_BYPASS, note="the stock frontend never sends it"
        )
        for name in ("bypass_prefix_cache", "disable_prefix_cache")
    ),
    _carried(
        "extra_args.nvext.cache_salt", "kv.cache_salt", need.CACHE_SALT, note="must agree with routing.cache_salt"
    ),
)

_HANDOFF = (
    _carried(
        "prefill_result.disaggregated_params",
        "kv.session",
        note="on a decode worker, which needs it and checks it against the engine's connector; elsewhere refused",
    ),
    _carried(
        "prefill_result.prompt_tokens_details",
        "(usage)",
        note="on a decode worker: the cached prompt tokens of the answer's usage",
    ),
    _refused("bootstrap_info", "both halves meet in the handoff: revision 2 has no rendezvous of its own"),
    _refused("encoder_result", "there are no encode workers"),
)

_OTHERS = (
    _carried("extra_args.metadata", "metadata", note="texts; the stock frontend never sends it"),
    _refused(
        "extra_args.nvext.metadata_upload", "the engine reports nothing to upload", client="nvext.metadata_upload"
    ),
    _refused("require_reasoning", "the schema has no reasoning switch", harmless=(False,)),
    _refused("generate_request", "the engine takes token ids"),
    _frontend("extra_args.formatted_prompt", "the prompt travels as token ids"),
    _frontend("extra_args.mm_hashes", "the router's business"),
    _frontend("extra_args.mm_hashes_by_modality", "the router's business"),
    _frontend("extra_args.nvext.extra_fields", "what the frontend adds to its answers"),
    _frontend("annotations", "what the frontend adds to its answers"),
    _frontend("agent_context", "the frontend's records"),
    _frontend("migration_link.trace_id", "the frontend's records"),
    _frontend("migration_link.span_id", "the frontend's records"),
    _frontend("request_timestamp_ms", "the frontend's records"),
    _frontend("mdc_sum", "the frontend's check of the model card"),
    _frontend("_HEALTH_CHECK", "a probe is served like any request"),
)

SECTIONS: dict[str, tuple[Field, ...]] = {
    "Prompt": _PROMPT,
    "Sampling": _SAMPLING,
    "Stopping": _STOPPING,
    "Output": _OUTPUT,
    "Guided decoding": _GUIDED,
    "Routing and adapters": _ROUTING,
    "Media": _MEDIA,
    "Prefix cache": _CACHE,
    "Disaggregation": _HANDOFF,
    "Everything else": _OTHERS,
}

FIELDS: dict[str, Field] = {field.name: field for section in SECTIONS.values() for field in section}


def attribute_paths(struct: type[msgspec.Struct]) -> dict[str, tuple[str, ...]]:
    """Names of everything a wire type holds, dotted, each with the attributes that lead to it."""
    return dict(_walk(struct, "", ()))


def _walk(struct: type[msgspec.Struct], prefix: str, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for field in msgspec.structs.fields(struct):
        name, attributes = prefix + field.encode_name, (*path, field.name)
        yield name, attributes
        for nested in _structs(field.type):
            yield from _walk(nested, f"{name}.", attributes)


def _structs(annotation: Any) -> list[type[msgspec.Struct]]:
    kinds = (annotation, *get_args(annotation))
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]

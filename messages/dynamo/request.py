"""`PreprocessedRequest`, the body of a generation request: what the frontend made of an OpenAI call.

Null and absent mean the same on this wire. Field names are the wire's own.

The rule for fields that this build does not know: they are kept, by path, in `InboundRequest.unknown`, and who
translates refuses the request when one is left. A null says nothing and is not kept. A media entry of an unknown form
does not parse: nobody could tell what it shows. Free-form values (`extra_args`,
schemas, media descriptors and other values typed `Any`) hold whatever they hold, so nothing in them is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple, get_args

import msgspec

from openengine_sidecar.messages.dynamo.control import Codec
from openengine_sidecar.messages.dynamo.parsing import Part, parsing

U32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
U64 = Annotated[int, msgspec.Meta(ge=0)]
"""Unsigned 64 bits; the upper bound is the codec's own, values above 2**63 pass."""

I32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class StopConditions(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop, in tokens, texts and token ids.

    `max_tokens` None means that the client gave none. End-of-sequence ids come in `stop_token_ids_hidden`. With
    `ignore_eos` the frontend sends no stops at all.
    """

    max_tokens: U32 | None = None
    stop: list[str] | None = None
    stop_token_ids: list[U32] | None = None
    stop_token_ids_visible: list[U32] | None = None
    stop_token_ids_hidden: list[U32] | None = None
    min_tokens: U32 | None = None
    ignore_eos: bool | None = None
    max_thinking_tokens: U32 | None = None


class GuidedDecoding(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint on the output. `json` is a schema, `structural_tag` a tag description; both any JSON."""

    json: Any = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    structural_tag: Any = None
    backend: str | None = None
    whitespace_pattern: str | None = None


class SamplingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to sample. Floats went through 32 bits in the frontend: 0.9 arrives as 0.8999999761581421."""

    n: U32 | None = None
    best_of: U32 | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: I32 | None = None
    min_p: float | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    seed: int | None = None
    include_stop_str_in_output: bool | None = None
    guided_decoding: GuidedDecoding | None = None


class OutputOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to report beside tokens; logprob counts are numbers of candidates, 0 the chosen token alone."""

    logprobs: U32 | None = None
    prompt_logprobs: U32 | None = None
    skip_special_tokens: bool | None = None
    formatted_prompt: bool | None = None
    return_tokens_as_token_ids: bool | None = None


class RoutingConstraints(msgspec.Struct, frozen=True, kw_only=True):
    """Taints that a worker must, or should, carry."""

    required_taints: list[str] | None = None
    preferred_taints: Any = None


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """What the router decided, and what it was told. Worker ids are instance ids."""

    backend_instance_id: U64 | None = None
    prefill_worker_id: U64 | None = None
    decode_worker_id: U64 | None = None
    dp_rank: U32 | None = None
    prefill_dp_rank: U32 | None = None
    expected_output_tokens: U32 | None = None
    lora_name: str | None = None
    cache_salt: str | None = None
    priority_jump: float | None = None
    strict_priority: U32 | None = None
    priority: I32 | None = None
    allowed_worker_ids: list[U64] | None = None
    routing_constraints: RoutingConstraints | None = None


class MediaEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One media item: an address (also `data:`), or what stands for one the frontend decoded or saw before."""

    url: str | None = msgspec.field(name="Url", default=None)
    decoded: Any = msgspec.field(name="Decoded", default=None)
    uuid_only: Any = msgspec.field(name="UuidOnly", default=None)


class PrefillResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a prefill worker answered, on its way to the decode worker."""

    disaggregated_params: Any = None
    prompt_tokens_details: dict[str, Any] | None = None


class BootstrapInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where both halves of a disaggregated pair meet. `handoff_id` is 16 bytes in MessagePack."""

    bootstrap_host: str
    bootstrap_port: U32
    bootstrap_room: U64
    handoff_id: Any = None


class MigrationLink(msgspec.Struct, frozen=True, kw_only=True):
    """Trace of the attempt that this request continues."""

    trace_id: str | None = None
    span_id: str | None = None


class PreprocessedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One generation request, tokenized by the frontend.

    Attributes:
        model: primary name of the model, or the adapter's name.
        token_ids: the prompt; on migration with the tokens generated so far appended. May be empty: refusing that
            is the translator's business.
        mdc_sum: checksum of the base model's card, 64 hex digits.
        multi_modal_data: items by `image_url`, `video_url`, `audio_url`; the order across kinds stands only in
            `extra_args["messages"]`.
        request_timestamp_ms: milliseconds since the epoch.
        health_check: marks a probe that a worker's own runtime sends itself.
    """

    model: str
    token_ids: list[U32]
    stop_conditions: StopConditions = StopConditions()
    sampling_options: SamplingOptions = SamplingOptions()
    output_options: OutputOptions = OutputOptions()
    eos_token_ids: list[U32] = []
    mdc_sum: str | None = None
    annotations: list[str] = []
    router_config_override: dict[str, Any] | None = None
    routing: Routing | None = None
    multi_modal_data: dict[str, list[MediaEntry]] | None = None
    multi_modal_uuids: dict[str, list[str | None]] | None = None
    mm_routing_info: Any = None
    mm_processor_kwargs: dict[str, Any] | None = None
    prefill_result: PrefillResult | None = None
    bootstrap_info: BootstrapInfo | None = None
    encoder_result: Any = None
    migration_link: MigrationLink | None = None
    extra_args: dict[str, Any] | None = None
    request_timestamp_ms: float | None = None
    require_reasoning: bool | None = None
    router: Any = None
    agent_context: Any = None
    prompt_embeds: Any = None
    generate_request: Any = None
    health_check: bool | None = msgspec.field(name="_HEALTH_CHECK", default=None)


class InboundRequest(msgspec.Struct, frozen=True):
    """A request and the fields of it that this build does not know: path (`sampling_options.dry_run`) to value."""

    request: PreprocessedRequest
    unknown: dict[str, Any] = {}


def decode_request(body: bytes, codec: Codec) -> InboundRequest:
    """Reads the body part of a generation request.

    Raises:
        WireError: part `body`: not the codec's bytes, or a field of the wrong type (its path is in the problem).
    """
    reader = _READERS[codec]
    with parsing(Part.BODY):
        return InboundRequest(reader.request(body), dict(reader.unknown(body, _KNOWN)))


_Shape = dict[str, "_Shape | None"]
"""Names that a struct knows on the wire, each with the shape of the struct behind it, or None for any other value."""


def _shape(struct: type[msgspec.Struct]) -> _Shape:
    return {field.encode_name: _nested_shape(field.type) for field in msgspec.structs.fields(struct)}


def _nested_shape(annotation: Any) -> _Shape | None:
    structs = [
        kind
        for kind in (annotation, *get_args(annotation))
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    ]
    return _shape(structs[0]) if structs else None


class _Reader(NamedTuple):
    """One codec's decoders. `keys` skips over values, so that finding unknown ones does not build known ones twice."""

    request: Callable[[bytes], PreprocessedRequest]
    keys: Callable[[bytes], dict[str, msgspec.Raw] | None]
    value: Callable[[bytes], Any]

    def unknown(self, body: bytes, shape: _Shape, path: str = "") -> Iterator[tuple[str, Any]]:
        for key, raw in (self.keys(body) or {}).items():
            if key not in shape:
                value = self.value(raw)
                if value is not None:
                    yield path + key, value
            elif (nested := shape[key]) is not None:
                yield from self.unknown(raw, nested, f"{path}{key}.")


_KNOWN = _shape(PreprocessedRequest)
_KEYS = dict[str, msgspec.Raw] | None
_READERS = {
    Codec.MSGPACK: _Reader(
        msgspec.msgpack.Decoder(PreprocessedRequest).decode,
        msgspec.msgpack.Decoder(_KEYS).decode,
        msgspec.msgpack.Decoder().decode,
    ),
    Codec.JSON: _Reader(
        msgspec.json.Decoder(PreprocessedRequest).decode,
        msgspec.json.Decoder(_KEYS).decode,
        msgspec.json.Decoder().decode,
    ),
}

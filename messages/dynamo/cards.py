"""Model cards: what a frontend must know of a model before it can tokenize for it.

Cards are JSON. A field that may be absent is `UNSET` when it is; the frontend ignores fields that it does not know, and
rejects the card when one of the required ones is missing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from openengine_sidecar.messages.dynamo.naming import EndpointId


class ModelType(StrEnum):
    """A thing that a model can be asked for; a card joins several with ` | `, and none is the empty text."""

    CHAT = "Chat"
    COMPLETIONS = "Completions"
    PREFILL = "Prefill"


class ModelInput(StrEnum):
    """What a worker takes: `TOKENS` are `PreprocessedRequest`s."""

    TOKENS = "Tokens"
    TEXT = "Text"
    TENSOR = "Tensor"


class WorkerType(StrEnum):
    """Stage that a worker serves."""

    AGGREGATED = "aggregated"
    PREFILL = "prefill"
    DECODE = "decode"
    ENCODE = "encode"


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the frontend copies and verifies.

    Attributes:
        path: absolute path, `file://`, `http(s)://` or `hf://repo/file`.
        checksum: `blake3:` and 64 hex digits.
        size: bytes.
    """

    path: str
    checksum: str
    size: int | UnsetType = UNSET


class ModelInfo(msgspec.Struct, frozen=True):
    """`config.json`."""

    hf_config_json: ModelFile


class Tokenizer(msgspec.Struct, frozen=True):
    """`tokenizer.json`."""

    hf_tokenizer_json: ModelFile


class PromptFormatter(msgspec.Struct, frozen=True):
    """`tokenizer_config.json`."""

    hf_tokenizer_config_json: ModelFile


class GenerationConfig(msgspec.Struct, frozen=True):
    """`generation_config.json`: end-of-sequence ids and default sampling."""

    hf_generation_config_json: ModelFile


class ChatTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A Jinja file; `is_custom` where the operator named it instead of the model bringing it."""

    is_custom: bool
    file: ModelFile


class ChatTemplateFile(msgspec.Struct, frozen=True):
    """The chat template, where it stands in a file of its own."""

    hf_chat_template: ChatTemplate


class Lora(msgspec.Struct, frozen=True, kw_only=True):
    """Makes a card an adapter's."""

    name: str
    max_gpu_lora_count: int | UnsetType = UNSET


class DisaggregatedEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where decode workers meet a prefill worker that both serve at the same time."""

    bootstrap_host: str
    bootstrap_port: int


class RuntimeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and manners of a worker. Not part of the checksum that makes workers of one model agree.

    Attributes:
        context_length: tokens.
        total_kv_blocks: per data-parallel rank.
        kv_transfer_enforcement: `required` or `preferred`.
    """

    context_length: int | UnsetType = UNSET
    total_kv_blocks: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    tool_call_arguments_format: str = "json_string"
    structural_tag_mode: str = "off"
    structural_tag_scope: str = "auto"
    structural_tag_schema: str = "auto"
    exclude_tools_when_tool_choice_none: bool = True
    data_parallel_start_rank: int = 0
    data_parallel_size: int = 1
    enable_local_indexer: bool = False
    kv_event_publishing_enabled: bool | UnsetType = UNSET
    kv_event_source_mode: str | UnsetType = UNSET
    kv_state_endpoint: EndpointId | UnsetType = UNSET
    runtime_data: dict[str, Any] | UnsetType = UNSET
    disaggregated_endpoint: DisaggregatedEndpoint | UnsetType = UNSET
    enable_eagle: bool = False
    taints: tuple[str, ...] | UnsetType = UNSET
    stable_routing_id: str | UnsetType = UNSET
    topology_domains: dict[str, str] | UnsetType = UNSET
    kv_transfer_domain: str | UnsetType = UNSET
    kv_transfer_enforcement: Literal["required", "preferred"] | UnsetType = UNSET
    kv_transfer_preferred_weight: float | UnsetType = UNSET
    max_gpu_lora_count: int | UnsetType = UNSET


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One model as one worker serves it.

    Attributes:
        display_name: served name, the `model` of requests.
        model_type: `ModelType` values joined by ` | `; see `join_model_types`.
        kv_cache_block_size: tokens per block; the block size of KV events, the same for all workers of a model.
        migration_limit: required, and ignored: the limit is the frontend's.
        needs: alternatives, each a list of worker types that must be live besides this one.
        aliases: further names; requests carry `display_name` all the same.
        media_decoder: anything but None makes the frontend decode media itself.
    """

    display_name: str
    slug: str
    source_path: str
    model_info: ModelInfo
    tokenizer: Tokenizer
    prompt_formatter: PromptFormatter
    chat_template_file: ChatTemplateFile | UnsetType = UNSET
    gen_config: GenerationConfig | UnsetType = UNSET
    prompt_context: Any = UNSET
    architectural_max_context_length: int | UnsetType = UNSET
    context_length: int | UnsetType = UNSET
    kv_cache_block_size: int
    migration_limit: int = 0
    model_type: str
    model_input: ModelInput = ModelInput.TOKENS
    worker_type: WorkerType = WorkerType.AGGREGATED
    needs: tuple[tuple[WorkerType, ...], ...] = ()
    aliases: tuple[str, ...] | UnsetType = UNSET
    user_data: dict[str, Any] | UnsetType = UNSET
    lora: Lora | UnsetType = UNSET
    runtime_config: RuntimeConfig = RuntimeConfig()
    tensor_model_config: Any = UNSET
    router_config: Any = UNSET
    indexer_identity: Any = UNSET
    extra_files: Any = UNSET
    media_decoder: Any = None
    media_fetcher: Any = None


class CardRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="Model"):
    """Record of a card, under `card_key`. `model_suffix` is an adapter's slug, as in its key."""

    namespace: str
    component: str
    endpoint: str
    instance_id: int
    card_json: ModelCard
    model_suffix: str | UnsetType = UNSET

    @property
    def name(self) -> str:
        """The model, as clients name it."""
        return self.card_json.display_name


def join_model_types(types: tuple[ModelType, ...]) -> str:
    """A card's `model_type`."""
    return " | ".join(types)


def card_record(endpoint: EndpointId, instance_id: int, card: ModelCard) -> CardRecord:
    """The record of a card; an adapter's card gets its slug as suffix."""
    return CardRecord(
        namespace=endpoint.namespace,
        component=endpoint.component,
        endpoint=endpoint.name,
        instance_id=instance_id,
        card_json=card,
        model_suffix=UNSET if isinstance(card.lora, UnsetType) else card.slug,
    )

"""The model card: what the operator configured, what the engine reported, what the model directory holds."""

from __future__ import annotations

import asyncio

from msgspec import UNSET, UnsetType

from openengine_sidecar.actors.config import ModelConfig, WorkerIdentity
from openengine_sidecar.actors.discovery.model_files import ModelFiles, read_model_files
from openengine_sidecar.messages.dynamo.cards import (
    CardRecord,
    GenerationConfig,
    ModelCard,
    ModelInfo,
    ModelType,
    PromptFormatter,
    RuntimeConfig,
    Tokenizer,
    WorkerType,
    card_record,
    join_model_types,
)
from openengine_sidecar.messages.dynamo.naming import EndpointId, slugify
from openengine_sidecar.messages.engine.discovery import Discovery, Role
from openengine_sidecar.messages.errors import ConfigurationError

DEFAULT_BLOCK_SIZE = 16
"""Tokens per KV block of a card whose engine reports none: required there, and of no consequence without events."""

ENDPOINT_TYPES = {"chat": ModelType.CHAT, "completions": ModelType.COMPLETIONS}

_ENDPOINT_TYPES_OPTION = "--endpoint-types"

_STAGES = {
    Role.AGGREGATED: (WorkerType.AGGREGATED, ()),
    Role.PREFILL: (WorkerType.PREFILL, ((WorkerType.DECODE,),)),
    Role.DECODE: (WorkerType.DECODE, ((WorkerType.PREFILL,),)),
}


async def build_card(config: ModelConfig, discovery: Discovery, role: Role, identity: WorkerIdentity) -> CardRecord:
    """The record of this worker's model card. Files are read and hashed in a thread.

    Raises:
        ConfigurationError: names the option at fault, or the file that is missing or unreadable.
    """
    model_type = _model_type(config.endpoint_types, role)
    files = await asyncio.to_thread(read_model_files, config.path, config.custom_template)
    card = _card(config, discovery, role, files, model_type)
    endpoint = EndpointId(identity.namespace, identity.component, identity.endpoint)
    return card_record(endpoint, identity.instance_id, card)


def served_name(config: ModelConfig, discovery: Discovery) -> str:
    """The name that clients ask for: the configured one, else the engine's served name, else its model id."""
    return config.served_name or discovery.served_model_name or discovery.model_id


def _card(config: ModelConfig, discovery: Discovery, role: Role, files: ModelFiles, model_type: str) -> ModelCard:
    name = served_name(config, discovery)
    stage, needs = _STAGES[role]
    aliases = tuple(alias for alias in dict.fromkeys(config.aliases) if alias != name)
    context_length = _context_length(config, discovery, files)
    return ModelCard(
        display_name=name,
        slug=slugify(name),
        source_path=str(config.path.absolute()),
        model_info=ModelInfo(files.config),
        tokenizer=Tokenizer(files.tokenizer),
        prompt_formatter=PromptFormatter(files.tokenizer_config),
        chat_template_file=files.chat_template,
        gen_config=_generation_config(files),
        architectural_max_context_length=files.max_positions,
        context_length=context_length,
        kv_cache_block_size=discovery.limits.kv_block_size or DEFAULT_BLOCK_SIZE,
        model_type=model_type,
        worker_type=stage,
        needs=needs,
        aliases=aliases or UNSET,
        runtime_config=_runtime_config(config, discovery, context_length),
    )


def _runtime_config(config: ModelConfig, discovery: Discovery, context_length: int | UnsetType) -> RuntimeConfig:
    limits = discovery.limits
    ranks = discovery.parallelism.ranks
    return RuntimeConfig(
        context_length=context_length,
        total_kv_blocks=limits.total_kv_blocks,
        max_num_seqs=limits.max_running_requests,
        max_num_batched_tokens=limits.max_batched_tokens,
        tool_call_parser=config.tool_call_parser or discovery.tool_call_parser or None,
        reasoning_parser=config.reasoning_parser or discovery.reasoning_parser or None,
        exclude_tools_when_tool_choice_none=config.exclude_tools_when_tool_choice_none,
        data_parallel_start_rank=ranks.start,
        data_parallel_size=len(ranks),
        max_gpu_lora_count=UNSET if config.max_loras is None else config.max_loras,
    )


def _context_length(config: ModelConfig, discovery: Discovery, files: ModelFiles) -> int | UnsetType:
    return config.context_length or discovery.limits.max_context_length or files.max_positions


def _generation_config(files: ModelFiles) -> GenerationConfig | UnsetType:
    found = files.generation_config
    return UNSET if isinstance(found, UnsetType) else GenerationConfig(found)


def _model_type(endpoint_types: tuple[str, ...], role: Role) -> str:
    """Prefill workers are asked for nothing by clients; their one type is the mark of their stage."""
    unknown = [name for name in endpoint_types if name not in ENDPOINT_TYPES]
    if unknown or not endpoint_types:
        known = ", ".join(ENDPOINT_TYPES)
        raise ConfigurationError(
            _ENDPOINT_TYPES_OPTION, f"{', '.join(endpoint_types) or 'none'} is not made of {known}"
        )
    if role is Role.PREFILL:
        return ModelType.PREFILL
    return join_model_types(tuple(ENDPOINT_TYPES[name] for name in dict.fromkeys(endpoint_types)))

"""EngineInfo, ModelInfo and KvConnectorInfo -> Discovery. Absent stays None throughout."""

from __future__ import annotations

from collections.abc import Iterable

from openengine_sidecar.messages.engine.discovery import (
    Capabilities,
    Discovery,
    KvConnector,
    Limits,
    LogprobCapability,
    Parallelism,
)
from openengine_sidecar.messages.errors import DiscoveryError
from openengine_sidecar.proto.fields import given
from openengine_sidecar.proto.rev2.engine_pb2 import EngineInfo, ParallelismInfo
from openengine_sidecar.proto.rev2.kv_pb2 import KvConnectorInfo
from openengine_sidecar.proto.rev2.model_pb2 import LogprobCapabilities, ModelInfo
from openengine_sidecar.proto.rev2_dialect.enums import (
    CANDIDATE_MODES,
    GUIDE_MODES,
    MEDIA_SOURCES,
    MODALITIES,
    ROLES,
    known,
)
from openengine_sidecar.proto.text import peer_text

NAME_LIMIT = 512


def choose_model(info: EngineInfo, wanted: str | None, endpoint: str) -> str:
    """Choose the model to ask for: the configured one, else the only one.

    Raises:
        DiscoveryError: none is configured, and the engine serves none or several.
    """
    if wanted is not None:
        return wanted
    match list(info.supported_models):
        case [only]:
            return only
        case []:
            raise DiscoveryError(endpoint, "it names no supported model; configure the model to serve")
        case several:
            raise DiscoveryError(endpoint, f"it serves several models, configure one of {_listed(several)}")


def check_model(model: ModelInfo, asked: str, endpoint: str) -> None:
    """Make sure that the model that came back is the one asked for, under names fit for use.

    Raises:
        DiscoveryError: neither id, served name nor an alias matches, or one of them does not print.
    """
    names = [name for name in (model.model_id, model.served_model_name, *model.served_model_aliases) if name]
    for name in names:
        if len(name) > NAME_LIMIT or not name.isprintable():
            raise DiscoveryError(endpoint, f"a model name is too long or does not print: {peer_text(name)}")
    if asked not in names:
        problem = f"asked for model {peer_text(asked)}, it answered for {_listed(names) or 'a model without a name'}"
        raise DiscoveryError(endpoint, problem)


def describe(dialect: str, info: EngineInfo, model: ModelInfo, connector: KvConnectorInfo | None) -> Discovery:
    """Put what the engine said into one value."""
    return Discovery(
        dialect=dialect,
        engine_name=peer_text(info.engine_name),
        engine_version=peer_text(info.engine_version),
        instance_id=peer_text(info.instance_id),
        schema_revision=info.schema_revision,
        minimum_client_revision=info.minimum_client_revision,
        schema_release=peer_text(info.schema_release),
        role=ROLES.get(info.role),
        supported_models=tuple(info.supported_models),
        model_id=model.model_id,
        served_model_name=model.served_model_name,
        aliases=tuple(model.served_model_aliases),
        limits=_limits(model),
        parallelism=_parallelism(info.parallelism),
        capabilities=_capabilities(model),
        kv_connector=_connector(connector) if connector is not None else None,
        reasoning_parser=peer_text(model.reasoning_parser),
        tool_call_parser=peer_text(model.tool_call_parser),
    )


def _listed(names: Iterable[str]) -> str:
    return peer_text(", ".join(names))


def _limits(model: ModelInfo) -> Limits:
    return Limits(
        max_context_length=given(model, "max_context_length"),
        max_output_tokens=given(model, "max_output_tokens"),
        kv_block_size=given(model, "kv_block_size"),
        total_kv_blocks=given(model, "total_kv_blocks"),
        max_running_requests=given(model, "max_running_requests"),
        max_batched_tokens=given(model, "max_batched_tokens"),
    )


def _parallelism(info: ParallelismInfo) -> Parallelism:
    return Parallelism(
        tensor=given(info, "tensor_parallel_size"),
        pipeline=given(info, "pipeline_parallel_size"),
        data=given(info, "data_parallel_size"),
        data_rank=given(info, "data_parallel_rank"),
        data_start_rank=given(info, "data_parallel_start_rank"),
    )


def _capabilities(model: ModelInfo) -> Capabilities:
    generation = model.generation
    media = model.multimodal_capabilities
    return Capabilities(
        token_ids_input=given(model, "supports_token_ids_input"),
        prompt_logprobs=_logprobs(generation.prompt_logprobs),
        output_logprobs=_logprobs(generation.output_logprobs),
        guided_decoding=given(generation.guided_decoding, "supported"),
        guide_modes=known(generation.guided_decoding.modes, GUIDE_MODES),
        max_num_sequences=given(generation, "max_num_sequences"),
        priority=given(generation, "supports_priority"),
        stop_in_output=given(generation, "supports_stop_in_output"),
        cache_salt=given(generation, "supports_cache_salt"),
        prefix_cache_bypass=given(generation, "supports_prefix_cache_bypass"),
        lora=given(model, "supports_lora"),
        multimodal=given(model, "supports_multimodal"),
        aggregate_modalities=known(media.aggregate_modalities, MODALITIES),
        prefill_decode_modalities=known(media.prefill_decode_modalities, MODALITIES),
        media_sources=known(media.source_types, MEDIA_SOURCES),
        media_options=given(media, "supports_per_request_media_options"),
    )


def _logprobs(info: LogprobCapabilities) -> LogprobCapability:
    return LogprobCapability(
        supported=given(info, "supported"),
        modes=known(info.candidate_selection_modes, CANDIDATE_MODES),
        max_top_n=given(info, "max_top_n"),
    )


def _connector(info: KvConnectorInfo) -> KvConnector:
    return KvConnector(
        enabled=given(info, "enabled"),
        transfer_backend=info.transfer_backend,
        protocols=tuple(info.supported_protocols),
        remote_prefill=given(info, "supports_remote_prefill"),
        decode_pull=given(info, "supports_decode_pull"),
        abort_cleanup=given(info, "supports_abort_cleanup"),
        drain=given(info, "supports_drain"),
        schema_version=given(info, "schema_version"),
    )

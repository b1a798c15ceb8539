"""What the engine says it is."""

from __future__ import annotations

from openengine_sidecar import __version__
from openengine_sidecar.launch.engine import features
from openengine_sidecar.launch.engine.core import Core
from openengine_sidecar.launch.engine.roles.kinds import KINDS
from openengine_sidecar.launch.engine.status import starting, unknown_model
from openengine_sidecar.proto.rev2 import engine_pb2, kv_pb2, model_pb2


async def get_engine_info(core: Core, _request: engine_pb2.GetEngineInfoRequest) -> engine_pb2.EngineInfo:
    """Answer GetEngineInfo; UNAVAILABLE until the start delay is over."""
    _ready(core)
    options = core.options
    info = engine_pb2.EngineInfo(
        engine_name=options.engine_name,
        engine_version=__version__,
        role=KINDS[options.role].number,
        instance_id=core.instance_id,
        supported_models=[core.model.model_id],
        schema_revision=options.schema_revision,
        minimum_client_revision=options.minimum_client_revision,
        schema_release=options.schema_release,
    )
    if not options.minimal:
        info.parallelism.tensor_parallel_size = 1
        info.parallelism.pipeline_parallel_size = 1
    if "data_parallel_rank" in core.has:
        info.parallelism.data_parallel_size = options.data_parallel_size
        info.parallelism.data_parallel_start_rank = options.data_parallel_start_rank
    return info


async def get_model_info(core: Core, request: model_pb2.GetModelInfoRequest) -> model_pb2.ModelInfo:
    """Answer GetModelInfo; NOT_FOUND for another model, UNAVAILABLE until the start delay is over."""
    _ready(core)
    model = core.model
    if not model.answers_to(request.model):
        raise unknown_model(request.model)
    info = model_pb2.ModelInfo(model_id=model.model_id, served_model_name=model.served_name)
    info.served_model_aliases.extend(model.aliases)
    features.advertise(info, core.has, minimal=core.options.minimal)
    if not core.options.minimal:
        _limits(core, info)
    return info


def _limits(core: Core, info: model_pb2.ModelInfo) -> None:
    options = core.options
    info.max_context_length = core.model.context_length
    if options.max_output_tokens is not None:
        info.max_output_tokens = options.max_output_tokens
    info.kv_block_size = options.kv_block_size
    info.total_kv_blocks = options.total_kv_blocks
    info.max_running_requests = options.max_running_requests
    info.tokenizer_modes.append("auto")
    info.reasoning_parser = options.reasoning_parser
    info.tool_call_parser = options.tool_call_parser
    info.generation.max_num_sequences = options.max_num_sequences if "num_sequences" in core.has else 1
    if "prompt_top_n" in core.has:
        info.generation.prompt_logprobs.max_top_n = options.max_top_n
    if "output_top_n" in core.has:
        info.generation.output_logprobs.max_top_n = options.max_top_n


async def get_kv_connector_info(core: Core, _request: kv_pb2.GetKvConnectorInfoRequest) -> kv_pb2.KvConnectorInfo:
    """Answer GetKvConnectorInfo: an aggregated engine has no connector."""
    _ready(core)
    return core.part.connector()


def _ready(core: Core) -> None:
    if core.starting:
        raise starting()

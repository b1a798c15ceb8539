from __future__ import annotations

from typing import Any

import grpc
import pytest

from openengine_sidecar.messages.engine.discovery import (
    CandidateMode,
    Capabilities,
    Discovery,
    KvConnector,
    Limits,
    LogprobCapability,
    Parallelism,
    Role,
)
from openengine_sidecar.messages.engine.generation import GuideMode, MediaSource, Modality
from openengine_sidecar.messages.errors import DiscoveryError
from openengine_sidecar.proto.dialect import EngineCallError
from openengine_sidecar.proto.rev2.engine_pb2 import EngineInfo, ParallelismInfo
from openengine_sidecar.proto.rev2.input_pb2 import Modality as WireModality
from openengine_sidecar.proto.rev2.kv_pb2 import KvConnectorInfo
from openengine_sidecar.proto.rev2.model_pb2 import (
    GenerationCapabilities,
    GuidedDecodingCapabilities,
    LogprobCapabilities,
    ModelInfo,
    MultimodalCapabilities,
)
from openengine_sidecar.proto.rev2_dialect import Method, Revision2
from openengine_sidecar.proto.rev2_dialect.discovery import check_model
from tests.proto.engine import RELEASE, Handler, answering, connected, discoverable, engine_info, refusing, wire

REV2 = Revision2()


async def _discover(handlers: dict[Method, Handler], model: str | None = None) -> Discovery:
    async with connected(handlers) as (_, channel):
        return await REV2.discover(channel, model=model, timeout=5, endpoint="here")


async def _discovered(info: EngineInfo | None = None, model: ModelInfo | None = None) -> Discovery:
    return await _discover(discoverable(info, model))


FULL_MODEL = ModelInfo(
    model_id="m",
    served_model_name="served",
    served_model_aliases=["alias"],
    max_context_length=4096,
    max_output_tokens=0,
    kv_block_size=32,
    total_kv_blocks=2**40,
    max_running_requests=8,
    max_batched_tokens=9,
    supports_token_ids_input=True,
    generation=GenerationCapabilities(
        prompt_logprobs=LogprobCapabilities(supported=False),
        output_logprobs=LogprobCapabilities(
            supported=True, candidate_selection_modes=wire([1, 2, 3, 77, 0]), max_top_n=20
        ),
        guided_decoding=GuidedDecodingCapabilities(supported=True, modes=wire([1, 2, 3, 4, 5, 6, 99])),
        max_num_sequences=4,
        supports_priority=True,
        supports_stop_in_output=False,
        supports_cache_salt=True,
        supports_prefix_cache_bypass=True,
    ),
    supports_lora=True,
    supports_multimodal=True,
    reasoning_parser="think",
    tool_call_parser="hermes",
    multimodal_capabilities=MultimodalCapabilities(
        aggregate_modalities=[WireModality.MODALITY_IMAGE, WireModality.MODALITY_VIDEO, WireModality.MODALITY_AUDIO],
        prefill_decode_modalities=[WireModality.MODALITY_IMAGE],
        source_types=wire([1, 2, 3]),
        supports_per_request_media_options=True,
    ),
)

FULL_INFO = engine_info(
    engine_version="1.0\n2",
    role=2,
    instance_id="i-1",
    parallelism=ParallelismInfo(
        tensor_parallel_size=2,
        pipeline_parallel_size=1,
        data_parallel_size=3,
        data_parallel_rank=0,
        data_parallel_start_rank=4,
    ),
    kv_connector=KvConnectorInfo(
        enabled=True,
        transfer_backend="nixl",
        supported_protocols=["ucx"],
        supports_remote_prefill=True,
        supports_decode_pull=False,
        supports_abort_cleanup=True,
        supports_drain=True,
        schema_version=1,
    ),
)


async def test_c14_everything_the_engine_says_is_kept() -> None:
    assert await _discovered(FULL_INFO, FULL_MODEL) == Discovery(
        dialect="rev2",
        engine_name="toy",
        engine_version=r"1.0\n2",
        instance_id="i-1",
        schema_revision=2,
        minimum_client_revision=1,
        schema_release=RELEASE,
        role=Role.PREFILL,
        supported_models=("m",),
        model_id="m",
        served_model_name="served",
        aliases=("alias",),
        limits=Limits(
            max_context_length=4096,
            max_output_tokens=0,
            kv_block_size=32,
            total_kv_blocks=2**40,
            max_running_requests=8,
            max_batched_tokens=9,
        ),
        parallelism=Parallelism(tensor=2, pipeline=1, data=3, data_rank=0, data_start_rank=4),
        capabilities=Capabilities(
            token_ids_input=True,
            prompt_logprobs=LogprobCapability(supported=False),
            output_logprobs=LogprobCapability(supported=True, modes=tuple(CandidateMode), max_top_n=20),
            guided_decoding=True,
            guide_modes=(
                GuideMode.JSON_SCHEMA,
                GuideMode.REGEX,
                GuideMode.EBNF_GRAMMAR,
                GuideMode.STRUCTURAL_TAG,
                GuideMode.CHOICE,
                GuideMode.JSON_OBJECT,
            ),
            max_num_sequences=4,
            priority=True,
            stop_in_output=False,
            cache_salt=True,
            prefix_cache_bypass=True,
            lora=True,
            multimodal=True,
            aggregate_modalities=tuple(Modality),
            prefill_decode_modalities=(Modality.IMAGE,),
            media_sources=tuple(MediaSource),
            media_options=True,
        ),
        kv_connector=KvConnector(
            enabled=True,
            transfer_backend="nixl",
            protocols=("ucx",),
            remote_prefill=True,
            decode_pull=False,
            abort_cleanup=True,
            drain=True,
            schema_version=1,
        ),
        reasoning_parser="think",
        tool_call_parser="hermes",
    )


async def test_c10_an_engine_that_says_nothing_is_read_as_nothing_said() -> None:
    found = await _discovered()
    assert (found.limits, found.parallelism, found.capabilities) == (Limits(), Parallelism(), Capabilities())
    assert found.kv_connector is None


@pytest.mark.parametrize(
    ("model", "limit", "token_ids"),
    [
        (ModelInfo(model_id="m"), None, None),
        (ModelInfo(model_id="m", max_output_tokens=0, supports_token_ids_input=False), 0, False),
        (ModelInfo(model_id="m", max_output_tokens=7, supports_token_ids_input=True), 7, True),
    ],
    ids=["absent", "zero", "given"],
)
async def test_c10_absent_and_zero_stay_apart(model: ModelInfo, limit: int | None, *, token_ids: bool | None) -> None:
    found = await _discovered(model=model)
    assert (found.limits.max_output_tokens, found.capabilities.token_ids_input) == (limit, token_ids)


@pytest.mark.parametrize(
    ("number", "role"), [(0, None), (1, Role.AGGREGATED), (2, Role.PREFILL), (3, Role.DECODE), (99, None)]
)
async def test_c11_roles(number: int, role: Role | None) -> None:
    assert (await _discovered(engine_info(role=number))).role is role


@pytest.mark.parametrize(
    ("models", "problem"), [([], "names no supported model"), (["a", "b"], "several models, configure one of a, b")]
)
async def test_c09_without_a_configured_model_there_must_be_exactly_one(models: list[str], problem: str) -> None:
    with pytest.raises(DiscoveryError, match=problem) as refusal:
        await _discovered(engine_info(supported_models=models))
    assert refusal.value.endpoint == "here"


async def test_c09_the_only_model_is_taken_and_asked_for_by_name() -> None:
    async with connected(discoverable()) as (engine, channel):
        found = await REV2.discover(channel, model=None, timeout=5)
        assert found.model_id == "m"
        assert [call.request.model for call in engine.calls if call.method == Method.GET_MODEL_INFO] == ["m"]


@pytest.mark.parametrize("wanted", ["m", "served", "alias"])
async def test_c09_a_configured_model_may_be_named_by_id_served_name_or_alias(wanted: str) -> None:
    info = engine_info(supported_models=["x", "y"])
    assert (await _discover(discoverable(info, FULL_MODEL), model=wanted)).model_id == "m"


async def test_c09_another_model_than_the_one_asked_for_is_refused() -> None:
    with pytest.raises(DiscoveryError, match="asked for model z, it answered for m, served, alias"):
        await _discover(discoverable(model=FULL_MODEL), model="z")


async def test_c09_a_model_that_is_not_served_is_refused() -> None:
    handlers = discoverable() | {Method.GET_MODEL_INFO: refusing(grpc.StatusCode.NOT_FOUND, "no\nsuch")}
    with pytest.raises(DiscoveryError, match=r"does not serve model 'z': no\\nsuch"):
        await _discover(handlers, model="z")


async def test_c09_a_model_info_that_fails_otherwise_is_to_be_asked_again() -> None:
    handlers = discoverable() | {Method.GET_MODEL_INFO: refusing(grpc.StatusCode.UNAVAILABLE)}
    with pytest.raises(EngineCallError):
        await _discover(handlers)


@pytest.mark.parametrize("name", ["a\nb", "m" * 513, "m\u202e"])
def test_model_names_must_be_fit_for_logs_and_paths(name: str) -> None:
    with pytest.raises(DiscoveryError, match="too long or does not print"):
        check_model(ModelInfo(model_id="m", served_model_aliases=[name]), "m", "here")


async def test_a_model_without_a_name_is_no_answer() -> None:
    with pytest.raises(DiscoveryError, match="a model without a name"):
        await _discover(discoverable(model=ModelInfo()), model="")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"schema_revision": 0}, "revision 0"),
        ({"schema_revision": 1}, "needs 2 or later"),
        ({"schema_revision": 3, "minimum_client_revision": 3}, "from schema revision 3 on"),
    ],
)
async def test_c07_a_revision_that_does_not_fit_stops_discovery_at_once(fields: dict[str, Any], problem: str) -> None:
    async with connected(discoverable(engine_info(**fields))) as (engine, channel):
        with pytest.raises(DiscoveryError, match=problem):
            await REV2.discover(channel, model=None, timeout=5)
        assert engine.methods == [Method.GET_ENGINE_INFO]


async def test_a_connector_is_asked_for_where_the_engine_info_has_none() -> None:
    connector = answering(KvConnectorInfo(enabled=False))
    found = await _discover(discoverable() | {Method.GET_KV_CONNECTOR_INFO: connector})
    assert found.kv_connector == KvConnector(enabled=False)


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND]
)
async def test_no_connector_is_not_an_error(code: grpc.StatusCode) -> None:
    assert (await _discover(discoverable() | {Method.GET_KV_CONNECTOR_INFO: refusing(code)})).kv_connector is None


async def test_a_connector_that_cannot_be_read_now_is_to_be_asked_again() -> None:
    with pytest.raises(EngineCallError):
        await _discover(discoverable() | {Method.GET_KV_CONNECTOR_INFO: refusing(grpc.StatusCode.UNAVAILABLE)})

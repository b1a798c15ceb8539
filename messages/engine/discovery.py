"""What an engine says it is and can do. None everywhere means "not reported", which is neither no nor 0."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from openengine_sidecar.messages.engine.generation import GuideMode, MediaSource, Modality


class Role(StrEnum):
    """Part an engine plays in disaggregated serving."""

    AGGREGATED = "agg"
    PREFILL = "prefill"
    DECODE = "decode"


class CandidateMode(StrEnum):
    """How logprob candidates may be chosen."""

    TOP_N = "top_n"
    TOKEN_IDS = "token_ids"  # noqa: S105 - a mode, not a secret
    ALL = "all"


class LogprobCapability(msgspec.Struct, frozen=True, kw_only=True):
    """Logprobs of the prompt or of the output."""

    supported: bool | None = None
    modes: tuple[CandidateMode, ...] = ()
    max_top_n: int | None = None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a request may ask for. Only True permits use."""

    token_ids_input: bool | None = None
    prompt_logprobs: LogprobCapability = LogprobCapability()
    output_logprobs: LogprobCapability = LogprobCapability()
    guided_decoding: bool | None = None
    guide_modes: tuple[GuideMode, ...] = ()
    max_num_sequences: int | None = None
    priority: bool | None = None
    stop_in_output: bool | None = None
    cache_salt: bool | None = None
    prefix_cache_bypass: bool | None = None
    lora: bool | None = None
    multimodal: bool | None = None
    aggregate_modalities: tuple[Modality, ...] = ()
    prefill_decode_modalities: tuple[Modality, ...] = ()
    media_sources: tuple[MediaSource, ...] = ()
    media_options: bool | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of this deployment, in tokens, blocks or requests."""

    max_context_length: int | None = None
    max_output_tokens: int | None = None
    kv_block_size: int | None = None
    total_kv_blocks: int | None = None
    max_running_requests: int | None = None
    max_batched_tokens: int | None = None


class Parallelism(msgspec.Struct, frozen=True, kw_only=True):
    """Parallel sizes and, for data parallelism, the first rank this endpoint serves."""

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    data_rank: int | None = None
    data_start_rank: int | None = None

    @property
    def ranks(self) -> range:
        """The data-parallel ranks that the engine's endpoint serves: a lone rank of a group serves one."""
        if self.data_start_rank is None and self.data_rank is not None:
            return range(self.data_rank, self.data_rank + 1)
        start = self.data_start_rank or 0
        return range(start, start + (self.data or 1))


class KvConnector(msgspec.Struct, frozen=True, kw_only=True):
    """KV transfer as the engine advertises it."""

    enabled: bool | None = None
    transfer_backend: str = ""
    protocols: tuple[str, ...] = ()
    remote_prefill: bool | None = None
    decode_pull: bool | None = None
    abort_cleanup: bool | None = None
    drain: bool | None = None
    schema_version: int | None = None


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """One engine, as it described itself at one moment.

    `dialect` names the schema spoken; `role` is None where the engine does not say.
    """

    dialect: str
    engine_name: str
    engine_version: str
    instance_id: str
    schema_revision: int
    minimum_client_revision: int
    schema_release: str
    role: Role | None
    supported_models: tuple[str, ...]
    model_id: str
    served_model_name: str
    aliases: tuple[str, ...] = ()
    limits: Limits = Limits()
    parallelism: Parallelism = Parallelism()
    capabilities: Capabilities = Capabilities()
    kv_connector: KvConnector | None = None
    reasoning_parser: str = ""
    tool_call_parser: str = ""

"""Generation calls and the events they bring back.

Presence matters throughout: None means "not said", 0, 0.0, False and "" are values.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Modality(StrEnum):
    """What a media item is."""

    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"


class MediaSource(StrEnum):
    """How a media item travels."""

    URL = "url"
    DATA_URI = "data_uri"
    RAW_BYTES = "raw_bytes"


class GuideMode(StrEnum):
    """A form of guided decoding."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    EBNF_GRAMMAR = "ebnf_grammar"
    STRUCTURAL_TAG = "structural_tag"
    CHOICE = "choice"


class FinishReason(StrEnum):
    """Why one output ended. UNKNOWN stands for a number this build does not know, and for zero."""

    UNKNOWN = "unknown"
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


class FaultCode(StrEnum):
    """Code of an application failure after acceptance."""

    UNSPECIFIED = "unspecified"
    INVALID_ARGUMENT = "invalid_argument"
    UNSUPPORTED_FEATURE = "unsupported_feature"
    ROLE_MISMATCH = "role_mismatch"
    MODEL_NOT_FOUND = "model_not_found"
    OVERLOADED = "overloaded"
    REQUEST_NOT_FOUND = "request_not_found"
    DUPLICATE_REQUEST = "duplicate_request"
    KV_SESSION_NOT_FOUND = "kv_session_not_found"
    KV_TRANSFER_FAILED = "kv_transfer_failed"
    CANCELLED = "cancelled"
    DRAINING = "draining"
    INTERNAL = "internal"


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling options; None lets the engine choose."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    num_sequences: int | None = None


class Stopping(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop: token counts, texts and token ids (merged: the schema knows no hidden stops)."""

    max_tokens: int | None = None
    min_tokens: int | None = None
    stop_texts: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool | None = None
    include_stop: bool | None = None


class Logprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Logprobs wanted: of the chosen token always; `top_n` further candidates, None for none."""

    top_n: int | None = None


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    """One constraint. `value` is the schema, pattern, grammar or tag text; `choices` only for CHOICE."""

    mode: GuideMode
    value: str = ""
    choices: tuple[str, ...] = ()
    backend: str = ""


class MediaItem(msgspec.Struct, frozen=True, kw_only=True):
    """The i-th item belongs to the i-th placeholder of the prompt. `value` is str for url and data_uri, else bytes."""

    modality: Modality
    source: MediaSource
    value: str | bytes
    mime_type: str = ""
    uuid: str = ""


class KvSession(msgspec.Struct, frozen=True, kw_only=True):
    """A KV session as the engine gave it. `wire` is the serialized message: only it survives every hop whole."""

    session_id: str
    transfer_backend: str
    dp_rank: int
    wire: bytes


class KvEndpoint(msgspec.Struct, frozen=True):
    """Where a session's KV can be fetched."""

    host: str
    port: int
    protocol: str


class KvSessionContent(msgspec.Struct, frozen=True, kw_only=True):
    """A session, and what of it a carrier may judge. `attributes` is one bounded line of JSON, for people."""

    session: KvSession
    endpoints: tuple[KvEndpoint, ...] = ()
    attributes: str = "{}"


class GenerateCall(msgspec.Struct, frozen=True, kw_only=True):
    """One generation, ready to be put on the wire by a dialect.

    `trace` holds the W3C headers (`traceparent`, `tracestate`) that travel beside the call;
    `metadata` is the request's own map.
    """

    request_id: str
    model: str
    token_ids: list[int]
    sampling: Sampling = Sampling()
    stopping: Stopping = Stopping()
    output_logprobs: Logprobs | None = None
    prompt_logprobs: Logprobs | None = None
    guide: Guide | None = None
    media: tuple[MediaItem, ...] = ()
    media_options: dict[str, object] | None = None
    lora_name: str = ""
    priority: int | None = None
    data_parallel_rank: int | None = None
    bypass_prefix_cache: bool | None = None
    cache_salt: str | None = None
    kv_session: KvSession | None = None
    metadata: dict[str, str] = {}
    trace: dict[str, str] = {}


class Candidate(msgspec.Struct, frozen=True):
    """One alternative at a position."""

    token_id: int
    logprob: float
    token: str = ""
    rank: int | None = None


class TokenDetail(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine said of one token beyond its id."""

    token_id: int
    token: str = ""
    logprob: float | None = None
    rank: int | None = None
    candidates: tuple[Candidate, ...] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts, cumulative over all outputs; cached and reasoning absent is not 0."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_prompt_tokens: int | None = None
    reasoning_tokens: int | None = None


class StopMatch(msgspec.Struct, frozen=True, kw_only=True):
    """What made an output stop; at most one is set."""

    token_id: int | None = None
    text: str | None = None
    eos_token_id: int | None = None


class PromptScored(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt logprobs; the first token carries none."""

    tokens: tuple[TokenDetail, ...]


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """New tokens and text of one output (deltas). `details` is None, or aligned with `token_ids`."""

    index: int | None
    token_ids: list[int]
    text: str = ""
    details: tuple[TokenDetail, ...] | None = None


class PrefillReady(msgspec.Struct, frozen=True, kw_only=True):
    """The handoff of a prefill; ends the stream."""

    session: KvSession | None


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """One output ended."""

    index: int | None
    reason: FinishReason
    message: str = ""
    match: StopMatch | None = None


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """An application failure after acceptance; ends the stream. `details` is text for the operator."""

    code: FaultCode
    message: str
    retryable: bool = False
    retry_after_ms: int | None = None
    details: str = ""


class Empty(msgspec.Struct, frozen=True):
    """A response with no event in it: a violation, but one the caller judges."""


EventBody = PromptScored | Tokens | PrefillReady | Finished | Fault | Empty


class Event(msgspec.Struct, frozen=True):
    """One response of a generation stream."""

    request_id: str
    body: EventBody
    usage: Usage | None = None

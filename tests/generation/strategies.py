from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from openengine_sidecar.messages.engine.discovery import (
    CandidateMode,
    Capabilities,
    Discovery,
    Limits,
    LogprobCapability,
    Parallelism,
)
from openengine_sidecar.messages.engine.generation import (
    Candidate,
    Empty,
    Event,
    EventBody,
    Fault,
    FaultCode,
    Finished,
    FinishReason,
    GenerateCall,
    GuideMode,
    KvSession,
    MediaSource,
    Modality,
    PrefillReady,
    PromptScored,
    StopMatch,
    TokenDetail,
    Tokens,
    Usage,
)
from tests.generation.builders import ID, call, engine

U32 = st.integers(0, 2**32 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FLOATS = st.floats(width=32)
SMALL = st.integers(0, 6)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def some(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: optional(values) for name, values in fields.items()})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | TEXTS | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
URLS = st.sampled_from(
    ["https://host/a", "http://host/b", "data:image/png;base64,AAAA", "data:,x", "data:;base64,*", "file:///etc/passwd"]
)
KINDS = st.sampled_from(["image_url", "video_url", "audio_url"])
ENTRIES = st.builds(lambda url: {"Url": url}, URLS) | st.just({"Decoded": {"rdma": 1}})
PARTS = (
    st.builds(lambda kind, detail: {"type": kind, kind: {"url": "", "detail": detail}}, KINDS, optional(TEXTS))
    | st.builds(
        lambda data, name: {"type": "input_audio", "input_audio": {"data": data, "format": name}},
        st.sampled_from(["AAAA", "A", ""]),
        st.sampled_from(["wav", "mp3", "ogg"]),
    )
    | st.just({"type": "text", "text": "a"})
    | st.builds(lambda kind: {"type": kind}, TEXTS)
)
MESSAGES = st.lists(
    st.builds(lambda content: {"role": "user", "content": content}, optional(TEXTS | st.lists(PARTS, max_size=4))),
    max_size=3,
)
GUIDES = some(
    {
        "json": JSON | st.just({"type": "object"}),
        "regex": TEXTS,
        "choice": st.lists(TEXTS, max_size=3),
        "grammar": TEXTS,
        "structural_tag": JSON,
        "backend": TEXTS,
        "whitespace_pattern": TEXTS,
    }
)
STOPS = some(
    {
        "max_tokens": U32,
        "stop": st.lists(TEXTS, max_size=3),
        "stop_token_ids": st.lists(U32, max_size=3),
        "stop_token_ids_visible": st.lists(U32, max_size=2),
        "stop_token_ids_hidden": st.lists(U32, max_size=3),
        "min_tokens": SMALL,
        "ignore_eos": st.booleans(),
        "max_thinking_tokens": U32,
    }
)
SAMPLING = some(
    {
        "n": SMALL,
        "best_of": SMALL,
        "temperature": FLOATS,
        "top_p": FLOATS,
        "min_p": FLOATS,
        "frequency_penalty": FLOATS,
        "presence_penalty": FLOATS,
        "repetition_penalty": FLOATS,
        "top_k": st.integers(-(2**31), 2**31 - 1),
        "seed": st.integers(-(2**63), 2**64 - 1),
        "use_beam_search": st.booleans(),
        "length_penalty": FLOATS,
        "include_stop_str_in_output": st.booleans(),
        "guided_decoding": GUIDES,
    }
)
ROUTING = some(
    {
        "dp_rank": SMALL,
        "lora_name": TEXTS,
        "cache_salt": TEXTS,
        "priority": st.integers(-(2**31), 2**31 - 1),
        "priority_jump": FLOATS,
        "backend_instance_id": st.integers(0, 2**64 - 1),
    }
)
EXTRA = some(
    {
        "messages": MESSAGES | JSON,
        "formatted_prompt": TEXTS,
        "metadata": st.dictionaries(TEXTS, TEXTS, max_size=2) | JSON,
        "bypass_prefix_cache": st.booleans(),
        "disable_prefix_cache": st.booleans(),
        "nvext": some({"cache_salt": TEXTS, "extra_fields": st.lists(TEXTS, max_size=2)}),
    }
) | st.dictionaries(TEXTS, JSON, max_size=2)

REQUESTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"model": TEXTS, "token_ids": st.lists(U32, max_size=8)},
    optional={
        "stop_conditions": STOPS,
        "sampling_options": SAMPLING,
        "output_options": some({"logprobs": SMALL, "prompt_logprobs": SMALL, "skip_special_tokens": st.booleans()}),
        "routing": optional(ROUTING),
        "multi_modal_data": optional(st.dictionaries(KINDS | TEXTS, st.lists(ENTRIES, max_size=3), max_size=2)),
        "multi_modal_uuids": optional(st.dictionaries(KINDS, st.lists(optional(TEXTS), max_size=3), max_size=2)),
        "mm_processor_kwargs": optional(st.dictionaries(TEXTS | st.sampled_from(Modality), JSON, max_size=3)),
        "extra_args": optional(EXTRA),
        "annotations": st.lists(TEXTS, max_size=2),
        "request_timestamp_ms": optional(FLOATS),
        "media_io_kwargs": optional(JSON),
    },
)
"""Requests that parse; many ask for what no engine could do."""


FINITE = st.floats(-100, 100, width=32)
NAMES = st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=4)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
PLAIN_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | FINITE | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(NAMES, PLAIN_JSON, max_size=3)
ONE_GUIDE = st.one_of(
    st.builds(lambda schema: {"json": schema}, OBJECTS | st.booleans() | st.just({"type": "object"})),
    st.builds(lambda tag: {"structural_tag": tag}, OBJECTS),
    st.builds(lambda name, text: {name: text}, st.sampled_from(["regex", "grammar"]), WORDS),
    st.builds(lambda choices: {"choice": choices}, st.lists(WORDS, min_size=1, max_size=3)),
).flatmap(lambda guide: st.builds(lambda backend: {**guide, "backend": backend}, optional(NAMES)))
GOOD_URLS = st.sampled_from(["https://host/a", "http://host/b", "data:image/png;base64,AAAA", "data:,x"])


@st.composite
def shown(draw: st.DrawFn) -> dict[str, Any]:
    items = draw(st.lists(st.tuples(KINDS, GOOD_URLS, optional(NAMES)), max_size=5))
    if not items:
        return {}
    parts = [{"type": kind, kind: {"url": "" if url.startswith("data:") else url}} for kind, url, _ in items]
    kinds = draw(st.permutations(sorted({kind for kind, _, _ in items})))
    return {
        "multi_modal_data": {kind: [{"Url": url} for other, url, _ in items if other == kind] for kind in kinds},
        "multi_modal_uuids": {kind: [uuid for other, _, uuid in items if other == kind] for kind in kinds},
        "mm_processor_kwargs": draw(optional(st.dictionaries(NAMES, PLAIN_JSON, max_size=2))),
        "extra_args": {"messages": [{"content": "hi"}, {"content": parts}], "formatted_prompt": "x"},
        "order": [(url, uuid or "") for _, url, uuid in items],
    }


VALID_REQUESTS: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda request, media: {**request, **media},
    st.fixed_dictionaries(
        {"model": NAMES, "token_ids": st.lists(U32, min_size=1, max_size=8)},
        optional={
            "stop_conditions": some(
                {
                    "max_tokens": st.integers(3, 40),
                    "min_tokens": st.integers(0, 3),
                    "stop": st.lists(WORDS, max_size=3),
                    "stop_token_ids": st.lists(U32, max_size=3),
                    "stop_token_ids_hidden": st.lists(U32, max_size=3),
                    "ignore_eos": st.booleans(),
                }
            ),
            "sampling_options": some(
                {
                    "n": st.integers(1, 4),
                    "temperature": FINITE,
                    "top_p": FINITE,
                    "min_p": FINITE,
                    "frequency_penalty": FINITE,
                    "presence_penalty": FINITE,
                    "repetition_penalty": FINITE,
                    "top_k": st.integers(-1, 2**31 - 1),
                    "seed": st.integers(0, 2**64 - 1),
                    "use_beam_search": st.just(value=False),
                    "include_stop_str_in_output": st.booleans(),
                    "guided_decoding": ONE_GUIDE,
                }
            ),
            "output_options": some({"logprobs": st.integers(0, 20), "prompt_logprobs": st.integers(0, 5)}),
            "routing": some(
                {
                    "dp_rank": st.integers(2, 5),
                    "lora_name": TEXTS,
                    "cache_salt": TEXTS,
                    "priority": st.integers(-(2**31), 2**31 - 1),
                    "priority_jump": FINITE,
                }
            ),
            "annotations": st.lists(TEXTS, max_size=2),
        },
    ),
    shown(),
)
"""Requests that a capable engine serves. `order` holds addresses and uuids in order; it is no field of a request."""


def tuples(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=3, unique=True).map(tuple)


LOGPROB_CAPABILITIES = st.builds(
    LogprobCapability,
    supported=optional(st.booleans()),
    modes=tuples(st.sampled_from(CandidateMode)),
    max_top_n=optional(SMALL),
)
CAPABILITIES = st.builds(
    Capabilities,
    **{
        name: optional(st.booleans())
        for name, value in msgspec.structs.asdict(Capabilities()).items()
        if value is None and name != "max_num_sequences"
    },
    max_num_sequences=optional(SMALL),
    prompt_logprobs=LOGPROB_CAPABILITIES,
    output_logprobs=LOGPROB_CAPABILITIES,
    guide_modes=tuples(st.sampled_from(GuideMode)),
    aggregate_modalities=tuples(st.sampled_from(Modality)),
    media_sources=tuples(st.sampled_from(MediaSource)),
)
ENGINES: st.SearchStrategy[Discovery] = st.builds(
    lambda capabilities, limits, parallelism: engine(capabilities, limits=limits, parallelism=parallelism),
    CAPABILITIES,
    st.builds(Limits, max_context_length=optional(st.integers(0, 64)), max_output_tokens=optional(st.integers(0, 64))),
    st.builds(Parallelism, data=optional(SMALL), data_start_rank=optional(SMALL)),
)

TRACES = st.dictionaries(
    st.sampled_from(["traceparent", "tracestate", "authorization"]), st.text(max_size=8), max_size=3
)

CALLS: st.SearchStrategy[GenerateCall] = st.builds(
    call,
    n=optional(st.integers(1, 3)),
    top_n=st.sampled_from([-1, None, 1, 3]),
    prompt_top_n=st.sampled_from([-1, None, 2]),
    max_tokens=optional(st.integers(20, 40)),
)
LOGPROBS = st.floats()
CANDIDATES = st.builds(Candidate, U32, LOGPROBS, TEXTS, optional(U32))
MATCHES = optional(
    st.builds(StopMatch, token_id=U32) | st.builds(StopMatch, text=TEXTS) | st.builds(StopMatch, eos_token_id=U32)
)


def details(logprobs: st.SearchStrategy[Any]) -> st.SearchStrategy[TokenDetail]:
    return st.builds(
        TokenDetail,
        token_id=U32,
        token=TEXTS,
        logprob=logprobs,
        rank=optional(U32),
        candidates=st.lists(CANDIDATES, max_size=4).map(tuple),
    )


@st.composite
def chunks(draw: st.DrawFn, of: GenerateCall, index: int) -> Event:
    if of.output_logprobs is None and draw(st.booleans()):
        return Event(ID, Tokens(index=index, token_ids=draw(st.lists(U32, max_size=3)), text=draw(TEXTS)))
    told = tuple(draw(st.lists(details(LOGPROBS), max_size=3)))
    return Event(
        ID, Tokens(index=index, token_ids=[detail.token_id for detail in told], details=told, text=draw(TEXTS))
    )


@st.composite
def interleaved(draw: st.DrawFn, lanes: list[list[Event]]) -> list[Event]:
    order = draw(st.permutations([lane for lane, events in enumerate(lanes) for _ in events]))
    sources = [iter(events) for events in lanes]
    return [next(sources[lane]) for lane in order]


@st.composite
def streams(draw: st.DrawFn, of: GenerateCall) -> list[Event]:
    lanes = [
        [*draw(st.lists(chunks(of, index), max_size=5)), Event(ID, draw(endings(index)))]
        for index in range(of.sampling.num_sequences or 1)
    ]
    events = draw(interleaved(lanes))
    made = sum(len(event.body.token_ids) for event in events if isinstance(event.body, Tokens))
    if of.prompt_logprobs is not None:
        scored = draw(st.lists(details(optional(LOGPROBS)), max_size=3))
        events.insert(draw(st.integers(0, len(events) - 1)), Event(ID, PromptScored(tokens=tuple(scored))))
    usage = Usage(
        prompt_tokens=len(of.token_ids),
        completion_tokens=made,
        total_tokens=draw(U32),
        cached_prompt_tokens=draw(optional(st.integers(0, len(of.token_ids)))),
        reasoning_tokens=draw(optional(st.integers(0, made))),
    )
    return [*events[:-1], msgspec.structs.replace(events[-1], usage=usage)]


def endings(index: int | None) -> st.SearchStrategy[Finished]:
    reasons = st.sampled_from([FinishReason.STOP, FinishReason.LENGTH])
    return st.builds(Finished, index=st.just(index), reason=reasons, match=MATCHES)


USAGES = st.builds(
    Usage,
    prompt_tokens=U32,
    completion_tokens=U32,
    total_tokens=U32,
    cached_prompt_tokens=optional(U32),
    reasoning_tokens=optional(U32),
)
INDEXES = optional(st.integers(-1, 3))
BODIES: st.SearchStrategy[EventBody] = (
    st.builds(
        Tokens,
        index=INDEXES,
        token_ids=st.lists(U32, max_size=30),
        text=TEXTS,
        details=optional(st.lists(details(optional(LOGPROBS)), max_size=3).map(tuple)),
    )
    | st.builds(Finished, index=INDEXES, reason=st.sampled_from(FinishReason), message=TEXTS, match=MATCHES)
    | st.builds(
        Fault, code=st.sampled_from(FaultCode), message=TEXTS, retryable=st.booleans(), retry_after_ms=optional(U32)
    )
    | st.builds(PromptScored, tokens=st.lists(details(optional(LOGPROBS)), max_size=2).map(tuple))
    | st.builds(
        PrefillReady, session=optional(st.just(KvSession(session_id="s", transfer_backend="b", dp_rank=0, wire=b"")))
    )
    | st.just(Empty())
)
EVENTS: st.SearchStrategy[Event] = st.builds(Event, st.just(ID) | TEXTS, BODIES, optional(USAGES))


@st.composite
def corrupted(draw: st.DrawFn, of: GenerateCall) -> list[Event]:
    events = draw(streams(of))
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(events)))
        action = draw(st.sampled_from(["insert", "drop", "repeat", "move"]))
        if action == "insert":
            events.insert(position, draw(EVENTS))
        elif action == "repeat":
            events[position:position] = events[position : position + 1]
        elif action == "move":
            events = events[position:] + events[:position]
        else:
            del events[position : position + 1]
    return events

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import attrgetter
from typing import Any

import grpc
import pytest

from openengine_sidecar.launch.engine import EngineOptions
from openengine_sidecar.launch.engine.features import FEATURES, granted
from openengine_sidecar.messages.errors import ConfigurationError
from openengine_sidecar.proto.rev2 import engine_pb2, generation_pb2, input_pb2, lora_pb2, model_pb2
from tests.engine.caller import Answer, Caller, Request, ask, serving

URL = {"modality": "MODALITY_IMAGE", "url": "http://x/"}
GUIDES: dict[str, Any] = {
    "json_schema": "{}",
    "json_object": {},
    "regex": "a",
    "ebnf_grammar": 'root ::= "yes"',
    "choice": {"choices": ["a"]},
    "structural_tag": "{}",
}
SELECTIONS: dict[str, Any] = {"top_n": 1, "token_ids": {"ids": [1]}, "all": {}}
SOURCES: dict[str, Any] = {"url": "http://x/", "data_uri": "data:,x", "raw_bytes": b"x"}

Says = Callable[[model_pb2.ModelInfo], bool]


def true(path: str) -> Says:
    return lambda info: bool(attrgetter(path)(info))


def listed(path: str, number: int) -> Says:
    return lambda info: number in attrgetter(path)(info)


def asking() -> Iterator[tuple[str, dict[str, Any], Says]]:
    """For each row of the table: a request that asks for it, and whether ModelInfo says that it is there."""
    yield "text_input", {}, true("supports_text_input")
    yield "token_ids_input", {}, true("supports_token_ids_input")
    yield "num_sequences", {"sampling": {"num_sequences": 2}}, lambda info: info.generation.max_num_sequences > 1
    yield "priority", {"priority": 0}, true("generation.supports_priority")
    include = {"stopping": {"include_stop_in_output": True}}
    yield "stop_in_output", include, true("generation.supports_stop_in_output")
    yield "cache_salt", {"kv": {"cache_salt": "s"}}, true("generation.supports_cache_salt")
    bypass = {"kv": {"bypass_prefix_cache": True}}
    yield "prefix_cache_bypass", bypass, true("generation.supports_prefix_cache_bypass")
    yield "lora", {"lora_name": "a"}, true("supports_lora")
    for kind, guide in GUIDES.items():
        number = model_pb2.GuidedDecodingMode.Value(f"GUIDED_DECODING_MODE_{kind.upper()}")
        yield f"guided_{kind}", {"guided": {kind: guide}}, listed("generation.guided_decoding.modes", number)
    yield from asking_for_logprobs()
    yield from asking_for_media()


def asking_for_logprobs() -> Iterator[tuple[str, dict[str, Any], Says]]:
    for side in ("prompt", "output"):
        owner, asked = f"generation.{side}_logprobs", {f"return_{side}_logprobs": True}
        yield f"{side}_logprobs", {"response": asked}, true(f"{owner}.supported")
        for mode, selection in SELECTIONS.items():
            number = model_pb2.CandidateTokenSelectionMode.Value(f"CANDIDATE_TOKEN_SELECTION_MODE_{mode.upper()}")
            response = {**asked, f"{side}_candidates": {mode: selection}}
            yield f"{side}_{mode}", {"response": response}, listed(f"{owner}.candidate_selection_modes", number)


def asking_for_media() -> Iterator[tuple[str, dict[str, Any], Says]]:
    owner = "multimodal_capabilities"
    yield "multimodal", {"media": [URL]}, true("supports_multimodal")
    yield "media_options", {"media_options": {"a": 1}}, true(f"{owner}.supports_per_request_media_options")
    for kind in ("image", "video", "audio"):
        number = input_pb2.Modality.Value(f"MODALITY_{kind.upper()}")
        media = [{"modality": number, "url": "http://x/"}]
        yield f"media_{kind}", {"media": media}, listed(f"{owner}.aggregate_modalities", number)
    for kind, source in SOURCES.items():
        number = input_pb2.MediaSourceType.Value(f"MEDIA_SOURCE_TYPE_{kind.upper()}")
        media = [{"modality": "MODALITY_IMAGE", kind: source}]
        yield f"media_{kind}", {"media": media}, listed(f"{owner}.source_types", number)


ASKING = {name: (fields, says) for name, fields, says in asking()}
ROWS = [feature.name for feature in FEATURES if feature.name != "data_parallel_rank"]


def asking_for(name: str) -> Request:
    fields = ASKING[name][0]
    return Request(request_id="r", prompt="hi") if name == "text_input" else ask("hi", **fields)


async def model_info(caller: Caller) -> model_pb2.ModelInfo:
    info: model_pb2.ModelInfo = await caller.unary("GetModelInfo", model_pb2.GetModelInfoRequest(), model_pb2.ModelInfo)
    return info


async def load_adapter(caller: Caller) -> None:
    adapter = lora_pb2.LoraAdapter(lora_name="a", lora_id=1, source_path="/a")
    with suppress(grpc.aio.AioRpcError):  # which an engine without adapters refuses
        await caller.unary("LoadLora", lora_pb2.LoadLoraRequest(adapter=adapter), lora_pb2.LoadLoraResponse)


async def agreement(caller: Caller, name: str) -> tuple[bool, Answer]:
    await load_adapter(caller)
    advertised = ASKING[name][1](await model_info(caller))
    return advertised, await caller.generate(asking_for(name))


def test_every_row_is_asked_for() -> None:
    assert sorted(ASKING) == sorted(ROWS)


@pytest.mark.parametrize("name", ROWS)
async def test_advertised_is_honoured(caller: Caller, name: str) -> None:
    advertised, answer = await agreement(caller, name)
    assert advertised == (answer.status is grpc.StatusCode.OK)
    if not advertised:
        assert answer.status is grpc.StatusCode.UNIMPLEMENTED
        assert name in answer.reason


@pytest.mark.parametrize("name", ROWS)
async def test_denied_is_refused_and_said(name: str) -> None:
    async with serving(without=frozenset({name})) as (engine, caller):
        advertised, answer = await agreement(caller, name)
        assert not advertised
        assert answer.status is grpc.StatusCode.UNIMPLEMENTED
        assert name in answer.reason
        assert not answer.events
        assert engine.stats.requests == 0
        assert engine.stats.refused == {"UNIMPLEMENTED": 1}


@pytest.mark.parametrize("name", sorted(set(ROWS) - {"token_ids_input"}))
async def test_a_minimal_engine_says_nothing_and_serves_plain_text(name: str) -> None:
    async with serving(minimal=True) as (_, caller):
        advertised, answer = await agreement(caller, name)
        assert not advertised
        assert answer.status is grpc.StatusCode.UNIMPLEMENTED
        info = await model_info(caller)
        assert {field.name for field, _ in info.ListFields()} == {
            "model_id",
            "served_model_name",
            "supports_token_ids_input",
        }
        assert (await caller.generate(ask("hi"))).text() == 'You said: "hi".'


async def test_what_is_built_in_a_full_engine() -> None:
    missing = {feature.name for feature in FEATURES} - granted(EngineOptions())
    assert missing == {"guided_structural_tag"}


async def test_ranks_are_advertised_and_enforced() -> None:
    async with serving(data_parallel_size=2, data_parallel_start_rank=4) as (_, caller):
        info = await caller.unary("GetEngineInfo", engine_pb2.GetEngineInfoRequest(), engine_pb2.EngineInfo)
        assert (info.parallelism.data_parallel_size, info.parallelism.data_parallel_start_rank) == (2, 4)
        statuses = [(await caller.generate(ask(kv={"data_parallel_rank": rank}))).status for rank in (3, 4, 5, 6)]
    ok, bad = grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT
    assert statuses == [bad, ok, ok, bad]


async def test_ranks_are_neither_advertised_nor_taken_when_denied() -> None:
    async with serving(minimal=True) as (_, caller):
        info = await caller.unary("GetEngineInfo", engine_pb2.GetEngineInfoRequest(), engine_pb2.EngineInfo)
        assert not info.HasField("parallelism")
        answer = await caller.generate(ask(kv={"data_parallel_rank": 0}))
    assert answer.status is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("side", ["prompt", "output"])
async def test_max_top_n_is_enforced_as_advertised(side: str) -> None:
    async with serving(max_top_n=3) as (_, caller):
        capabilities = getattr((await model_info(caller)).generation, f"{side}_logprobs")
        assert capabilities.max_top_n == 3
        selections = [{f"return_{side}_logprobs": True, f"{side}_candidates": {"top_n": n}} for n in (3, 4)]
        statuses = [(await caller.generate(ask(response=selection))).status for selection in selections]
    assert statuses == [grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT]


async def test_max_num_sequences_is_enforced_as_advertised() -> None:
    async with serving(max_num_sequences=3) as (_, caller):
        assert (await model_info(caller)).generation.max_num_sequences == 3
        statuses = [(await caller.generate(ask(sampling={"num_sequences": n}))).status for n in (3, 4)]
    assert statuses == [grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT]


async def test_context_and_output_limits_are_enforced_as_advertised() -> None:
    async with serving(max_context_length=30, max_output_tokens=20) as (_, caller):
        info = await model_info(caller)
        assert (info.max_context_length, info.max_output_tokens) == (30, 20)
        short = [(await caller.generate(ask("hi", stopping={"max_tokens": n}))).status for n in (20, 21)]
        long = [(await caller.generate(ask("x" * 16, stopping={"max_tokens": n}))).status for n in (10, 11)]
    assert short == long == [grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT]


async def test_absent_is_not_zero(caller: Caller) -> None:
    info = await model_info(caller)
    assert not info.HasField("max_output_tokens")
    assert not info.HasField("max_batched_tokens")
    assert info.HasField("supports_lora")


def test_unknown_features_are_named() -> None:
    with pytest.raises(ConfigurationError, match="telepathy"):
        granted(EngineOptions(without=frozenset({"telepathy"})))


def test_guides_and_selections_of_the_schema_are_all_rows() -> None:
    names = {feature.name for feature in FEATURES}
    guides = generation_pb2.GuidedDecoding.DESCRIPTOR.oneofs_by_name["guide"].fields
    assert {f"guided_{field.name}" for field in guides} <= names
    selections = generation_pb2.CandidateTokenSelection.DESCRIPTOR.oneofs_by_name["selection"].fields
    assert {f"output_{field.name}" for field in selections} <= names
    sources = input_pb2.MediaItem.DESCRIPTOR.oneofs_by_name["source"].fields
    assert {f"media_{field.name}" for field in sources} <= names

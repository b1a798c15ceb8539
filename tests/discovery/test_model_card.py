from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from blake3 import blake3
from msgspec import UNSET

from openengine_sidecar.actors.config import ModelConfig, WorkerIdentity
from openengine_sidecar.actors.discovery import model_card
from openengine_sidecar.actors.discovery.model_card import DEFAULT_BLOCK_SIZE, build_card, served_name
from openengine_sidecar.actors.discovery.model_files import ModelFiles, read_model_files
from openengine_sidecar.messages.dynamo.records import encode_record
from openengine_sidecar.messages.engine.discovery import Discovery, Limits, Parallelism, Role
from openengine_sidecar.messages.errors import ConfigurationError

REQUIRED = ("config.json", "tokenizer.json", "tokenizer_config.json")
IDENTITY = WorkerIdentity(instance_id=255, namespace="ns", component="backend", endpoint="generate")
DISCOVERY = Discovery(
    dialect="rev2",
    engine_name="reference",
    engine_version="1",
    instance_id="engine-1",
    schema_revision=2,
    minimum_client_revision=2,
    schema_release="",
    role=Role.AGGREGATED,
    supported_models=("org/toy",),
    model_id="org/toy",
    served_model_name="Toy/Model.1",
    limits=Limits(
        max_context_length=4096,
        kv_block_size=32,
        total_kv_blocks=1000,
        max_running_requests=64,
        max_batched_tokens=8192,
    ),
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "toy"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"model_type": "toy", "max_position_embeddings": 8192}))
    (directory / "tokenizer.json").write_text("{}")
    (directory / "tokenizer_config.json").write_text('{"a": 1}')
    return directory


@pytest.fixture
def config(directory: Path) -> ModelConfig:
    return ModelConfig(path=directory)


async def record(config: ModelConfig, discovery: Discovery = DISCOVERY, role: Role = Role.AGGREGATED) -> dict[str, Any]:
    built = await build_card(config, discovery, role, IDENTITY)
    decoded: dict[str, Any] = msgspec.json.decode(encode_record(built))
    return decoded


async def card(config: ModelConfig, discovery: Discovery = DISCOVERY, role: Role = Role.AGGREGATED) -> dict[str, Any]:
    found: dict[str, Any] = (await record(config, discovery, role))["card_json"]
    return found


def with_limits(**changes: Any) -> Discovery:
    return msgspec.structs.replace(DISCOVERY, limits=msgspec.structs.replace(DISCOVERY.limits, **changes))


async def test_a_record_says_whose_card_it_is(config: ModelConfig) -> None:
    found = await record(config)
    del found["card_json"]
    assert found == {
        "type": "Model",
        "namespace": "ns",
        "component": "backend",
        "endpoint": "generate",
        "instance_id": 255,
    }


async def test_a_card_has_all_that_the_frontend_requires(config: ModelConfig, directory: Path) -> None:
    tokenizer = directory / "tokenizer.json"
    found = await card(config)
    assert found["display_name"] == "Toy/Model.1"
    assert found["slug"] == "toy_model_1"
    assert found["source_path"] == str(directory)
    assert (found["kv_cache_block_size"], found["migration_limit"]) == (32, 0)
    assert (found["model_type"], found["model_input"]) == ("Chat | Completions", "Tokens")
    assert (found["worker_type"], found["needs"]) == ("aggregated", [])
    assert found["tokenizer"]["hf_tokenizer_json"] == {
        "path": str(tokenizer),
        "checksum": "blake3:" + blake3(tokenizer.read_bytes()).hexdigest(),
        "size": tokenizer.stat().st_size,
    }
    assert found["model_info"]["hf_config_json"]["path"] == str(directory / "config.json")
    assert found["prompt_formatter"]["hf_tokenizer_config_json"]["path"] == str(directory / "tokenizer_config.json")


async def test_files_that_a_model_lacks_are_left_out(config: ModelConfig) -> None:
    found = await card(config)
    assert not {"gen_config", "chat_template_file", "aliases", "lora", "user_data"} & found.keys()


async def test_optional_files_are_listed(config: ModelConfig, directory: Path) -> None:
    (directory / "generation_config.json").write_text("{}")
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    found = await card(config)
    assert found["gen_config"]["hf_generation_config_json"]["path"] == str(directory / "generation_config.json")
    template = found["chat_template_file"]["hf_chat_template"]
    assert (template["is_custom"], template["file"]["path"]) == (False, str(directory / "chat_template.jinja"))


async def test_a_custom_template_takes_the_place_of_the_models(
    config: ModelConfig, directory: Path, tmp_path: Path
) -> None:
    (directory / "chat_template.jinja").write_text("theirs")
    (tmp_path / "mine.jinja").write_text("mine")
    found = await card(replace(config, custom_template=tmp_path / "mine.jinja"))
    template = found["chat_template_file"]["hf_chat_template"]
    assert (template["is_custom"], template["file"]["path"]) == (True, str(tmp_path / "mine.jinja"))


async def test_what_the_engine_reports_becomes_the_runtime_configuration(config: ModelConfig) -> None:
    found = (await card(config))["runtime_config"]
    assert found["context_length"] == 4096
    assert (found["total_kv_blocks"], found["max_num_seqs"], found["max_num_batched_tokens"]) == (1000, 64, 8192)
    assert (found["data_parallel_start_rank"], found["data_parallel_size"]) == (0, 1)
    assert found["exclude_tools_when_tool_choice_none"] is True
    assert found["enable_local_indexer"] is False


async def test_an_engine_that_reports_no_sizes_still_gets_a_card(config: ModelConfig) -> None:
    found = await card(config, msgspec.structs.replace(DISCOVERY, limits=Limits()))
    assert found["kv_cache_block_size"] == DEFAULT_BLOCK_SIZE
    assert found["runtime_config"]["total_kv_blocks"] is None
    assert found["runtime_config"]["max_num_seqs"] is None


@pytest.mark.parametrize(
    ("configured", "reported", "shown"), [(1024, 4096, 1024), (None, 4096, 4096), (None, None, 8192)]
)
async def test_the_context_length_is_the_operators_else_the_engines_else_the_models(
    config: ModelConfig, configured: int | None, reported: int | None, shown: int
) -> None:
    found = await card(replace(config, context_length=configured), with_limits(max_context_length=reported))
    assert found["context_length"] == found["runtime_config"]["context_length"] == shown
    assert found["architectural_max_context_length"] == 8192


async def test_a_context_length_that_nobody_knows_is_left_out(config: ModelConfig, directory: Path) -> None:
    (directory / "config.json").write_text("{}")
    found = await card(config, with_limits(max_context_length=None))
    assert "context_length" not in found
    assert "architectural_max_context_length" not in found
    assert "context_length" not in found["runtime_config"]


@pytest.mark.parametrize(
    ("role", "stage", "needs", "model_type"),
    [
        (Role.AGGREGATED, "aggregated", [], "Chat | Completions"),
        (Role.PREFILL, "prefill", [["decode"]], "Prefill"),
        (Role.DECODE, "decode", [["prefill"]], "Chat | Completions"),
    ],
)
async def test_a_role_is_a_stage_that_needs_its_peers(
    config: ModelConfig, role: Role, stage: str, needs: list[list[str]], model_type: str
) -> None:
    found = await card(config, role=role)
    assert (found["worker_type"], found["needs"], found["model_type"]) == (stage, needs, model_type)


@pytest.mark.parametrize(
    ("parallelism", "start", "size"),
    [
        (Parallelism(), 0, 1),
        (Parallelism(data=4), 0, 4),
        (Parallelism(data=3, data_start_rank=2), 2, 3),
        (Parallelism(data=8, data_rank=5), 5, 1),
        (Parallelism(data=8, data_rank=0), 0, 1),
    ],
)
async def test_ranks_are_those_that_the_endpoint_serves(
    config: ModelConfig, parallelism: Parallelism, start: int, size: int
) -> None:
    found = (await card(config, msgspec.structs.replace(DISCOVERY, parallelism=parallelism)))["runtime_config"]
    assert (found["data_parallel_start_rank"], found["data_parallel_size"]) == (start, size)


async def test_parsers_are_the_operators_else_the_engines(config: ModelConfig) -> None:
    engine = msgspec.structs.replace(DISCOVERY, tool_call_parser="hermes", reasoning_parser="")
    found = (await card(config, engine))["runtime_config"]
    assert (found["tool_call_parser"], found["reasoning_parser"]) == ("hermes", None)
    found = (await card(replace(config, tool_call_parser="mistral", reasoning_parser="qwen3"), engine))[
        "runtime_config"
    ]
    assert (found["tool_call_parser"], found["reasoning_parser"]) == ("mistral", "qwen3")


async def test_tools_stay_in_the_prompt_when_the_operator_says_so(config: ModelConfig) -> None:
    found = await card(replace(config, exclude_tools_when_tool_choice_none=False))
    assert found["runtime_config"]["exclude_tools_when_tool_choice_none"] is False


async def test_aliases_are_told_once_and_never_repeat_the_name(config: ModelConfig) -> None:
    found = await card(replace(config, aliases=("b", "a", "b", "Toy/Model.1")))
    assert found["aliases"] == ["b", "a"]


@pytest.mark.parametrize(
    ("configured", "served", "shown"),
    [("mine", "theirs", "mine"), (None, "theirs", "theirs"), (None, "", "org/toy")],
)
def test_a_model_is_served_under_the_first_name_there_is(configured: str | None, served: str, shown: str) -> None:
    discovery = msgspec.structs.replace(DISCOVERY, served_model_name=served)
    assert served_name(ModelConfig(path=Path(), served_name=configured), discovery) == shown


@pytest.mark.parametrize(("types", "shown"), [(("completions",), "Completions"), (("chat", "chat"), "Chat")])
async def test_endpoint_types_choose_what_clients_may_ask(
    config: ModelConfig, types: tuple[str, ...], shown: str
) -> None:
    assert (await card(replace(config, endpoint_types=types)))["model_type"] == shown


@pytest.mark.parametrize("types", [(), ("chat", "telepathy")])
async def test_unknown_endpoint_types_are_refused(config: ModelConfig, types: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="chat, completions") as caught:
        await build_card(replace(config, endpoint_types=types), DISCOVERY, Role.AGGREGATED, IDENTITY)
    assert caught.value.option == "--endpoint-types"


@pytest.mark.parametrize("name", REQUIRED)
async def test_a_missing_file_is_named(config: ModelConfig, directory: Path, name: str) -> None:
    (directory / name).unlink()
    with pytest.raises(ConfigurationError, match="is missing") as caught:
        await card(config)
    assert caught.value.option == str(directory / name)


@pytest.mark.parametrize("name", [*REQUIRED, "generation_config.json", "chat_template.jinja"])
async def test_a_file_that_cannot_be_read_is_named(config: ModelConfig, directory: Path, name: str) -> None:
    (directory / name).unlink(missing_ok=True)
    (directory / name).mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory") as caught:
        await card(config)
    assert caught.value.option == str(directory / name)


async def test_a_missing_directory_is_named(config: ModelConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a model directory") as caught:
        await card(replace(config, path=tmp_path / "nowhere"))
    assert caught.value.option == str(tmp_path / "nowhere")


async def test_a_missing_custom_template_is_named(config: ModelConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is missing") as caught:
        await card(replace(config, custom_template=tmp_path / "no.jinja"))
    assert caught.value.option == str(tmp_path / "no.jinja")


@pytest.mark.parametrize("text", ["{", "[]", '{"max_position_embeddings": "many"}'])
async def test_a_configuration_that_makes_no_sense_is_named(config: ModelConfig, directory: Path, text: str) -> None:
    (directory / "config.json").write_text(text)
    with pytest.raises(ConfigurationError, match="is not a model configuration") as caught:
        await card(config)
    assert caught.value.option == str(directory / "config.json")


def test_a_multimodal_models_limit_stands_in_its_language_part(directory: Path) -> None:
    (directory / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": 512}}))
    assert read_model_files(directory).max_positions == 512


@pytest.mark.parametrize("limit", [None, 0, -1])
def test_a_model_without_a_limit_has_none(directory: Path, limit: int | None) -> None:
    (directory / "config.json").write_text(json.dumps({"max_position_embeddings": limit}))
    assert read_model_files(directory).max_positions is UNSET


def test_relative_paths_become_absolute(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory.parent)
    assert read_model_files(Path("toy")).tokenizer.path == str(directory / "tokenizer.json")


async def test_hashing_leaves_the_event_loop_free(config: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    loop_went_on = threading.Event()

    def slowly(directory: Path, custom_template: Path | None) -> ModelFiles:
        assert loop_went_on.wait(30)
        return read_model_files(directory, custom_template)

    monkeypatch.setattr(model_card, "read_model_files", slowly)
    building = asyncio.create_task(build_card(config, DISCOVERY, Role.AGGREGATED, IDENTITY))
    await asyncio.sleep(0)
    loop_went_on.set()
    assert (await building).name == "Toy/Model.1"

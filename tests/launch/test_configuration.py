from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import click
import msgspec
import pytest

from openengine_sidecar.actors.config import SidecarConfig
from openengine_sidecar.actors.reporter import extras
from openengine_sidecar.launch.configuration import (
    default_lora_cache,
    default_store,
    draw_instance_id,
    sidecar_config,
    with_suffix,
)
from openengine_sidecar.launch.options import SERVE_SETTINGS
from openengine_sidecar.launch.options.setting import SECTIONS, Setting
from openengine_sidecar.launch.serve_command import serve
from openengine_sidecar.messages.engine.discovery import Role
from openengine_sidecar.messages.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("clean_environment")

MADE_HERE = {
    "identity.instance_id",
    "identity.component_by_role",
    "lora.limits",
    "lora.max_waiting",
    "lora.transfer",
}

OTHER_VALUES = {
    "number": "7",
    "tokens": "4097",
    "secs": "7.5",
    "bytes": "3MiB",
    "name": "elsewhere",
    "path": "/elsewhere",
    "host:port": "elsewhere:1",
    "url,...": "nats://elsewhere:1,nats://elsewhere:2",
    "text": "elsewhere",
    "text,...": "one,two",
    "type,...": "chat",
    "auto|required|off": "off",
    "agg|prefill|decode": "decode",
    "port": "8081",
}


def leaves() -> Iterator[str]:
    for section, kind in SECTIONS.items():
        for field in dataclasses.fields(kind):
            yield f"{section}.{field.name}"


def setting_of(path: str) -> Setting:
    (setting,) = [setting for setting in SERVE_SETTINGS if path in setting.fields]
    return setting


def value_at(config: SidecarConfig, path: str) -> Any:
    section, _, name = path.partition(".")
    return getattr(getattr(config, section), name)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    return path


@pytest.fixture
def required(model: Path) -> tuple[str, ...]:
    return ("--grpc-endpoint", "engine:50051", "--model-path", str(model))


def parse(*arguments: str) -> SidecarConfig:
    return sidecar_config(serve.make_context("serve", list(arguments)).params)


def other_value(setting: Setting, tmp_path: Path) -> str:
    if setting.is_flag:
        return "true"
    if setting.type.name == "true|false":
        return "false" if setting.default_text == "true" else "true"
    if setting.type.name in {"directory", "file"}:
        path = tmp_path / "elsewhere"
        path.touch() if setting.type.name == "file" else path.mkdir()
        return str(path)
    return OTHER_VALUES[setting.type.name]


def test_the_required_settings_are_enough_and_leave_every_default(model: Path, required: tuple[str, ...]) -> None:
    config = parse(*required)
    identity = config.identity
    assert config == SidecarConfig(
        identity=identity,
        engine=SECTIONS["engine"](endpoint="engine:50051"),
        model=SECTIONS["model"](path=model),
        discovery=SECTIONS["discovery"](root=default_store()),
        lora=SECTIONS["lora"](cache=default_lora_cache()),
    )
    assert (identity.namespace, identity.component, identity.endpoint) == ("dynamo", "backend", "generate")


@pytest.mark.parametrize("path", [path for path in leaves() if path not in MADE_HERE])
def test_every_field_is_reached_by_flag_and_by_variable(
    path: str, required: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = setting_of(path)
    value = other_value(setting, tmp_path)
    flag = setting.opts[0]
    by_flag = parse(*required, flag) if setting.is_flag else parse(*required, flag, value)
    for variable in setting.variables:
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            arguments = [
                entry for pair in zip(required[::2], required[1::2], strict=True) if pair[0] != flag for entry in pair
            ]
            by_variable = parse(*arguments)
        assert value_at(by_variable, path) == value_at(by_flag, path)
    assert value_at(by_flag, path) != value_at(parse(*required), path)


@pytest.mark.parametrize("path", list(leaves()))
def test_values_have_the_types_that_the_configuration_declares(
    path: str, required: tuple[str, ...], tmp_path: Path
) -> None:
    arguments = [] if path in MADE_HERE else [setting_of(path).opts[0]]
    if arguments and not setting_of(path).is_flag:
        arguments.append(other_value(setting_of(path), tmp_path))
    section, _, name = path.partition(".")
    declared = get_type_hints(SECTIONS[section])[name]
    msgspec.convert(value_at(parse(*required, *arguments), path), declared, strict=True)


def test_each_setting_fills_fields_that_exist() -> None:
    named = [path for setting in SERVE_SETTINGS for path in setting.fields]
    assert sorted(named) == sorted(set(leaves()) - MADE_HERE)


@pytest.mark.parametrize(
    ("arguments", "component"),
    [
        ((), "prefill"),
        (("--component", "backend"), "backend"),
        (("--component", "elsewhere"), "elsewhere"),
    ],
)
def test_a_component_left_at_its_default_follows_the_role(
    required: tuple[str, ...], arguments: tuple[str, ...], component: str
) -> None:
    identity = parse(*required, *arguments).identity
    assert identity.serving(Role.PREFILL).component == component
    assert identity.serving(Role.DECODE) == identity.serving(Role.AGGREGATED) == identity.serving(None) == identity


def test_the_address_of_the_s3_service_reaches_transfers(
    required: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parse(*required).lora.transfer.s3_endpoint is None
    monkeypatch.setenv("AWS_ENDPOINT", "http://s3.example:9000")
    assert parse(*required).lora.transfer.s3_endpoint == "http://s3.example:9000"


def test_a_flag_wins_over_its_variable(required: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYN_NAMESPACE", "from-variable")
    assert parse(*required).identity.namespace == "from-variable"
    assert parse(*required, "--namespace", "from-flag").identity.namespace == "from-flag"


def test_an_empty_variable_counts_as_unset(required: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = parse(*required)
    for setting in SERVE_SETTINGS:
        for variable in setting.variables:
            monkeypatch.setenv(variable, "")
    assert dataclasses.replace(parse(*required), identity=plain.identity) == plain


@pytest.mark.parametrize(
    ("namespace", "suffix", "expected"),
    [
        ("dynamo", "abc", "dynamo-abc"),
        ("dynamo-abc", "abc", "dynamo-abc"),
        ("dynamoabc", "abc", "dynamoabc-abc"),
    ],
)
def test_the_worker_suffix_is_appended_once(
    namespace: str, suffix: str, expected: str, required: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert with_suffix(namespace, suffix) == expected
    monkeypatch.setenv("DYN_NAMESPACE_WORKER_SUFFIX", suffix)
    assert parse(*required, "--namespace", namespace).identity.namespace == expected


def test_the_worker_suffix_also_goes_to_the_default_namespace(required: tuple[str, ...]) -> None:
    assert parse(*required, "--namespace-worker-suffix", "x1").identity.namespace == "dynamo-x1"


def test_each_life_draws_its_own_positive_63_bit_id(required: tuple[str, ...]) -> None:
    drawn = {draw_instance_id() for _ in range(64)} | {parse(*required).identity.instance_id for _ in range(4)}
    assert len(drawn) == 68
    assert all(0 < number < 2**63 for number in drawn)


def test_the_store_is_where_dynamo_looks(required: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere")
    assert parse(*required).discovery.root == Path("/somewhere/dynamo_store_kv")
    monkeypatch.delenv("TMPDIR")
    assert parse(*required).discovery.root == Path("/tmp/dynamo_store_kv")  # noqa: S108 - Dynamo's default


def test_the_role_is_discovered_unless_given(required: tuple[str, ...]) -> None:
    assert parse(*required).engine.role is None
    assert parse(*required, "--disaggregation-mode", "agg").engine.role is Role.AGGREGATED


def test_minus_one_turns_the_system_port_off(required: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYN_SYSTEM_PORT", "-1")
    assert parse(*required).reporter.port is None
    assert parse(*required, "--system-port", "0").reporter.port == 0


def test_a_system_port_needs_the_extra(required: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    assert parse(*required).reporter.port is None
    with pytest.raises(ConfigurationError, match=r"--system-port \(DYN_SYSTEM_PORT\): needs aiohttp"):
        parse(*required, "--system-port", "8081")


def test_a_heartbeat_slower_than_the_time_to_live_is_refused(required: tuple[str, ...]) -> None:
    with pytest.raises(
        ConfigurationError, match=r"--file-kv-heartbeat-secs \(DYN_SIDECAR_FILE_KV_HEARTBEAT_SECS\): 10 s"
    ):
        parse(*required, "--file-kv-heartbeat-secs", "10")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--system-live-path", "/health"),
        ("--system-health-path", "/metrics"),
        ("--system-live-path", "/actors"),
    ],
)
def test_two_things_cannot_share_a_path(required: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="already serves something else"):
        parse(*required, *arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--route-to-encoder",), "no encode workers"),
        (("--enable-rl",), "weight updates"),
        (("--dynamo-request-queue-limit", "16"), "none is queued"),
        (("--dyn-default-thinking-mode", "enabled"), "no thinking mode"),
    ],
)
def test_what_dynamo_knows_and_this_release_does_not_is_refused(
    required: tuple[str, ...], arguments: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(click.BadParameter, match=f"not supported in this release: .*{problem}"):
        parse(*required, *arguments)


@pytest.mark.parametrize("variable", ["DYN_ROUTE_TO_ENCODER", "DYN_ENABLE_RL"])
def test_a_refused_switch_may_be_set_to_false(
    variable: str, required: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "false")
    parse(*required)
    monkeypatch.setenv(variable, "true")
    with pytest.raises(click.BadParameter, match="not supported in this release"):
        parse(*required)

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from openengine_sidecar import __version__
from openengine_sidecar.actors.config import SidecarConfig
from openengine_sidecar.launch import cli, logs, serve_command
from openengine_sidecar.launch.logs import LogOptions
from openengine_sidecar.messages.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("clean_environment")

HEADINGS = [
    "Engine:",
    "Model:",
    "Worker identity:",
    "Planes:",
    "Requests and limits:",
    "Health:",
    "Shutdown:",
    "Logging:",
]
REFUSALS = {
    ("--grpc-connections", "0"): "DYN_SIDECAR_GRPC_CONNECTIONS",
    ("--grpc-connect-attempt-timeout-secs", "0"): "DYN_SIDECAR_GRPC_CONNECT_ATTEMPT_TIMEOUT_SECS",
    ("--grpc-retry-interval-secs", "0"): "DYN_SIDECAR_GRPC_RETRY_INTERVAL_SECS",
    ("--grpc-startup-deadline-secs", "0"): "DYN_SIDECAR_GRPC_STARTUP_DEADLINE_SECS",
    ("--discovery-backend", "etcd"): "DYN_DISCOVERY_BACKEND",
    ("--request-plane", "tcp"): "DYN_REQUEST_PLANE",
    ("--disaggregation-mode", "encode"): "DYN_DISAGGREGATION_MODE",
    ("--engine-request-limit", "0"): "DYN_ENGINE_REQUEST_LIMIT",
    ("--endpoint-types", "embeddings"): "DYN_ENDPOINT_TYPES",
    ("--log-filter", "loud"): "DYN_LOG",
}


@pytest.fixture
def required(tmp_path: Path) -> list[str]:
    return ["serve", "--grpc-endpoint", "engine:50051", "--model-path", str(tmp_path)]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[SidecarConfig | LogOptions]:
    seen: list[SidecarConfig | LogOptions] = []
    stand_in = ModuleType("openengine_sidecar.launch.serve")

    def run(config: SidecarConfig) -> int:
        seen.append(config)
        return 7

    monkeypatch.setattr(stand_in, "run", run, raising=False)
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    monkeypatch.setattr(logs, "configure", seen.append)
    return seen


def one_line(captured: str) -> str:
    (line,) = captured.splitlines()
    return line


def test_serve_sets_up_logging_then_runs_and_returns_its_exit_code(
    required: list[str], served: list[SidecarConfig | LogOptions]
) -> None:
    assert cli.run([*required, "--log-format", "json", "--namespace", "blue"]) == 7
    options, config = served
    assert isinstance(options, LogOptions)
    assert options.json
    assert isinstance(config, SidecarConfig)
    assert config.identity.namespace == "blue"


@pytest.mark.parametrize("arguments", REFUSALS)
def test_bad_usage_is_one_line_that_names_flag_and_variable(
    arguments: tuple[str, str],
    required: list[str],
    served: list[SidecarConfig | LogOptions],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run([*required, *arguments]) == 2
    line = one_line(capsys.readouterr().err)
    assert line.startswith("openengine-sidecar serve: ")
    assert arguments[0] in line
    assert REFUSALS[arguments] in line
    assert served == []


def test_the_same_value_in_the_variable_is_refused_in_the_same_way(
    required: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for (flag, value), variable in REFUSALS.items():
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            assert cli.run(required) == 2
        by_variable = one_line(capsys.readouterr().err)
        assert cli.run([*required, flag, value]) == 2
        assert one_line(capsys.readouterr().err) == by_variable


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["serve"], "--grpc-endpoint"),
        (["serve", "--grpc-endpoint", "engine:1"], "--model-path"),
        (["serve", "--nonsense"], "--nonsense"),
        (["nonsense"], "nonsense"),
    ],
)
def test_what_is_missing_or_unknown_is_named(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    assert problem in one_line(capsys.readouterr().err)


def test_settings_that_contradict_each_other_are_bad_usage(
    required: list[str], served: list[SidecarConfig | LogOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*required, "--system-live-path", "/health"]) == 2
    assert "--system-live-path (DYN_SYSTEM_LIVE_PATH): /health" in one_line(capsys.readouterr().err)
    assert served == []


def test_a_configuration_error_from_below_is_one_line_too(
    required: list[str],
    served: list[SidecarConfig | LogOptions],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: SidecarConfig) -> int:
        option, problem = "--x", "two\nlines"
        raise ConfigurationError(option, problem)

    monkeypatch.setattr(sys.modules["openengine_sidecar.launch.serve"], "run", fail)
    assert cli.run(required) == 2
    assert one_line(capsys.readouterr().err).startswith("openengine-sidecar: --x: two lines")
    assert len(served) == 1


def test_the_help_lists_every_setting_under_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["serve", "--help"]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if line in HEADINGS] == HEADINGS
    flags = [flag for param in serve_command.serve.params for flag in param.opts]
    assert [flag for flag in flags if f"{flag} " not in text.replace("\n", " ").replace(",", " ")] == []


def test_without_a_command_the_help_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 2
    text = capsys.readouterr().err
    assert all(f"  {name} " in text for name in ("serve", "engine", "up", "tree"))


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"openengine-sidecar {__version__}\n"


def test_an_interrupt_is_not_a_traceback(
    required: list[str], served: list[SidecarConfig | LogOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: SidecarConfig) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["openengine_sidecar.launch.serve"], "run", interrupt)
    assert cli.run(required) == 130
    assert len(served) == 1


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["serve", "--grpc-connections", "0"]])
def test_help_and_bad_usage_need_no_transport(arguments: list[str]) -> None:
    script = (
        "import sys; from openengine_sidecar.launch.cli import run; run(sys.argv[1:]);"
        "print('loaded:', *{'grpc', 'nats', 'aiohttp', 'prometheus_client', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_the_module_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "openengine_sidecar", "serve", "--grpc-endpoint", "tcp://x:1", "--model-path", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert one_line(done.stderr).startswith("openengine-sidecar serve: ")

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.packaging.test_wheel import ROOT, tracked

SHEBANG = b"#!/"


def scripts() -> list[Path]:
    return [file for file in tracked() if file.suffix == ".sh" or file == Path(".ci/run")]


def shell(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", scripts(), ids=str)
def test_parses(script: Path) -> None:
    outcome = shell("bash", "-n", str(ROOT / script))
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize("script", scripts(), ids=str)
def test_is_executable_if_it_has_an_interpreter(script: Path) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK) == path.read_bytes().startswith(SHEBANG)


def test_the_two_commands_are_there() -> None:
    assert {Path("launch/demo.sh"), Path("launch/test.sh"), Path(".ci/run")} <= set(scripts())


def test_ci_runs_the_test_command_and_nothing_else() -> None:
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert lines == ['exec "$(dirname -- "$0")/../launch/test.sh"']


def test_an_example_explains_itself(tmp_path: Path) -> None:
    outcome = shell(str(ROOT / "launch/examples/aggregated.sh"), "--help", cwd=tmp_path)
    assert outcome.returncode == 0
    assert "usage: aggregated.sh" in outcome.stdout


def test_an_example_refuses_what_it_does_not_know() -> None:
    outcome = shell(str(ROOT / "launch/examples/aggregated.sh"), "--no-such-option")
    assert outcome.returncode == 2
    assert "usage: aggregated.sh" in outcome.stderr

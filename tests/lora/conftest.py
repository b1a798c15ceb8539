"""A real S3 server, and a hub made of what a test says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import boto3
import pytest

from openengine_sidecar.launch.stack.ports import free_port
from openengine_sidecar.launch.stack.process import Process, Program
from tests.lora.hub import Hub
from tests.lora.proxy import CuttingProxy
from tests.lora.s3 import S3, ServerInfo

START_SECONDS = 60.0


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerInfo]:
    port = free_port()
    argv = (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port))
    process = Process.start(Program(name="s3", argv=argv), tmp_path_factory.mktemp("s3"))
    server = ServerInfo(port)
    try:
        process.until(lambda: _answers(server), what="answer", timeout=START_SECONDS)
        yield server
    finally:
        process.stop()


@pytest.fixture
def s3(s3_server: ServerInfo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3]:
    """A bucket of this test's own, and an environment without anybody's credentials."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=s3_server.endpoint, region_name="us-east-1")
    with CuttingProxy(s3_server.port) as proxy:
        yield S3(client, proxy)
    client.close()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


def _answers(server: ServerInfo) -> bool:
    try:
        with urlopen(server.endpoint, timeout=1.0) as answer:  # noqa: S310 - loopback
            return bool(answer.status)
    except (URLError, OSError):
        return False

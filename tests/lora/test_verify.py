from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from openengine_sidecar.actors.lora.config import AdapterLimits
from openengine_sidecar.actors.lora.verify import Contents, verify
from openengine_sidecar.messages.errors import LoraRefusedError
from tests.lora.adapters import ADAPTER, CONFIG, LIMITS, WEIGHTS, write_adapter


def check(directory: Path, limits: AdapterLimits = LIMITS) -> Contents:
    return verify(directory, limits, "s3://b/a")


def refusal_of(directory: Path, limits: AdapterLimits = LIMITS) -> str:
    with pytest.raises(LoraRefusedError) as refusal:
        check(directory, limits)
    assert refusal.value.subject == "s3://b/a"
    assert str(refusal.value).isprintable()
    return refusal.value.problem


@pytest.mark.parametrize(
    "weights", ["adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt", "model.lora_weights.npy"]
)
def test_a_directory_with_configuration_and_weights_is_an_adapter(tmp_path: Path, weights: str) -> None:
    write_adapter(tmp_path, {"adapter_config.json": CONFIG, weights: WEIGHTS, "more/README.md": b"x"})
    assert check(tmp_path) == Contents(3, len(CONFIG) + len(WEIGHTS) + 1)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "no adapter_config.json"),
        ({"adapter_model.safetensors": WEIGHTS}, "no adapter_config.json"),
        ({"adapter_config.json/x": b"", "adapter_model.bin": WEIGHTS}, "no adapter_config.json"),
        ({"adapter_config.json": CONFIG}, "no weights"),
        ({"adapter_config.json": CONFIG, "adapter_model.safetensors": b""}, "no weights"),
        ({"adapter_config.json": CONFIG, "inner/adapter_model.safetensors": WEIGHTS}, "no weights"),
        ({**ADAPTER, "adapter_config.json": b""}, "not a JSON object"),
        ({**ADAPTER, "adapter_config.json": b"[]"}, "not a JSON object"),
        ({**ADAPTER, "adapter_config.json": b"null"}, "not a JSON object"),
        ({**ADAPTER, "adapter_config.json": b'{"r": 8'}, "not a JSON object"),
        ({**ADAPTER, "adapter_config.json": b"\xff\xfe{\x00}\x00"}, "not a JSON object"),
        ({**ADAPTER, "adapter_config.json": b'{"a":' * 50_000}, "not a JSON object|larger"),
        ({**ADAPTER, "adapter_config.json": b" " * 2000 + CONFIG}, "adapter_config.json is larger than 1000"),
        ({**ADAPTER, "a/b/c/d": b""}, "c lies too deep"),
        ({**ADAPTER, **{f"f{n}": b"" for n in range(7)}}, "more than 8 files"),
        ({**ADAPTER, **{f"d{n}/d": b"" for n in range(4)}}, "more than 8 files"),
        ({**ADAPTER, "big": bytes(100_000)}, "larger than 100000 bytes"),
    ],
)
def test_what_is_no_adapter_says_why(tmp_path: Path, files: dict[str, bytes], problem: str) -> None:
    write_adapter(tmp_path, files)
    limits = AdapterLimits(max_bytes=100_000, max_files=8, max_depth=2, max_config_bytes=1000)
    found = refusal_of(tmp_path, limits)
    assert any(part in found for part in problem.split("|"))


def test_a_hundred_thousand_files_are_not_even_counted(tmp_path: Path) -> None:
    write_adapter(tmp_path)
    limits = AdapterLimits(max_files=20)
    for number in range(10 * limits.max_files):
        (tmp_path / f"f{number}").touch()
    assert refusal_of(tmp_path, limits) == "has more than 20 files"


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../outside", "inner/../../outside", "missing", "loop", "/proc/self"]
)
def test_a_link_that_leads_out_or_nowhere_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").write_bytes(WEIGHTS)
    adapter = write_adapter(tmp_path / "adapter", {**ADAPTER, "inner/x": b""})
    (adapter / "loop").symlink_to(target)
    assert refusal_of(adapter) == "loop is a symbolic link that leads out of it, or nowhere"


def test_weights_that_are_a_link_out_are_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(WEIGHTS)
    adapter = write_adapter(tmp_path / "adapter", {"adapter_config.json": CONFIG})
    (adapter / "adapter_model.safetensors").symlink_to(tmp_path / "outside")
    assert "leads out" in refusal_of(adapter)


def test_a_link_that_stays_inside_is_fine_and_not_followed(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter", {"adapter_config.json": CONFIG, "inner/weights": WEIGHTS})
    (adapter / "adapter_model.safetensors").symlink_to("inner/weights")
    (adapter / "again").symlink_to("inner")
    (adapter / "inner" / "up").symlink_to("..")
    assert check(adapter) == Contents(2, len(CONFIG) + len(WEIGHTS))


def test_a_linked_directory_is_looked_at_where_it_really_is(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter")
    (tmp_path / "link").symlink_to("adapter")
    assert check(tmp_path / "link") == check(adapter)


def test_what_is_neither_file_nor_directory_is_refused_unread(tmp_path: Path) -> None:
    write_adapter(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert refusal_of(tmp_path) == "pipe is neither a file nor a directory"


def test_a_socket_is_refused(tmp_path: Path) -> None:
    write_adapter(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert refusal_of(tmp_path) == "s is neither a file nor a directory"


@pytest.mark.parametrize(("name", "problem"), [("missing", "No such file"), ("file", "Not a directory")])
def test_what_is_no_directory_says_so(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "file").touch()
    assert problem in refusal_of(tmp_path / name)


def test_a_file_name_cannot_forge_a_log_line(tmp_path: Path) -> None:
    write_adapter(tmp_path)
    os.mkfifo(os.fsencode(tmp_path) + b"/a\nb\xff")
    assert refusal_of(tmp_path) == r"a\nb\udcff is neither a file nor a directory"

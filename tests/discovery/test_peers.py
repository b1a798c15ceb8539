from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from openengine_sidecar.actors.discovery.store import new_instance_id
from openengine_sidecar.messages.dynamo.naming import EndpointId, card_key, file_name, instance_key, split_key

OWNER = Path(__file__).with_name("owner.py")
ENDPOINT = EndpointId("dynamo", "backend", "generate")

Own = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Own]:
    with ExitStack() as stack:

        def start(instance_id: int, *options: str) -> subprocess.Popen[str]:
            command = [sys.executable, str(OWNER), str(tmp_path), str(instance_id), *options]
            process = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            return process

        yield start


def line(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().strip().split(maxsplit=1)


def until(process: subprocess.Popen[str], *words: str) -> None:
    while (said := line(process)) != list(words):
        assert said, f"{process.args!r} ended without saying {words}"


def leave(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait()


def record(root: Path, key: str) -> Path:
    bucket, rest = split_key(key)
    return root / bucket / file_name(rest)


def both(root: Path, instance_id: int) -> tuple[Path, Path]:
    return record(root, instance_key(ENDPOINT, instance_id)), record(root, card_key(ENDPOINT, instance_id))


def test_f16_an_orderly_end_leaves_nothing(own: Own, tmp_path: Path) -> None:
    worker = own(1)
    until(worker, "ready")
    assert all(path.exists() for path in both(tmp_path, 1))
    assert leave(worker) == 0
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_f16_after_a_kill_the_old_records_age_and_the_new_worker_leaves_them_alone(own: Own, tmp_path: Path) -> None:
    first_id, second_id = new_instance_id(), new_instance_id()
    first = own(first_id)
    until(first, "ready")
    first.kill()
    first.wait()
    left = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in both(tmp_path, first_id)}

    second = own(second_id)
    until(second, "ready")
    for path in both(tmp_path, second_id):
        path.unlink()
    until(second, "restored", instance_key(ENDPOINT, second_id))
    until(second, "restored", card_key(ENDPOINT, second_id))
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in left} == left

    assert leave(second) == 0
    assert all(path.exists() for path in left)
    assert not any(path.exists() for path in both(tmp_path, second_id))


def test_f16_a_stopped_worker_writes_again_what_its_peers_swept_away(own: Own, tmp_path: Path) -> None:
    worker = own(7)
    until(worker, "ready")
    worker.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
    before = [path.read_bytes() for path in both(tmp_path, 7)]
    for path in both(tmp_path, 7):
        path.unlink()
    worker.send_signal(signal.SIGCONT)
    until(worker, "restored", instance_key(ENDPOINT, 7))
    until(worker, "restored", card_key(ENDPOINT, 7))
    assert [path.read_bytes() for path in both(tmp_path, 7)] == before
    assert leave(worker) == 0


def test_f16_a_worker_with_a_live_peers_id_is_refused_and_does_it_no_harm(own: Own, tmp_path: Path) -> None:
    first = own(9)
    until(first, "ready")
    inodes = [path.stat().st_ino for path in both(tmp_path, 9)]
    second = own(9)
    kind, problem = line(second)
    assert kind == "refused"
    assert "held by another live process" in problem
    assert leave(second) == 0
    assert [path.stat().st_ino for path in both(tmp_path, 9)] == inodes
    assert leave(first) == 0


def test_f16_a_full_disk_refuses_one_record_and_the_others_beat_on(own: Own, tmp_path: Path) -> None:
    worker = own(11, "full")
    kind, problem = line(worker)
    assert kind == "refused"
    assert "File too large" in problem
    until(worker, "ready")
    instance, card = both(tmp_path, 11)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [instance.name]
    assert not card.exists()
    instance.unlink()
    until(worker, "restored", instance_key(ENDPOINT, 11))
    assert leave(worker) == 0

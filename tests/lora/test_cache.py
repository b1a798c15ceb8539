from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from openengine_sidecar.actors.lora.cache import AdapterCache, Lease, Recipe
from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.ticket import Hold, Ticket, read_size
from openengine_sidecar.messages.errors import LoraCacheError, LoraCancelledError, LoraRefusedError, LoraSourceError
from tests.lora import neighbour

SIZE = 1000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(root: Path) -> AdapterCache:
    return opened(root)


def opened(root: Path, limit: int | None = None) -> AdapterCache:
    cache = AdapterCache(root, limit)
    cache.open()
    return cache


def writes(size: int = SIZE) -> Callable[[Path], None]:
    return lambda directory: [(directory / "weights").write_bytes(bytes(size))].clear()


def recipe(size: int = SIZE, fill: Callable[[Path], None] | None = None) -> Recipe:
    def intact(path: Path) -> bool:
        return (path / "weights").is_file() and (path / "weights").stat().st_size == size

    return Recipe(size=size, fill=fill or writes(size), intact=intact)


def never(_directory: Path) -> None:
    pytest.fail("made again")


def acquire(cache: AdapterCache, key: str, the_recipe: Recipe | None = None) -> Lease:
    return cache.acquire(key, the_recipe or recipe(), CancelToken(key))


def put(cache: AdapterCache, key: str, size: int = SIZE, *, age: int = 0) -> Path:
    lease = acquire(cache, key, recipe(size))
    lease.release()
    ticket = lease.path.parent.parent / "tickets" / key
    os.utime(ticket, (ticket.stat().st_mtime - age,) * 2)
    return lease.path


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.parent != root}


def test_an_entry_is_made_once(cache: AdapterCache, root: Path) -> None:
    lease = acquire(cache, "a")
    assert lease.path == root / "adapters" / "a"
    assert tree(root) == {"adapters/a", "adapters/a/weights", "tickets/a"}
    assert read_size(root / "tickets" / "a") == SIZE
    assert acquire(cache, "a", recipe(fill=never)).path == lease.path


def test_an_entry_shows_only_when_it_is_whole(cache: AdapterCache, root: Path) -> None:
    def fill(directory: Path) -> None:
        writes()(directory)
        assert directory.parent == root / "partial"
        assert list((root / "adapters").iterdir()) == []

    acquire(cache, "a", recipe(fill=fill))


@pytest.mark.parametrize(
    "error",
    [
        LoraSourceError("s", "gone", transient=True),
        LoraRefusedError("s", "no adapter"),
        LoraCancelledError("s", "cancelled"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failed_or_cancelled_fetch_leaves_nothing(cache: AdapterCache, root: Path, error: BaseException) -> None:
    def fill(directory: Path) -> None:
        (directory / "half").write_bytes(b"x")
        raise error

    with pytest.raises(type(error)):
        acquire(cache, "a", recipe(fill=fill))
    assert tree(root) == set()
    assert acquire(cache, "a").path.is_dir()


def test_what_the_file_system_refuses_is_told_and_leaves_nothing(cache: AdapterCache, root: Path) -> None:
    def fill(directory: Path) -> None:
        (directory / "no" / "such" / "directory").write_bytes(b"x")

    with pytest.raises(LoraCacheError, match="No such file"):
        acquire(cache, "a", recipe(fill=fill))
    assert tree(root) == set()


def test_a_damaged_entry_is_made_again(cache: AdapterCache) -> None:
    path = put(cache, "a")
    (path / "weights").write_bytes(b"cut short")
    assert acquire(cache, "a").path == path
    assert (path / "weights").stat().st_size == SIZE


def test_an_entry_that_a_neighbour_made_in_the_meantime_is_not_made_again(cache: AdapterCache, root: Path) -> None:
    looks: list[Path] = []

    def intact(path: Path) -> bool:
        looks.append(path)
        if len(looks) == 1:
            (root / "adapters" / "a").mkdir()
            return False
        return path.is_dir()

    acquire(cache, "a", Recipe(size=SIZE, fill=never, intact=intact))
    assert len(looks) == 3


def test_a_cache_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LoraCacheError, match="Not a directory"):
        opened(tmp_path / "file" / "cache")


def test_the_least_recently_used_go_first(root: Path) -> None:
    cache = opened(root, 3 * SIZE)
    for age, key in enumerate(["newest", "middle", "oldest"]):
        put(cache, key, age=age)
    put(cache, "next", 2 * SIZE)
    assert {path.name for path in (root / "adapters").iterdir()} == {"newest", "next"}
    assert {path.name for path in (root / "tickets").iterdir()} == {"newest", "next"}


def test_use_makes_young(root: Path) -> None:
    cache = opened(root, 2 * SIZE)
    put(cache, "a", age=20)
    put(cache, "b", age=10)
    acquire(cache, "a", recipe(fill=never)).release()
    put(cache, "c")
    assert {path.name for path in (root / "adapters").iterdir()} == {"a", "c"}


def test_an_adapter_in_use_is_never_evicted(root: Path) -> None:
    cache = opened(root, 2 * SIZE)
    live = acquire(cache, "live")
    put(cache, "idle")
    put(cache, "next")
    assert live.path.is_dir()
    with pytest.raises(LoraCacheError, match="2000 bytes do not fit: adapters in use hold 1000 of 2000"):
        put(cache, "large", 2 * SIZE)
    live.release()
    put(cache, "large", 2 * SIZE)
    assert {path.name for path in (root / "adapters").iterdir()} == {"large"}


def test_what_is_larger_than_the_whole_cache_does_not_fit(root: Path) -> None:
    with pytest.raises(LoraCacheError, match="1000 bytes do not fit"):
        put(opened(root, SIZE - 1), "a")
    assert tree(root) == set()


def test_a_full_disk_is_noticed_before_a_byte_is_fetched(cache: AdapterCache, root: Path) -> None:
    with pytest.raises(LoraCacheError, match="the disk has"):
        acquire(cache, "a", recipe(2**60, never))
    assert tree(root) == set()


def test_what_is_being_fetched_counts_already(root: Path) -> None:
    cache = opened(root, 2 * SIZE - 1)

    def fill(directory: Path) -> None:
        with pytest.raises(LoraCacheError, match="hold 1000 of 1999"):
            put(cache, "b")
        writes()(directory)

    acquire(cache, "a", recipe(fill=fill))


def test_an_adapter_of_an_earlier_life_can_be_held(root: Path) -> None:
    path = put(opened(root), "a")
    cache = opened(root, SIZE)
    lease = cache.hold(path)
    assert lease is not None
    with pytest.raises(LoraCacheError):
        put(cache, "b")
    lease.release()
    put(cache, "b")
    assert cache.hold(path) is None
    assert cache.hold(root) is None
    assert cache.hold(Path("/adapters/a")) is None


def test_remains_of_crashed_processes_go_when_a_cache_opens(cache: AdapterCache, root: Path) -> None:
    put(cache, "whole")
    for name in ("whole.0123", "lost.0123"):
        (root / "partial" / name).mkdir()
        (root / "partial" / name / "half").write_bytes(b"x")
    (root / "tickets" / "lost").write_text("1000")
    (root / "tickets" / "empty").touch()
    opened(root)
    assert tree(root) == {"adapters/whole", "adapters/whole/weights", "tickets/whole"}


def test_a_fetch_that_waits_for_another_can_be_cancelled(cache: AdapterCache) -> None:
    token = CancelToken("a")
    refused: list[BaseException] = []

    def wait() -> None:
        try:
            cache.acquire("a", recipe(), token)
        except LoraCancelledError as error:
            refused.append(error)

    def fill(directory: Path) -> None:
        waiting = threading.Thread(target=wait)
        waiting.start()
        token.cancel("no longer wanted")
        waiting.join()
        writes()(directory)

    acquire(cache, "a", recipe(fill=fill))
    assert len(refused) == 1


def test_twenty_threads_make_an_entry_once(cache: AdapterCache) -> None:
    made: list[Path] = []
    barrier = threading.Barrier(20)
    leases: list[Lease] = []

    def fill(directory: Path) -> None:
        made.append(directory)
        writes()(directory)

    def use() -> None:
        barrier.wait()
        leases.append(acquire(cache, "a", recipe(fill=fill)))

    threads = [threading.Thread(target=use) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(leases) == 20


def test_threads_that_fight_for_room_all_get_it_in_turn(root: Path) -> None:
    cache = opened(root, 3 * SIZE)
    failures: list[BaseException] = []

    def use(key: str) -> None:
        try:
            for _ in range(5):
                lease = acquire(cache, key)
                assert (lease.path / "weights").stat().st_size == SIZE
                lease.release()
        except BaseException as error:  # noqa: BLE001 - told to the test, which fails
            failures.append(error)

    threads = [threading.Thread(target=use, args=(f"k{number % 3}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.fixture
def neighbours() -> Iterator[Callable[[Path, str], subprocess.Popen[str]]]:
    with ExitStack() as stack:

        def start(root: Path, key: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, neighbour.__file__, str(root), key],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


Start = Callable[[Path, str], subprocess.Popen[str]]


def test_of_several_processes_one_makes_the_entry(root: Path, neighbours: Start) -> None:
    maker = neighbours(root, "a")
    assert heard(maker) == "filling"
    others = [neighbours(root, "a") for _ in range(2)]
    go_on(maker)
    assert {heard(process) for process in (maker, *others)} == {f"using {root / 'adapters' / 'a'}"}
    assert tree(root) == {"adapters/a", "adapters/a/first", "adapters/a/second", "tickets/a"}


def test_a_process_killed_while_it_fetches_leaves_the_entry_to_the_next(root: Path, neighbours: Start) -> None:
    maker = neighbours(root, "a")
    assert heard(maker) == "filling"
    maker.kill()
    maker.wait()
    assert tree(root) >= {"tickets/a"}
    lease = opened(root).acquire("a", recipe(), CancelToken("a"))
    assert tree(root) == {"adapters/a", "adapters/a/weights", "tickets/a"}
    lease.release()


def test_what_another_process_uses_is_not_evicted_until_that_dies(root: Path, neighbours: Start) -> None:
    user = neighbours(root, "a")
    assert heard(user) == "filling"
    go_on(user)
    assert heard(user).startswith("using")
    cache = opened(root, 2500)
    with pytest.raises(LoraCacheError, match="hold 2000 of 2500"):
        put(cache, "b")
    user.kill()
    user.wait()
    put(cache, "b")
    assert {path.name for path in (root / "adapters").iterdir()} == {"b"}


def test_tickets_conflict_as_readers_and_writers_do(tmp_path: Path) -> None:
    path = tmp_path / "t"
    one, two = Ticket.take(path, Hold.SHARED), Ticket.take(path, Hold.SHARED)
    assert one is not None
    assert two is not None
    assert Ticket.take(path, Hold.ALONE) is None
    one.close()
    one.close()
    two.close()
    alone = Ticket.take(path, Hold.ALONE)
    assert alone is not None
    assert Ticket.take(path, Hold.SHARED) is None
    alone.close()


def test_a_hold_on_a_ticket_that_was_deleted_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    opens: list[int] = []
    real = os.open

    def open_as_it_is_deleted(*args: object) -> int:
        descriptor = real(*args)  # type: ignore[arg-type]  # passed on as it came
        if not opens:
            path.unlink()
        opens.append(descriptor)
        return descriptor

    monkeypatch.setattr(os, "open", open_as_it_is_deleted)
    ticket = Ticket.take(path, Hold.ALONE)
    assert ticket is not None
    assert len(opens) == 2
    assert path.exists()
    ticket.close()


@pytest.mark.parametrize(("text", "size"), [(b"", 0), (b"12", 12), (b"x", 0), (b"\xff", 0)])
def test_a_ticket_that_says_nothing_counts_nothing(tmp_path: Path, text: bytes, size: int) -> None:
    (tmp_path / "t").write_bytes(text)
    assert read_size(tmp_path / "t") == size
    assert read_size(tmp_path / "missing") == 0

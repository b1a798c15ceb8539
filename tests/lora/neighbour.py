"""A worker process of its own that uses one entry of a cache.

`python neighbour.py ROOT KEY` says `filling` when it is the one who makes the entry, and waits for a line before it
writes the second half; it says `using PATH` once it has a lease, and leaves when its standard input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from openengine_sidecar.actors.lora.cache import AdapterCache, Recipe
from openengine_sidecar.actors.lora.cancel import CancelToken

HALF = b"x" * 1000


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def fill(directory: Path) -> None:
    (directory / "first").write_bytes(HALF)
    say("filling")
    sys.stdin.readline()
    (directory / "second").write_bytes(HALF)


def recipe() -> Recipe:
    return Recipe(size=2 * len(HALF), fill=fill, intact=lambda path: (path / "second").is_file())


def main(root: Path, key: str) -> None:
    cache = AdapterCache(root)
    cache.open()
    lease = cache.acquire(key, recipe(), CancelToken(key))
    say("using", str(lease.path))
    sys.stdin.read()
    lease.release()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

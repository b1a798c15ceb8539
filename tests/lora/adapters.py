"""Adapters to be fetched, and sources made of what a test says."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.config import AdapterLimits, TransferConfig
from openengine_sidecar.actors.lora.download import Progress
from openengine_sidecar.actors.lora.listing import Listing, ListingBuilder, RemoteFile
from openengine_sidecar.actors.lora.sources import Body
from openengine_sidecar.messages.errors import LoraSourceError

CONFIG = b'{"peft_type": "LORA", "r": 8}'
WEIGHTS = bytes(range(256)) * 40
ADAPTER: Mapping[str, bytes] = {"adapter_config.json": CONFIG, "adapter_model.safetensors": WEIGHTS}
QUICK = TransferConfig(attempts=3, retry_wait=0.0, retry_wait_max=0.0, chunk_bytes=1024)
LIMITS = AdapterLimits(max_bytes=100_000, max_files=8, max_depth=2)


def write_adapter(directory: Path, files: Mapping[str, bytes] = ADAPTER) -> Path:
    for name, contents in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)
    return directory


def read_adapter(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@dataclass
class Reports:
    seen: list[Progress] = field(default_factory=list)

    def __call__(self, progress: Progress) -> None:
        self.seen.append(progress)


@dataclass
class FakeSource:
    """Serves files from memory, `breaks` times only so many bytes of them before the connection breaks."""

    files: Mapping[str, bytes]
    breaks: list[int] = field(default_factory=list)
    ranges: bool = True
    transient: bool = True
    sha256: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    reads: list[tuple[str, int]] = field(default_factory=list)

    def list(self, limits: AdapterLimits, cancel: CancelToken) -> Listing:
        cancel.check()
        builder = ListingBuilder("fake://adapter", limits)
        for path, contents in self.files.items():
            size = self.sizes.get(path, len(contents))
            builder.add(
                RemoteFile(path=path, size=size, key=path, tag=str(hash(contents)), sha256=self.sha256.get(path, ""))
            )
        return builder.build()

    @contextmanager
    def read(self, file: RemoteFile, offset: int) -> Generator[Body]:
        self.reads.append((file.path, offset))
        begin = offset if self.ranges else 0
        yield Body(begin, self._chunks(self.files[file.path][begin:]))

    def _chunks(self, contents: bytes) -> Iterator[bytes]:
        room = self.breaks.pop(0) if self.breaks else len(contents)
        for start in range(0, min(room, len(contents)), QUICK.chunk_bytes):
            yield contents[start : min(start + QUICK.chunk_bytes, room)]
        if room < len(contents):
            problem = "connection broke"
            raise LoraSourceError(problem, "", transient=self.transient)

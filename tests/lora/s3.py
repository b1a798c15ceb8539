from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.lora.adapters import ADAPTER
from tests.lora.proxy import CuttingProxy

_buckets = itertools.count(1)


@dataclass(frozen=True)
class ServerInfo:
    port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass
class S3:
    """A bucket, filled directly and read through a proxy."""

    client: Any
    proxy: CuttingProxy
    bucket: str = field(default_factory=lambda: f"bucket-{next(_buckets)}")

    def __post_init__(self) -> None:
        self.client.create_bucket(Bucket=self.bucket)

    def put(self, prefix: str = "adapters/one", files: Mapping[str, bytes] = ADAPTER) -> str:
        for name, contents in files.items():
            self.client.put_object(Bucket=self.bucket, Key=f"{prefix}/{name}", Body=contents)
        return f"s3://{self.bucket}/{prefix}"

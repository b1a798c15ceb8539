from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class Store:
    """The file discovery store, read from outside. A key is what stands after `v1/<bucket>/`."""

    root: Path

    def keys(self, bucket: str, namespace: str) -> list[str]:
        directory = self.root / "v1" / bucket
        names = (path.name for path in directory.glob("*") if not path.name.startswith(".tmp_"))
        return sorted(key for key in map(unquote, names) if _parts(key)[:1] == [namespace])

    def cards(self, namespace: str) -> list[str]:
        return self.keys("mdc", namespace)

    def instances(self, namespace: str) -> list[str]:
        return self.keys("instances", namespace)

    def records(self, bucket: str, namespace: str) -> list[dict[str, Any]]:
        directory = self.root / "v1" / bucket
        return [
            json.loads(path.read_bytes())
            for path in sorted(directory.glob("*"))
            if not path.name.startswith(".tmp_") and _parts(unquote(path.name))[:1] == [namespace]
        ]


def _parts(key: str) -> list[str]:
    return key.removeprefix("v1/").split("/")

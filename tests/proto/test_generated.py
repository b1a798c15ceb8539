from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROTO = Path(__file__).resolve().parents[2] / "proto"


def _stubs(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/*_pb2.py*") if path.is_file()}


def test_regenerating_gives_what_is_checked_in(tmp_path: Path) -> None:
    subprocess.run([PROTO / "generate.sh", tmp_path], env={**os.environ, "PYTHON": sys.executable}, check=True)
    generated = _stubs(tmp_path / "openengine_sidecar" / "proto")
    assert generated == _stubs(PROTO)
    assert len(generated) == 2 * len(list(PROTO.glob("*/*.proto")))

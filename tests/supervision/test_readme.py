from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
README = (HERE.parents[1] / "supervision" / "README.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+)`", README)))
WRITTEN = set(re.findall(r"def (test_\w+)", "".join(path.read_text() for path in HERE.glob("test_*.py"))))


@pytest.mark.parametrize("name", NAMED)
def test_what_the_table_names_exists(name: str) -> None:
    assert name in WRITTEN


def test_every_row_but_persistence_names_a_test() -> None:
    rows = [line for line in README.splitlines() if line.startswith("| ") and line.count("|") == 7]
    silent = [row.split("|")[1].strip() for row in rows if "`test_" not in row]
    assert silent == ["feature", "state kept over restarts, persistence"]
    assert len(NAMED) == len(rows) - len(silent)
    ours = [row.split("|")[5].strip() for row in rows if "`test_" in row]
    assert [cell for cell in ours if not cell.startswith("yes")] == []


def test_the_example_runs() -> None:
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert example is not None
    run = subprocess.run([sys.executable, "-c", example[1]], capture_output=True, text=True, check=True, timeout=50)
    assert run.stdout == "42\n"

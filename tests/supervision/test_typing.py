from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]

PROGRAM = """
from typing import assert_never
import msgspec
from openengine_sidecar.supervision import Actor, Ref

class Open(msgspec.Struct, frozen=True):
    pass

class Close(msgspec.Struct, frozen=True):
    pass

class Other(msgspec.Struct, frozen=True):
    pass

class Door(Actor[Open | Close]):
    async def on_message(self, message: Open | Close) -> object:
        match message:
            case Open():
                return "opened"
            {case}
            case _:
                assert_never(message)

def use(door: Ref[Open | Close], opener: Ref[Open]) -> Ref[Open]:
    opener.tell(Open())
    door.tell({told})
    return door
"""


@pytest.mark.parametrize(
    ("case", "told", "complaint"),
    [
        ("case Close(): return 'closed'", "Close()", ""),
        ("", "Close()", 'Argument 1 to "assert_never" has incompatible type "Close"'),
        ("case Close(): return 'closed'", "Other()", 'Argument 1 to "tell" of "Ref" has incompatible type "Other"'),
    ],
    ids=["fits", "a case is missing", "not in the protocol"],
)
def test_the_type_checker_knows_the_protocol(tmp_path: Path, case: str, told: str, complaint: str) -> None:
    program = tmp_path / "door.py"
    program.write_text(PROGRAM.format(case=case, told=told))
    options = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    out, err, _ = api.run([*options, "--follow-imports=silent", str(program)])
    assert err == ""
    problems = [line for line in out.splitlines() if ": error:" in line]
    if complaint:
        assert len(problems) == 1
        assert complaint in problems[0]
    else:
        assert problems == []

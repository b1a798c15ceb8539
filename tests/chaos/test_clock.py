from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.clock import WallClock

DAY = 86_400.0
PROGRAM = "import time; print(time.time(), time.monotonic(), flush=True); input(); print(time.time(), time.monotonic())"


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    clock = WallClock(tmp_path / "clock")
    if not clock.obeys():
        pytest.skip("libfaketime is not installed, or made for another machine")
    return clock


@pytest.mark.parametrize("shift", [-DAY, DAY])
def test_a_running_program_sees_the_time_of_day_jump_and_no_other_clock(clock: WallClock, shift: float) -> None:
    environment = {**os.environ, **clock.environment}
    pipe = subprocess.PIPE
    with subprocess.Popen((sys.executable, "-c", PROGRAM), env=environment, stdin=pipe, stdout=pipe) as program:
        assert program.stdout is not None
        wall, monotonic = map(float, program.stdout.readline().split())
        clock.shift(shift)
        later_wall, later_monotonic = map(float, program.communicate(b"\n")[0].split())
    passed = later_monotonic - monotonic
    assert 0 <= passed < DAY / 2
    assert abs(later_wall - wall - shift - passed) < 1


def test_where_there_is_no_library_programs_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.chaos.clock._library", lambda: None)
    clock = WallClock(tmp_path / "clock")
    assert clock.environment == {}
    assert not clock.obeys()

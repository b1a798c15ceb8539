from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.chaos import report
from tests.chaos.endurance import endure
from tests.chaos.load import End
from tests.chaos.run import Plan, Result, run
from tests.chaos.schedule import SLICE_KINDS, crashes, schedule

pytestmark = [pytest.mark.interop]

SEED = 20
SECONDS = 35.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.timeout(180)
async def test_f58_a_slice_of_chaos_hurts_nobody(home: Path) -> None:
    faults = schedule(SEED, SECONDS, kinds=SLICE_KINDS, targets=2)
    result = await _run(Plan(SEED, faults, streams=12, duration=SECONDS), home)
    assert result.problems == []
    assert result.injector.incidents
    assert result.load.ends[End.ANSWERED] > 0


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_f58_a_thousand_crashes_and_fifty_dead_engines_lose_nothing(home: Path) -> None:
    result = await _run(Plan(SEED, crashes(SEED, 1_000, 50, targets=2), streams=64, most_backoff=0.5), home)
    assert result.problems == []
    assert result.injector.missed == []
    assert len(result.injector.incidents) == 1_050


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_f57_twenty_thousand_requests_leave_nothing_behind(home: Path) -> None:
    endured = await endure(home, warm_up=2_000, requests=20_000, tokens=63, streams=64)
    ends = Counter(outcome.end for outcome in endured.outcomes)
    print(f"{ends}, {endured.leak}")
    assert endured.problems == []
    assert ends == {End.ANSWERED: 16_000, End.HUNG_UP: 4_000}
    assert sum(outcome.tokens for outcome in endured.outcomes) == 1_008_000
    assert endured.leak.growth < 1.15


async def _run(plan: Plan, home: Path) -> Result:
    result = await run(plan, home, print)
    (home / "timeline.html").write_text(report.page(result))
    print(report.table(result))
    return result

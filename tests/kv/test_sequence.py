from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openengine_sidecar.actors.kv.sequence import SequenceLaw, Step

NEXT, REPEAT, GAP, RESTART = Step.NEXT, Step.REPEAT, Step.GAP, Step.RESTART


def steps(numbers: list[int], due: int | None = None) -> list[Step]:
    law = SequenceLaw(due)
    return [law.observe(number) for number in numbers]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        pytest.param([1, 2, 3], [NEXT, NEXT, NEXT], id="c54_in_order"),
        pytest.param([0, 1], [NEXT, NEXT], id="c54_from_zero"),
        pytest.param([7, 8], [NEXT, NEXT], id="c54_live_from_anywhere"),
        pytest.param([3, 5, 6], [NEXT, GAP, NEXT], id="c55_gap"),
        pytest.param([3, 3, 2, 4], [NEXT, REPEAT, REPEAT, NEXT], id="c55_duplicate_and_lower"),
        pytest.param([500, 1, 2, 501], [NEXT, REPEAT, REPEAT, NEXT], id="c55_reset_of_the_same_instance"),
        pytest.param([1, 2, 5, 5, 3, 4, 6], [NEXT, NEXT, GAP, REPEAT, REPEAT, REPEAT, NEXT], id="f31"),
    ],
)
def test_numbers_are_judged_one_by_one(numbers: list[int], expected: list[Step]) -> None:
    assert steps(numbers) == expected


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([4, 5], [NEXT, NEXT]), ([6, 7], [GAP, NEXT]), ([3, 4], [REPEAT, NEXT])],
)
def test_c55_a_granted_start_is_due_first(numbers: list[int], expected: list[Step]) -> None:
    assert steps(numbers, due=4) == expected


def test_c55_a_new_instance_is_told_whatever_its_number() -> None:
    law = SequenceLaw()
    assert [law.observe(8, "one"), law.observe(9, "one")] == [NEXT, NEXT]
    assert [law.observe(1, "two"), law.observe(2, "two")] == [RESTART, NEXT]
    assert [law.observe(3, "three"), law.observe(3, "three")] == [RESTART, REPEAT]


def test_an_instance_that_is_not_known_is_no_other_instance() -> None:
    law = SequenceLaw()
    assert [law.observe(1), law.observe(2, "one"), law.observe(3, "one"), law.observe(4)] == [NEXT] * 4
    assert law.observe(1, "two") is RESTART


def test_what_makes_the_known_blocks_doubtful() -> None:
    assert [step for step in Step if step.clears] == [GAP, RESTART]


@given(st.lists(st.integers(0, 12), max_size=30))
def test_f31_the_cursor_is_the_highest_number_and_each_loss_is_one_gap(numbers: list[int]) -> None:
    law = SequenceLaw()
    seen = [(number, law.last, law.observe(number)) for number in numbers]
    for number, last, step in seen:
        if last is None:
            expected = NEXT
        elif number <= last:
            expected = REPEAT
        else:
            expected = NEXT if number == last + 1 else GAP
        assert step is expected
    assert law.last == max(numbers, default=None)

from __future__ import annotations

from openengine_sidecar.actors.requests.gaps import GapCounter
from openengine_sidecar.messages.facts import GAP_BOUNDS, TokenGaps


def counted(**buckets: int) -> tuple[int, ...]:
    found = [0] * (len(GAP_BOUNDS) + 1)
    for bucket, number in buckets.items():
        found[int(bucket.removeprefix("b"))] = number
    return tuple(found)


def test_one_token_has_no_gap() -> None:
    gaps = GapCounter()
    assert gaps.gaps is None
    gaps.tokens(1, 5.0)
    assert gaps.gaps is None


def test_a_gap_belongs_to_the_bucket_whose_bound_it_does_not_exceed() -> None:
    gaps = GapCounter()
    now = 0.0
    gaps.tokens(1, now)
    for bound in GAP_BOUNDS:
        now += bound
        gaps.tokens(1, now)
    now += 100.0
    gaps.tokens(1, now)
    found = gaps.gaps
    assert found is not None
    assert sum(found.counts) == len(GAP_BOUNDS) + 1
    assert found.counts[-1] == 1
    assert found.seconds == now


def test_tokens_that_come_together_share_the_time() -> None:
    gaps = GapCounter()
    gaps.tokens(3, 1.0)
    gaps.tokens(4, 1.5)
    assert gaps.gaps == TokenGaps(counted(b7=4), 0.5)

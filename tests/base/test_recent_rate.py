"""The rate of the last minute."""

from __future__ import annotations

from paxosblock.base.recent_rate import LATELY_S, RecentRate


def test_the_rate_is_that_of_the_last_minute() -> None:
    now_s = 100.0
    rate = RecentRate(lambda: now_s)
    assert rate.lately() == (0.0, 0.0)
    rate.note(1000)
    now_s += 5
    assert rate.lately() == (0.0, 0.0), "one step says nothing of how long it took"
    rate.note(10)
    now_s += 5
    rate.note(20)
    assert rate.lately() == (2 / 10, 30 / 10)
    now_s += LATELY_S - 7
    assert rate.lately() == (1 / 58, 20 / 58), "the first one is forgotten"
    now_s += LATELY_S
    assert rate.lately() == (0.0, 0.0)

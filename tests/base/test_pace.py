"""The pace of the last minute."""

from __future__ import annotations

from paxosblock.base.pace import LATELY_S, Pace


def test_the_pace_is_that_of_the_last_minute() -> None:
    now_s = 100.0
    pace = Pace(lambda: now_s)
    assert pace.lately() == (0.0, 0.0)
    pace.note(1000)
    now_s += 5
    assert pace.lately() == (0.0, 0.0), "one step says nothing of how long it took"
    pace.note(10)
    now_s += 5
    pace.note(20)
    assert pace.lately() == (2 / 10, 30 / 10)
    now_s += LATELY_S - 7
    assert pace.lately() == (1 / 58, 20 / 58), "the first one is forgotten"
    now_s += LATELY_S
    assert pace.lately() == (0.0, 0.0)

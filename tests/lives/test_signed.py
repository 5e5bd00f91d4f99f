"""A slice of the lives in which DataNodes serve only what a NameNode signed, with a key that is
another one each second. In `make lives` there are more.
"""

from __future__ import annotations

import pytest

from tests.lives.life import Kind, live

HAPPENS = {1: "sessions fenced", 2: "files written"}
"""By seed: rivals, and users with files of their own."""
pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("seed", HAPPENS)
def test_keys_that_change_each_second_cost_no_error_whatever_happens(seed: int) -> None:
    outcome = live(seed, Kind.SIGNED)
    assert (outcome.mistakes, outcome.unfinished) == ((), ()), "\n".join(outcome.trace)
    assert outcome.counts["block keys changed"] > 60
    assert outcome.counts[HAPPENS[seed]] > 10

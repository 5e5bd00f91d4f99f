"""A slice of the lives in which some watch all names, and clerks set quotas and fill them. In `make
lives` there are more.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lives.life import Kind, live

SEEDS = (3, 7, 9)
pytestmark = pytest.mark.timeout(900)


def test_all_who_watch_hear_the_same_and_quotas_are_what_a_count_finds() -> None:
    counts = Counter[str]()
    for seed in SEEDS:
        outcome = live(seed, Kind.WATCHED)
        assert (outcome.mistakes, outcome.unfinished) == ((), ()), "\n".join(outcome.trace)
        counts += outcome.counts
    for what in (
        "NameNode killed",
        "changes that watchers heard",
        "moments that several watchers heard of",
        "watchers that went on elsewhere",
        "clerks _limit",
        "clerks _clear",
        "clerks _move",
        "quotas counted again",
        "times that a quota refused",
    ):
        assert counts[what] > 2, what

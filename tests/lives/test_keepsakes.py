"""A slice of the lives in which somebody takes, reads and ends snapshots of everything, and looks
back through a window of history. In `make lives` there are more.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lives.life import Kind, live

SEEDS = (1, 2, 14)
"""A file that is cut, appended to and renamed; files that are deleted and joined; a snapshot that
is taken in the middle of a truncate."""
pytestmark = pytest.mark.timeout(900)


def test_what_the_past_shows_never_changes_and_nothing_stays_after_it() -> None:
    counts = Counter[str]()
    for seed in SEEDS:
        outcome = live(seed, Kind.SNAPSHOTS)
        assert (outcome.mistakes, outcome.unfinished) == ((), ()), "\n".join(outcome.trace)
        counts += outcome.counts
    for what in (
        "files of snapshots read",
        "files that nothing changed as a snapshot was taken",
        "snapshots deleted",
        "truncates",
        "files joined",
        "files deleted",
        "moments seen again",
        "files of the past read",
        "moments forgotten",
        "directories undeleted",
    ):
        assert counts[what] > 2, what

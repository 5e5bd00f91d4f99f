"""A slice of the random lives of one file: `make lives` lives as many as you like."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lives.life import Kind, Outcome, live

SEEDS = (1, 12, 2, 10, 8, 3, 4, 5, 6)
"""The slice begins with these lives, and ends with the first after which all has happened: in the
twelfth a leader is killed, as in few."""
HAPPENS = (
    "appends",
    "hflushes",
    "hsyncs",
    "truncates",
    "deletes",
    "renames",
    "owners killed",
    "bytes read",
    "process killed",
    "process started",
    "power cut",
    "machine lost",
    "leader killed",
    "members decommissioned",
)


def counted(outcomes: list[Outcome]) -> Counter[str]:
    """Return how often each thing happened in these lives."""
    return sum((outcome.counts for outcome in outcomes), Counter[str]())


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """The slice, all of which was as it should be, to the end."""
    outcomes: list[Outcome] = []
    for seed in SEEDS:
        outcome = live(seed, Kind.ONE_FILE)
        assert (outcome.mistakes, outcome.unfinished) == ((), ()), "\n".join(outcome.trace)
        outcomes.append(outcome)
        if all(counted(outcomes)[what] for what in HAPPENS):
            break
    return outcomes


@pytest.mark.parametrize("what", HAPPENS)
def test_a_reader_sees_a_version_that_was_possible_while_he_read(
    outcomes: list[Outcome], what: str
) -> None:
    assert counted(outcomes)[what] > 0

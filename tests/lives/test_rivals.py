"""A slice of the random lives of several writers of one file: `make lives` lives as many as you
like."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lives.life import Kind, Outcome, live

SEEDS = (2, 1, 3, 4, 5, 6)
"""The slice begins with these lives, and ends with the first after which all has happened."""
HAPPENS = (
    "acknowledged",
    "bytes read",
    "cuts",
    "grants",
    "generations proposed",
    "refused again",
    "sessions closed",
    "sessions fenced",
    "strangers refused",
    "taken over",
    "woke during a rebuild",
    "writers killed",
    "writers that stood still",
    "writers told that they are fenced",
)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """The slice, all of which was as it should be, to the end."""
    outcomes: list[Outcome] = []
    for seed in SEEDS:
        outcome = live(seed, Kind.RIVALS)
        assert (outcome.mistakes, outcome.unfinished) == ((), ()), "\n".join(outcome.trace)
        outcomes.append(outcome)
        if all(counted(outcomes)[what] for what in HAPPENS):
            break
    return outcomes


def counted(outcomes: list[Outcome]) -> Counter[str]:
    """Return how often each thing happened in these lives."""
    return sum((outcome.counts for outcome in outcomes), Counter[str]())


@pytest.mark.parametrize("what", HAPPENS)
def test_what_was_acknowledged_to_one_writer_stays_whoever_writes_then(
    outcomes: list[Outcome], what: str
) -> None:
    assert counted(outcomes)[what] > 0

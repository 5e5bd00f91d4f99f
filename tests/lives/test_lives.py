"""A slice of the random lives: `make lives SEED=… LIVES=…` lives as many as you like."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lives.life import Outcome, live
from tests.lives.planted_faults import FAULTS, planted

SLICE = (14, 8, 17)
FOUND_BY = {
    "a copy counts before it is made": (2, 3, 5, 6),
    "a member leaves whoever reported": (5, 15, 3),
    "a member is told to delete": (1, 2, 3),
}
"""The lives in one of which a planted fault must show itself."""


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """The slice, all of which was as it should be, to the end."""
    outcomes = [live(seed) for seed in SLICE]
    for outcome in outcomes:
        assert (outcome.mistakes, outcome.unfinished) == ((), ()), "\n".join(outcome.trace)
    return outcomes


@pytest.mark.parametrize(
    "what",
    [
        "machine lost",
        "machine added",
        "volume failed",
        "byte damaged",
        "byte of the log damaged",
        "power cut",
        "replicas in memory cut short",
        "process killed",
        "NameNode killed",
        "NameNode stopped",
        "NameNode cut off",
        "setrep",
        "maintenance",
        "replicas moved",
        "files written",
        "bytes read",
        "blocks whole",
    ],
)
def test_nothing_is_lost_and_all_becomes_whole_whatever_happens(
    outcomes: list[Outcome], what: str
) -> None:
    counts = sum((outcome.counts for outcome in outcomes), Counter[str]())
    assert counts[what] > 0


def test_the_same_seed_lives_the_same_way(outcomes: list[Outcome]) -> None:
    assert live(SLICE[0]) == outcomes[0]


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_planted_fault_is_found(fault: str) -> None:
    with planted(fault):
        mistakes = (mistake for seed in FOUND_BY[fault] for mistake in live(seed).mistakes)
        assert any(mistake.startswith("block ") for mistake in mistakes), "replicas that are gone"

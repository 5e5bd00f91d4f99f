"""A slice of the random lives: `make lives SEED=… LIVES=…` lives as many as you like."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lives.life import live
from tests.lives.planted_faults import FAULTS, planted

SLICE = (1, 2, 3)
MANY = 12
"""Lives in which a planted fault must show itself at the latest."""


@pytest.fixture(scope="module")
def outcomes() -> Counter[str]:
    """What happened in the slice, all of which was as it should be."""
    counts: Counter[str] = Counter()
    for seed in SLICE:
        outcome = live(seed)
        assert outcome.mistakes == (), "\n".join(outcome.trace)
        counts += outcome.counts
    return counts


@pytest.mark.parametrize(
    "what",
    [
        "machine lost",
        "machine added",
        "volume failed",
        "byte damaged",
        "power cut",
        "process killed",
        "process stopped",
        "NameNode killed",
        "setrep",
        "files written",
        "bytes read",
    ],
)
def test_nothing_is_lost_whatever_happens(outcomes: Counter[str], what: str) -> None:
    assert outcomes[what] > 0


def test_the_same_seed_lives_the_same_way() -> None:
    assert live(4) == live(4)


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_planted_fault_is_found(fault: str) -> None:
    with planted(fault):
        assert any(live(seed).mistakes for seed in range(1, 1 + MANY))

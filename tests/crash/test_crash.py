"""A slice of the random crashes: `make crash SEED=… SECONDS=…` lives as many as you like."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.crash.life import Outcome, live
from tests.crash.planted_faults import FAULTS, planted

SEEDS = range(1, 9)
"""The slice ends with the first of these after which all has happened."""
HAPPENS = (
    "power cut",
    "power cut in a start",
    "power cut at work",
    "killed",
    "killed in a start",
    "killed at work",
    "replicas looked at",
    "replicas served",
    "damage seen",
    "dead ones asked",
    "dead ones healed",
    "meta file",
    "block file in current",
    "segment of the log",
    "mark of the log",
)
FOUND_BY = {
    "a loss of records is not noted": (4,),
    "a start believes names that are not synced": (8,),
    "a sync counts what was appended meanwhile": (14,),
    "the mark of the log is not looked at": (4,),
}
"""The seeds that find a planted fault soonest."""
FOUND_WITHIN = range(1, 61)
"""Seeds of which one must show it all the same, when another request moved what happens when."""


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """The slice, all of which was as it should be."""
    outcomes: list[Outcome] = []
    for seed in SEEDS:
        outcome = live(seed)
        assert outcome.mistakes == (), "\n".join(outcome.trace)
        outcomes.append(outcome)
        if all(_happened(outcomes, what) for what in HAPPENS):
            break
    return outcomes


def _happened(outcomes: list[Outcome], what: str) -> int:
    counts = sum((outcome.counts for outcome in outcomes), Counter[str]())
    return sum(count for name, count in counts.items() if name.partition(":")[0] == what)


@pytest.mark.parametrize("what", HAPPENS)
def test_nothing_told_is_forgotten_and_nothing_damaged_is_served(
    outcomes: list[Outcome], what: str
) -> None:
    assert _happened(outcomes, what) > 0


def test_the_same_seed_crashes_the_same_way(outcomes: list[Outcome]) -> None:
    assert live(SEEDS[0]) == outcomes[0]


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_planted_fault_is_found(fault: str) -> None:
    with planted(fault):
        assert any(live(seed).mistakes for seed in dict.fromkeys((*FOUND_BY[fault], *FOUND_WITHIN)))

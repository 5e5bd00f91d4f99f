"""A slice of the random lives: `make lives SEED=… LIVES=…` lives as many as you like."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lives.apart import live_apart
from tests.lives.life import Kind, Outcome, live
from tests.lives.planted_faults import FAULTS, planted

SEEDS = (9, 11, 17, 40, 32, 22, 10, 12, 8, 6, 2, 14, 4, 3, 1, 5, 7, 27)
"""The slice begins with these lives, and ends with the first after which all has happened: the four
shortest of the first forty in which it does."""
HAPPENS = (
    "machine lost",
    "machine added",
    "volume failed",
    "byte damaged",
    "byte of the log damaged",
    "metadata damaged",
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
    "strangers refused",
    "files joined",
    "files appended to",
    "safe mode",
    "clock jumped",
    "clock of one jumped",
    "errands",
    "restore",
    "files that were the same at a restore",
    "files that were changed at a restore",
    "NameNode's map damaged",
    "NameNode's power cut after a start",
    "damaged NameNodes refused to start",
    "NameNode folders replaced",
    "NameNode's folder lost",
    "NameNode's folder copied",
    "NameNode folders swapped",
    "NameNode's folder rolled back",
    "NameNodes refused to start",
    "two NameNodes suffered",
    "power cut after a start",
    "volume emptied",
    "volumes swapped",
    "volumes copied",
    "head in a log damaged",
    "DataNode started wrongly",
    "DataNode upgraded",
    "DataNode rolled back",
    "services started beside another one",
)
FOUND_BY = {
    "one storage is believed after a restore": (Kind.FILES, (9, 6, 3), "restored, and "),
    "a copy counts before it is made": (Kind.FILES, (3, 2, 5, 6), "block "),
    "a fenced writer is obeyed": (Kind.RIVALS, (1, 2, 3, 4, 5, 6), "a fenced writer's flush"),
    "a generation has two proposers": (Kind.FILES, (3, 5, 1, 2, 4, 6, 7), "block "),
    "a Grant goes to another writer": (Kind.RIVALS, (2, 1, 3, 4, 5, 6), "block "),
    "a member is told to delete": (Kind.FILES, (1, 2, 3), "block "),
    "a member leaves whoever reported": (Kind.FILES, (15, 5, 3, 1, 2, 4, 6, 7), "block "),
    "a rolled back storage comes in": (Kind.RIVALS, (2, 32, 17), "dn"),
    "a lost folder comes in": (Kind.FILES, (4, 16, 10, 22), "namenode-"),
    "a copied folder comes in": (Kind.FILES, (4, 16, 10, 22), "namenode-"),
    "a stranger comes in": (Kind.FILES, (1, 2, 3), "a stranger asked for "),
    "rights are no precondition": (Kind.WHO_MAY, (4,), "the tree changed as no user may "),
    "a DataNode forgets keys": (Kind.SIGNED, (1,), "a capability was refused: "),
    "a block goes that a snapshot shows": (Kind.SNAPSHOTS, (2,), "/.snapshot/"),
    "the past is shown too early": (Kind.SNAPSHOTS, (5, 2), "/one @"),
    "a watcher misses what wakes it": (Kind.WATCHED, (2,), "a watcher "),
    "a rename is not counted": (Kind.WATCHED, (2,), "a count finds other than "),
}
"""The lives that find a planted fault soonest, and how its mistake begins."""
pytestmark = pytest.mark.timeout(900)
FOUND_WITHIN = range(1, 31)
"""Seeds of which one must show it all the same, when another action moved what happens when."""


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """The slice, all of which was as it should be, to the end."""
    outcomes: list[Outcome] = []
    for seed in SEEDS:
        outcome = live(seed)
        assert (outcome.mistakes, outcome.unfinished) == ((), ()), "\n".join(outcome.trace)
        outcomes.append(outcome)
        if all(_counted(outcomes)[what] for what in HAPPENS):
            break
    return outcomes


def _counted(outcomes: list[Outcome]) -> Counter[str]:
    return sum((outcome.counts for outcome in outcomes), Counter[str]())


@pytest.mark.parametrize("what", HAPPENS)
def test_nothing_is_lost_and_all_becomes_whole_whatever_happens(
    outcomes: list[Outcome], what: str
) -> None:
    assert _counted(outcomes)[what] > 0


def test_the_same_seeds_live_the_same_way_at_once_in_processes_of_their_own(
    outcomes: list[Outcome],
) -> None:
    assert [*live_apart(SEEDS[:2], Kind.FILES, at_once=2)] == outcomes[:2]


def test_each_planted_fault_has_lives_that_find_it() -> None:
    assert FOUND_BY.keys() == FAULTS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_planted_fault_is_found(fault: str) -> None:
    kind, seeds, begins = FOUND_BY[fault]
    with planted(fault):
        lives = (live(seed, kind) for seed in dict.fromkeys((*seeds, *FOUND_WITHIN)))
        mistakes = (mistake for outcome in lives for mistake in outcome.mistakes)
        assert any(mistake.startswith(begins) for mistake in mistakes)

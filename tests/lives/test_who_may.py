"""A slice of the random lives of users with different rights, of which `make lives` has more."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lives.life import Kind, Outcome, live

SEEDS = (1, 2, 3, 4, 5, 6)
"""The slice begins with these lives, and ends with the first after which all has happened."""
WAYS = (
    *("mkdirs", "create", "append", "rename", "delete", "chmod", "chown", "transact"),
    *("setAcl", "modifyAclEntries", "removeAcl", "removeAclEntries", "removeDefaultAcl"),
    *("open", "stat", "list", "getfacl", "summary", "walk", "setrep", "touch", "access", "recover"),
)
HAPPENS = tuple(f"{way} {how}" for way in WAYS for how in ("done", "denied"))
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def counts() -> Counter[str]:
    """Live the slice, in which all was as it should be; return how often each thing happened."""
    outcomes: list[Outcome] = []
    for seed in SEEDS:
        outcome = live(seed, Kind.WHO_MAY)
        assert (outcome.mistakes, outcome.unfinished) == ((), ()), "\n".join(outcome.trace)
        outcomes.append(outcome)
        counts = sum((each.counts for each in outcomes), Counter[str]())
        if all(counts[what] for what in HAPPENS):
            break
    return counts


@pytest.mark.parametrize("what", HAPPENS)
def test_users_may_do_what_hdfs_lets_them_and_nothing_else(counts: Counter[str], what: str) -> None:
    assert counts[what] > 0

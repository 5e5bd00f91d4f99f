"""A slice of the random lives of one file: `make lives` lives as many as you like."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lives.life import Kind, Outcome, live

SLICE = (2, 8)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """The slice, all of which was as it should be, to the end."""
    outcomes = [live(seed, Kind.ONE_FILE) for seed in SLICE]
    for outcome in outcomes:
        assert (outcome.mistakes, outcome.unfinished) == ((), ()), "\n".join(outcome.trace)
    return outcomes


@pytest.mark.parametrize(
    "what",
    [
        "appends",
        "hflushes",
        "hsyncs",
        "truncates",
        "renames",
        "owners killed",
        "bytes read",
        "process killed",
        "process started",
        "power cut",
        "machine lost",
        "leader killed",
        "members decommissioned",
    ],
)
def test_a_reader_sees_a_version_that_was_possible_while_he_read(
    outcomes: list[Outcome], what: str
) -> None:
    assert sum((outcome.counts for outcome in outcomes), Counter[str]())[what] > 0

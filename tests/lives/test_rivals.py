"""A slice of the random lives of several writers of one file: `make lives` lives as many as you
like."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lives.life import Kind, Outcome, live

SLICE = (2,)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """The slice, all of which was as it should be, to the end."""
    outcomes = [live(seed, Kind.RIVALS) for seed in SLICE]
    for outcome in outcomes:
        assert (outcome.mistakes, outcome.unfinished) == ((), ()), "\n".join(outcome.trace)
    return outcomes


@pytest.mark.parametrize(
    "what",
    [
        "acknowledged",
        "bytes read",
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
    ],
)
def test_what_was_acknowledged_to_one_writer_stays_whoever_writes_then(
    outcomes: list[Outcome], what: str
) -> None:
    assert sum((outcome.counts for outcome in outcomes), Counter[str]())[what] > 0

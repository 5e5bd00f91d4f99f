"""A slice of the random lives of several writers of one file: `make lives` lives as many as you
like."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import NoReturn, cast

import pytest

from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import NotFoundError, UnavailableError
from tests.lives.cluster import Cluster
from tests.lives.life import Kind, Outcome, live
from tests.lives.rivals import PATH, Rivals
from tests.lives.world import new_world

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


def test_a_file_that_its_maker_did_not_make_is_made_by_another_writer() -> None:
    """Else a life goes by without a file, and one with a restore waits for its first for ever."""
    made: list[str] = []

    class NoFile:
        async def create(self, path: str, **_: object) -> NoReturn:
            made.append(path)
            raise UnavailableError("refused")

        async def append(self, path: str, **_: object) -> NoReturn:
            raise NotFoundError(path)

        take_over = append

    async def open_often(rivals: Rivals) -> None:
        for _ in range(3):
            with suppress(UnavailableError, NotFoundError):
                await rivals._opened(cast(AsyncClient, NoFile()), rivals.rng)

    with new_world(1) as world:
        rivals = Rivals(world, Cluster(world, ()), random.Random(1))
        world.loop.run_until_complete(open_often(rivals))
    assert made == [PATH, PATH]

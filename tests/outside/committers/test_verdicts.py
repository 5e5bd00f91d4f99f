"""Complaints about jobs whose drivers were killed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.outside.committers.verdicts import Killed, Seen, broken

OLD, NEW, PART = range(10), range(10, 20), range(10, 15)
GOOD_APPEND = Seen(Counter([*OLD, *NEW]), success=True)
GOOD_TABLE = Seen(Counter(NEW), success=True)


def seen(
    *ids: range, success: bool = False, unreadable: tuple[str, ...] = (), hidden: str = ""
) -> Seen:
    rows = Counter(each for some in ids for each in some)
    return Seen(rows, unreadable, success, (hidden,) if hidden else ())


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    "killed",
    [
        Killed(False, OLD, NEW, seen(OLD, success=True), GOOD_APPEND),
        Killed(False, OLD, NEW, GOOD_APPEND, seen(OLD, NEW, NEW, success=True)),
        Killed(True, OLD, NEW, seen(OLD, success=True), GOOD_TABLE),
        Killed(True, OLD, NEW, GOOD_TABLE, GOOD_TABLE),
    ],
)
def test_a_job_that_is_seen_whole_or_not_at_all_breaks_nothing(
    killed: Killed, *, at_once: bool
) -> None:
    assert list(broken(killed, at_once=at_once)) == []


@pytest.mark.parametrize(
    ("killed", "otherwise", "at_once"),
    [
        (
            Killed(False, OLD, NEW, seen(OLD, PART), seen(OLD, PART, NEW, success=True)),
            [],
            ["killed: a part of the job is seen"],
        ),
        (
            Killed(True, OLD, NEW, seen(PART), GOOD_TABLE),
            [],
            [
                "killed: a part of the job is seen",
                "killed: none of the table before, some of the one after",
            ],
        ),
        (
            Killed(True, OLD, NEW, seen(), GOOD_TABLE),
            [],
            ["killed: none of the table before, none of the one after"],
        ),
    ],
)
def test_a_part_of_a_job_breaks_the_promise_of_those_that_publish_at_once(
    killed: Killed, otherwise: list[str], at_once: list[str]
) -> None:
    assert list(broken(killed, at_once=False)) == otherwise
    assert list(broken(killed, at_once=True)) == at_once


@pytest.mark.parametrize(
    ("killed", "told"),
    [
        (
            Killed(True, OLD, NEW, seen(PART, success=True), GOOD_TABLE),
            "killed: _SUCCESS with none of the table before, some of the one after",
        ),
        (
            Killed(False, OLD, NEW, seen(range(5)), GOOD_APPEND),
            "killed: some of the rows that were there",
        ),
        (
            Killed(
                False, OLD, NEW, seen(OLD, PART, PART), seen(OLD, PART, PART, NEW, success=True)
            ),
            "killed: rows are there twice: all of the old ones, some twice of the new ones",
        ),
        (
            Killed(False, OLD, NEW, seen(OLD, unreadable=("part-1",)), GOOD_APPEND),
            "killed: part-1 is not whole",
        ),
        (Killed(False, OLD, NEW, seen(OLD), seen(OLD, NEW)), "run again: no _SUCCESS"),
        (
            Killed(False, OLD, NEW, seen(OLD), seen(OLD, NEW, PART, success=True)),
            "run again: 0 rows are missing, 5 are too many",
        ),
        (
            Killed(True, OLD, NEW, seen(OLD), seen(PART, success=True)),
            "run again: 5 rows are missing, 0 are too many",
        ),
        (
            Killed(True, OLD, NEW, seen(), seen(NEW, success=True, hidden="_temporary")),
            "run again: left behind: _temporary",
        ),
    ],
)
def test_what_must_never_be_seen_is_told(killed: Killed, told: str) -> None:
    assert list(broken(killed, at_once=False)) == [told]


def test_tasks_of_a_dead_job_may_be_published_with_the_next_one_where_that_is_known() -> None:
    again = seen(OLD, NEW, PART, success=True)
    killed = Killed(False, OLD, NEW, seen(OLD), again)
    assert list(broken(killed, at_once=False, adopts=True)) == []
    replaced = Killed(True, OLD, NEW, seen(), seen(NEW, PART, success=True))
    thrice = Killed(False, OLD, NEW, seen(OLD), seen(OLD, NEW, NEW, PART, success=True))
    for each in (replaced, thrice):
        told = ["run again: 0 rows are missing, 5 are too many"]
        assert list(broken(each, at_once=False, adopts=True)) == told

"""Watchers and looks at the past that contradict each other are found."""

from __future__ import annotations

import pytest

from paxosblock.api.watching import ChangeKind, NameChange
from tests.services.one_order import Heard, Look, mistakes

CHANGES = [
    NameChange(5, ChangeKind.CREATED, "/h/1", 10, True),
    NameChange(6, ChangeKind.CREATED, "/h/1/a", 11, True),
    NameChange(8, ChangeKind.CREATED, "/h/1/b", 12, True),
    NameChange(9, ChangeKind.REMOVED, "/h/1/a", 11, True),
    NameChange(12, ChangeKind.CREATED, "/h/1/a", 13, True),
]
LOOKS = (
    Look("/h/1", {}, 5, "a list"),
    Look("/h/1", {"a": 11}, 7, "a list at then"),
    Look("/h/1", {"b": 12}, None, "a snapshot"),
    Look("/h/1", {"a": 13, "b": 12}, 20, "a list"),
)


def heard(*changes: NameChange) -> Heard:
    return Heard("/h", 4, list(changes))


def test_one_order_explains_watchers_lists_and_the_past() -> None:
    assert mistakes([heard(*CHANGES)] * 3, LOOKS) == []


@pytest.mark.parametrize(
    "changes",
    [
        CHANGES[:-1],
        CHANGES[:1] + CHANGES[2:],
        [*CHANGES[:2], CHANGES[1], *CHANGES[2:]],
        [CHANGES[0], CHANGES[2], CHANGES[1], *CHANGES[3:]],
    ],
    ids=["an end that is missing", "a gap", "a repeat", "another order"],
)
def test_a_watcher_who_heard_other_things_is_found(changes: list[NameChange]) -> None:
    assert mistakes([heard(*CHANGES), heard(*changes)], LOOKS)


def test_what_no_watcher_could_hear_is_found() -> None:
    twice = heard(*CHANGES, CHANGES[-1])
    assert mistakes([twice, twice], LOOKS)
    assert mistakes([heard(*CHANGES[:2], CHANGES[1])] * 2, ())


@pytest.mark.parametrize(
    "look",
    [
        Look("/h/1", {"a": 11}, 8, "a list before its revision"),
        Look("/h/1", {"a": 13}, 9, "a list behind its revision"),
        Look("/h/1", {"a": 13}, None, "a snapshot of two moments"),
        Look("/h/1", {}, 12, "a past that is lost"),
    ],
)
def test_a_look_that_no_state_explains_is_found(look: Look) -> None:
    assert mistakes([heard(*CHANGES)], (*LOOKS, look)) == [f"{look.how} of /h/1 shows {look.ids}"]

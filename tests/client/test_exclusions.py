"""For how long a DataNode that failed a writer rests, on a clock in the test's hand."""

from __future__ import annotations

from paxosblock.api.namenode import Excluded
from paxosblock.client.writing.exclusions import (
    FIRST_REST_S,
    FORGET_AFTER_S,
    LONGEST_REST_S,
    Exclusions,
)
from paxosblock.protocol.types import StorageId

A, B = StorageId("a"), StorageId("b")


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_namenode_is_told_how_long_ago_a_storage_failed_and_whether_it_rests() -> None:
    clock = _Clock()
    exclusions = Exclusions(clock)
    assert exclusions.excluded() == ()
    exclusions.add((A,))
    clock.now += 0.5
    exclusions.add((B,))
    assert exclusions.excluded() == (Excluded(A, 0.5, True), Excluded(B, 0.0, True))
    clock.now += 0.5
    assert exclusions.excluded() == (Excluded(A, 1.0, False), Excluded(B, 0.5, True))


def test_a_storage_that_fails_again_and_again_rests_twice_as_long_each_time() -> None:
    clock = _Clock()
    exclusions = Exclusions(clock)
    rests = []
    for _ in range(9):
        exclusions.add((A,))
        began = clock.now
        while exclusions.excluded()[0].resting:
            clock.now += FIRST_REST_S
        rests.append(clock.now - began)
    assert rests == [1, 2, 4, 8, 16, 32, LONGEST_REST_S, LONGEST_REST_S, LONGEST_REST_S]


def test_a_storage_that_does_not_fail_again_is_forgotten() -> None:
    clock = _Clock()
    exclusions = Exclusions(clock)
    exclusions.add((A,))
    clock.now += FIRST_REST_S
    exclusions.add((A,))
    clock.now += 2 * FIRST_REST_S + FORGET_AFTER_S
    assert exclusions.excluded() == ()
    exclusions.add((A,))
    clock.now += FIRST_REST_S
    assert exclusions.excluded() == (Excluded(A, 1.0, False),)


def test_a_storage_that_worked_since_then_begins_anew() -> None:
    clock = _Clock()
    exclusions = Exclusions(clock)
    exclusions.add((A, B))
    clock.now += FIRST_REST_S
    exclusions.add((A, B))
    exclusions.forgive((A,))
    assert exclusions.excluded() == (Excluded(B, 0.0, True),)
    exclusions.add((A,))
    clock.now += FIRST_REST_S
    assert exclusions.excluded() == (Excluded(B, 1.0, True), Excluded(A, 1.0, False))


def test_when_no_other_datanode_is_left_the_rest_ends_but_not_the_memory() -> None:
    clock = _Clock()
    exclusions = Exclusions(clock)
    exclusions.add((A,))
    clock.now += FIRST_REST_S
    exclusions.add((A,))
    clock.now += 1.5
    exclusions.end_rest()
    assert exclusions.excluded() == (Excluded(A, 1.5, False),)
    exclusions.add((A,))
    clock.now += 2.5
    assert exclusions.excluded() == (Excluded(A, 2.5, True),), "three seconds: twice what it rested"

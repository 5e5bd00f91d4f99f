"""The order in which blocks wait for a copy."""

from __future__ import annotations

from paxosblock.namenode.blocks.replication.waiting import Waiting
from paxosblock.protocol.types import BlockId

A, B, C, D = (BlockId(number) for number in range(1, 5))


def waiting(**ranks: int) -> Waiting:
    """The blocks a, b ... in these ranks."""
    made = Waiting()
    for name, rank in ranks.items():
        made.put(BlockId(ord(name) - ord("a") + 1), rank)
    return made


def test_those_with_the_fewest_replicas_come_first_and_of_equals_who_waits_longest() -> None:
    assert waiting(a=2, b=1, c=2, d=1).first(4) == (B, D, A, C)
    assert waiting(a=2, b=1, c=2, d=1).first(3) == (B, D, A)


def test_who_is_put_again_keeps_its_place_unless_its_rank_changed() -> None:
    found = waiting(a=1, b=1, c=2)
    found.put(A, 1)
    assert found.first(3) == (A, B, C)
    found.put(C, 0)
    found.put(A, 2)
    assert (found.first(3), len(found)) == ((C, B, A), 3)


def test_who_is_parked_stands_in_nobodys_way_and_still_waits() -> None:
    found = waiting(a=1, b=1, c=1)
    found.park(A)
    found.park(B)
    found.park(A)
    found.put(A, 0)
    assert (found.first(3), len(found), A in found) == ((C,), 3, True)
    found.unpark(1)
    assert found.first(3) == (A, C)
    found.unpark()
    assert found.first(3) == (A, C, B)


def test_who_is_dropped_waits_no_more_parked_or_not() -> None:
    found = waiting(a=1, b=1, c=1)
    found.park(B)
    for block in (A, B, D):
        found.drop(block)
    assert (found.first(3), len(found), B in found) == ((C,), 1, False)
    found.clear()
    found.put(C, 3)
    assert found.first(3) == (C,)

"""Nothing that ends between two steps of a copy, K12 and K13 costs a block a whole replica.

The block has three replicas, one of them moves, and one goes: a copy, K12, K13 twice, what those
who stay are told (P5) and what those who left are told (D7). Each change of each disk is a step.
"""

from __future__ import annotations

import pytest

from paxosblock.namenode.blocks.replication.copies import Copies, Copy
from tests.disks.simulated import Burns
from tests.lives.steps import RACKS, Blow, Hit, Told, every_hit, some, tell
from tests.lives.world import changed

SLICE = 12
NAMENODE = -1
VICTIMS = (NAMENODE, *range(len(RACKS)))


def test_without_a_blow_two_replicas_are_left_and_all_others_are_deleted() -> None:
    told = tell()
    assert (told.mistakes, told.unfinished) == ((), ())
    assert all(told.steps), "every DataNode and the NameNode take part"


def harmful(hits: list[Hit]) -> list[tuple[Hit, Told]]:
    """Those of the hits that cost a replica, or after which not all is as it should be."""
    assert hits
    outcomes = [(hit, tell(hit)) for hit in hits]
    assert all(told.met for _, told in outcomes), "each step is there to be hit"
    return [(hit, told) for hit, told in outcomes if told.mistakes or told.unfinished]


@pytest.mark.parametrize("blow", Blow)
def test_no_step_in_the_middle_of_which_it_happens_costs_a_whole_replica(blow: Blow) -> None:
    assert harmful(some(every_hit((blow,), tuple(Burns), VICTIMS), SLICE, seed=1)) == []


def test_a_copy_that_counts_before_it_is_made_is_noticed() -> None:
    """The same stories find a fault that is planted: K12 when a copy is asked for."""
    make = Copies._make

    async def make_late(copies: Copies, copy: Copy) -> None:
        await copies.adopt(copy.record.block, copy.target, copy.record.finalized_generation)
        await make(copies, copy)

    with changed(((Copies, "_make", make_late),)):
        hits = [None, *some(every_hit((Blow.KILL,), (Burns.BEFORE,), VICTIMS), SLICE, seed=1)]
        assert any(told.mistakes for told in map(tell, hits))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("blow", Blow)
@pytest.mark.parametrize("victim", VICTIMS)
def test_no_step_at_all_costs_a_whole_replica(blow: Blow, victim: int) -> None:
    assert harmful(every_hit((blow,), tuple(Burns), (victim,))) == []

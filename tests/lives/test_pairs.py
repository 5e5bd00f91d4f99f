"""The count of what was at once in a life."""

from __future__ import annotations

import math
from collections import Counter

from paxosblock.protocol.types import BlockId
from tests.lives.pairs import (
    FAULTS,
    LINGERS_S,
    SERVICES,
    Pair,
    Pairs,
    empty,
    pair,
    table,
)
from tests.raft.virtual_time import VirtualTimeLoop

ONE, OTHER = BlockId(1), BlockId(2)


def test_two_services_count_if_they_are_at_one_block_at_one_time() -> None:
    loop = VirtualTimeLoop()
    pairs = Pairs(loop)
    with pairs.at_work("copy", ONE):
        pairs.touch("scrub", OTHER, None)
        pairs.touch("finalize", ONE, None)
    loop.now += 2 * LINGERS_S
    pairs.touch("delete", ONE, None)
    loop.close()
    assert pairs.of_services == {("copy", "finalize"): 1}


def test_a_fault_counts_until_what_it_took_away_is_back() -> None:
    loop = VirtualTimeLoop()
    pairs = Pairs(loop)
    pairs.fault("disk full")
    pairs.lasts(5.0)
    loop.now += 4.0
    pairs.fault("power cut")
    loop.now += 4.0
    pairs.fault("cut off")
    loop.close()
    assert pairs.of_faults == {("disk full", "power cut"): 1}


def test_every_empty_cell_is_told() -> None:
    nothing: Counter[Pair] = Counter()
    told = empty(SERVICES, nothing) + empty(FAULTS, nothing)
    assert len(told) == (math.comb(len(SERVICES), 2) + math.comb(len(FAULTS), 2))
    assert pair("write", "copy") in told
    assert empty(("copy", "write"), Counter({("copy", "write"): 1})) == []
    assert table(("copy", "write"), Counter({("copy", "write"): 7}))[1].split() == ["copy", "7"]

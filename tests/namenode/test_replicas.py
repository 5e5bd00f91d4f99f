"""The meaning of a block report: a verdict per replica, and who holds what."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest
from msgspec.structs import replace

from paxosblock.api.datanode import ReplicaSummary
from paxosblock.api.reports import ALL_BLOCKS, BlockRange
from paxosblock.namenode.blocks.replicas import Replicas, Verdict, judge, judge_dead
from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import ReadReply
from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    BlockState,
    ChunkIndex,
    ChunkName,
    Durability,
    Generation,
    Registers,
    ReplicaState,
    StorageId,
)
from tests.namenode.scene import ANN, MEMBERS

BLOCK = BlockId(1)
OPEN = finalize.add_block(BLOCK, MEMBERS, ANN, 2, Durability.DISK)
#: Finalized at generation 4 with 2 chunks, its writer epoch being 2.
DECIDED = replace(
    OPEN,
    state=BlockState.FINALIZED,
    generation=Generation(4),
    writer_generation=Generation(2),
    finalized_generation=Generation(4),
    length=2,
    size_bytes=20,
)
APPENDING = replace(DECIDED, generation=Generation(5))
RESTORED = finalize.bring_back(DECIDED)
REBUILT = replace(OPEN, generation=Generation(3), writer_generation=Generation(2))


def summary(
    storage: str = "s1",
    state: ReplicaState = ReplicaState.FINALIZED,
    accepted: int = 4,
    promised: int = 4,
    *,
    length: int = 2,
    crc: int = 7,
) -> ReplicaSummary:
    generation, epoch = Generation(accepted), Generation(0)
    registers = Registers(
        Generation(promised),
        generation,
        epoch,
        length,
        state,
        window=2,
        durability=Durability.DISK,
        finalized_generation=generation,
        finalized_length=length,
    )
    reply = ReadReply(BLOCK, StorageId(storage), registers, False, length, 10 * length, 0)
    return ReplicaSummary(
        StorageId(storage), reply, state.value, ChunkName(ChunkIndex(length - 1), 10, crc)
    )


RBW = ReplicaState.RBW


def test_a_replica_that_does_not_fit_is_known_until_it_is_gone() -> None:
    replicas = Replicas()
    replicas.note(BLOCK, StorageId("s1"), Generation(4))
    replicas.note_unclear(BLOCK, StorageId("s9"))
    assert replicas.known(BLOCK) == {"s1", "s9"}
    replicas.forget(BLOCK, StorageId("s9"))
    assert replicas.known(BLOCK) == {"s1"}
    replicas.note_damaged(BLOCK, StorageId("s1"))
    assert replicas.known(BLOCK) == frozenset()


@pytest.mark.parametrize(
    ("record", "ours", "reported", "verdict", "why"),
    [
        (DECIDED, True, summary(), Verdict.HOLDS, ""),
        (DECIDED, True, summary(state=RBW, accepted=2), Verdict.FINALIZE, "is at generation 2"),
        (DECIDED, True, summary(accepted=3, promised=3), Verdict.FINALIZE, "is at generation 3"),
        (DECIDED, True, summary(length=1), Verdict.ALARM, "I7"),
        (DECIDED, True, summary(accepted=3, promised=3, length=1), Verdict.ALARM, "I7"),
        (DECIDED, True, summary(accepted=1, promised=3, length=1), Verdict.FINALIZE, "is at"),
        (DECIDED, True, summary("s9", RBW, 1, 1), Verdict.DELETE, "no member"),
        (DECIDED, True, summary("s9"), Verdict.COPIED, ""),
        (RESTORED, True, summary(), Verdict.HOLDS, ""),
        (RESTORED, True, summary("s9"), Verdict.KNOWN, ""),
        (RESTORED, True, summary("s9", accepted=9, promised=9), Verdict.KNOWN, ""),
        (RESTORED, True, summary(promised=1 << 40), Verdict.HOLDS, ""),
        (RESTORED, True, summary(state=RBW, accepted=7, promised=7), Verdict.KNOWN, ""),
        (RESTORED, True, summary(length=1), Verdict.KNOWN, ""),
        (DECIDED, True, summary("s9", length=1), Verdict.ALARM, "I7"),
        (DECIDED, True, summary("s9", RBW, 4, 4), Verdict.FINE, ""),
        (DECIDED, True, summary(promised=5), Verdict.ALARM, "I9"),
        (OPEN, True, summary(state=RBW, accepted=0, promised=0), Verdict.FINE, ""),
        (OPEN, True, summary(accepted=0, promised=0), Verdict.ALARM, "I6"),
        (REBUILT, True, summary(accepted=1, promised=1), Verdict.FINE, ""),
        (REBUILT, True, summary("s9", RBW, 1, 1), Verdict.DELETE, "no member"),
        (REBUILT, True, summary("s9", RBW, 3, 3), Verdict.FINE, ""),
        (None, True, summary(), Verdict.DELETE, "deleted"),
        (None, False, summary(), Verdict.ALARM, "I9"),
        (None, False, summary(state=ReplicaState.TEMPORARY), Verdict.FINE, ""),
    ],
)
def test_a_reported_replica_gets_a_verdict(
    record: BlockRecord | None, ours: bool, reported: ReplicaSummary, verdict: Verdict, why: str
) -> None:
    finding = judge(record, ours, reported)
    assert (finding.verdict, why in finding.why) == (verdict, True)


@pytest.mark.parametrize(
    ("record", "ours", "storage", "promised", "finding"),
    [
        (DECIDED, True, "s1", 4, (Verdict.DAMAGED, NO_GENERATION)),
        (DECIDED, True, "s1", NO_GENERATION, (Verdict.DAMAGED, NO_GENERATION)),
        (OPEN, True, "s1", 0, (Verdict.DAMAGED, NO_GENERATION)),
        (DECIDED, True, "s9", 2, (Verdict.DELETE, 3)),
        (DECIDED, True, "s9", NO_GENERATION, (Verdict.DELETE, 3)),
        (DECIDED, True, "s9", 4, (Verdict.FINALIZE, NO_GENERATION)),
        (APPENDING, True, "s9", 4, (Verdict.FINE, NO_GENERATION)),
        (APPENDING, True, "s9", 5, (Verdict.FINE, NO_GENERATION)),
        (REBUILT, True, "s9", 3, (Verdict.FINE, NO_GENERATION)),
        (None, True, "s1", 4, (Verdict.DELETE, 4)),
        (None, True, "s1", NO_GENERATION, (Verdict.DELETE, NO_GENERATION)),
        (None, False, "s1", 4, (Verdict.ALARM, NO_GENERATION)),
        (DECIDED, True, "s9", 5, (Verdict.ALARM, NO_GENERATION)),
    ],
)
def test_a_dead_replica_gets_a_verdict(
    record: BlockRecord | None,
    ours: bool,
    storage: str,
    promised: int,
    finding: tuple[Verdict, int],
) -> None:
    """One that a member needs is replaced; a leftover goes, up to what may not be a leftover."""
    found = judge_dead(record, ours, StorageId(storage), Generation(promised))
    assert (found.verdict, found.up_to) == finding


def test_deleting_never_reaches_a_recovery_that_is_under_way() -> None:
    """D7: the bound is below any generation that an APPEND or REBUILD may have promised, and below
    that of a copy which may become a member (K12)."""
    bound = DECIDED.finalized_generation - 1
    assert judge(APPENDING, True, summary("s9", RBW, 1, 1)).up_to == bound
    assert judge(REBUILT, True, summary("s9", RBW, 1, 1)).up_to == REBUILT.writer_generation - 1


def test_only_members_with_the_decided_version_are_holders() -> None:
    replicas = Replicas()
    replicas.note(BLOCK, MEMBERS[0], Generation(1))
    assert replicas.holders(DECIDED) == ()
    replicas.note(BLOCK, MEMBERS[1], Generation(4))
    replicas.note(BLOCK, StorageId("s9"), Generation(4))
    replicas.note(BLOCK, MEMBERS[2], Generation(1))
    assert replicas.holders(DECIDED) == replicas.whole(DECIDED) == (MEMBERS[1],)
    assert replicas.is_complete(DECIDED, 1)
    assert not replicas.is_complete(DECIDED, 2)
    assert not replicas.is_complete(OPEN, 1)


def test_a_block_with_fewer_members_than_the_minimum_is_complete_with_all_of_them() -> None:
    replicas = Replicas()
    replicas.note(BLOCK, MEMBERS[0], Generation(4))
    assert replicas.is_complete(replace(DECIDED, members=MEMBERS[:1]), 2)


def test_two_holders_of_one_version_with_different_bytes_are_noticed() -> None:
    replicas = Replicas()
    assert replicas.note(BLOCK, MEMBERS[0], Generation(4))
    assert replicas.note(BLOCK, MEMBERS[1], Generation(4), last_crc=7)
    assert not replicas.note(BLOCK, MEMBERS[2], Generation(4), last_crc=8)
    assert replicas.holders(DECIDED) == MEMBERS[:2]


def test_what_a_report_says_of_the_bytes_counts_for_a_holder_that_is_known_already() -> None:
    """I7: the answers to Finalize name no bytes, and come first."""
    replicas = Replicas()
    for member in MEMBERS:
        assert replicas.note(BLOCK, member, Generation(4))
    assert replicas.note(BLOCK, MEMBERS[0], Generation(4), last_crc=7)
    assert replicas.note(BLOCK, MEMBERS[1], Generation(4), last_crc=7)
    assert not replicas.note(BLOCK, MEMBERS[2], Generation(4), last_crc=8)
    assert replicas.holders(DECIDED) == MEMBERS


def test_what_a_storage_holds_is_told_in_order_of_the_ids_from_a_range() -> None:
    replicas = Replicas()
    for block in (9, 2, 7, 4):
        replicas.note(BlockId(block), MEMBERS[0], Generation(1))
    replicas.note(BlockId(3), MEMBERS[1], Generation(1))
    between = BlockRange(BlockId(2), BlockId(7))
    assert replicas.blocks_of(MEMBERS[0], between, 10) == (4, 7)
    assert replicas.blocks_of(MEMBERS[0], ALL_BLOCKS, 3) == (2, 4, 7)
    replicas.forget(BlockId(4), MEMBERS[0])
    assert replicas.blocks_of(MEMBERS[0], between, 10) == (7,)
    assert replicas.blocks_of(MEMBERS[2], ALL_BLOCKS, 10) == ()


def test_after_a_member_left_the_others_are_whole_before_they_are_told() -> None:
    """K13: else a block that lacks nothing would count as incomplete, and be copied."""
    replicas = Replicas()
    for member in MEMBERS:
        replicas.note(BLOCK, member, Generation(4), last_crc=7)
    left = finalize.remove_replica(DECIDED, MEMBERS[0], Generation(4), MEMBERS[1:], 2)
    assert isinstance(left, BlockRecord)
    assert (replicas.holders(left), replicas.whole(left)) == ((), MEMBERS[1:])
    assert replicas.is_complete(left, 2)
    replicas.note(BLOCK, MEMBERS[2], left.finalized_generation)
    assert replicas.holders(left) == (MEMBERS[2],)
    assert sorted(replicas.whole(left)) == list(MEMBERS[1:])
    replicas.note(BLOCK, MEMBERS[2], Generation(4), last_crc=7)  # a report that was overtaken
    assert replicas.holders(left) == (MEMBERS[2],)
    replicas.forget(BLOCK, MEMBERS[1])
    assert replicas.whole(left) == (MEMBERS[2],)
    assert replicas.blocks_of(MEMBERS[1], ALL_BLOCKS, 10) == ()
    replicas.forget_block(BLOCK)
    assert replicas.whole(left) == ()
    assert all(replicas.count((member,)) == 0 for member in MEMBERS)


def test_what_was_finalized_before_the_block_was_opened_again_is_not_whole() -> None:
    replicas = Replicas()
    replicas.note(BLOCK, MEMBERS[0], Generation(1))
    replicas.note(BLOCK, MEMBERS[1], Generation(3))
    assert replicas.whole(DECIDED) == (MEMBERS[1],)
    assert replicas.whole(OPEN) == ()


def test_different_bytes_are_noticed_among_the_holders_of_a_version_before() -> None:
    replicas = Replicas()
    assert replicas.note(BLOCK, MEMBERS[0], Generation(4), last_crc=7)
    assert replicas.note(BLOCK, MEMBERS[1], Generation(5), last_crc=7)
    assert not replicas.note(BLOCK, MEMBERS[2], Generation(4), last_crc=8)


async def test_whoever_waits_for_completeness_is_woken_by_the_last_report_needed() -> None:
    replicas = Replicas()
    waiting = [asyncio.create_task(replicas.wait_complete(DECIDED, 2)) for _ in range(3)]
    replicas.note(BLOCK, MEMBERS[0], Generation(4))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    replicas.note(BLOCK, MEMBERS[1], Generation(4))
    async with asyncio.timeout(1):
        await asyncio.gather(*waiting)
    assert replicas.is_complete(DECIDED, 2)


@pytest.mark.slow
def test_no_replica_of_a_million_takes_long_to_note() -> None:
    replicas, longest_s = Replicas(), 0.0
    gc.disable()  # a node's objects are frozen; a test run has many that are not its own
    try:
        for number in range(1_000_000):
            block, begun_s = BlockId((7 << 32) + number), time.thread_time()
            replicas.note(block, MEMBERS[0], DECIDED.finalized_generation)
            longest_s = max(longest_s, time.thread_time() - begun_s)
    finally:
        gc.enable()
    assert longest_s < 0.01, "the loop stands still meanwhile"

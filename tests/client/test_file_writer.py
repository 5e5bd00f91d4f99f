"""Files being written, through failures of DataNodes (the write path against the shipped nodes)."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
import traceback
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from paxosblock.api.namenode import CLOSE_FILE, SEAL_BLOCK, BlockView
from paxosblock.base.units import KIB
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.next_block import Unopened
from paxosblock.client.writing.receipt import BlockReceipt, FlushReceipt
from paxosblock.errors import (
    CorruptionError,
    DeadlineError,
    FencedError,
    InvalidRequestError,
    NoSpaceError,
    NotReadyError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.protocol.invariants import InvariantError
from paxosblock.protocol.messages import Vote
from paxosblock.protocol.types import ChunkIndex, Durability, Reason
from tests.client.shipped import NAMENODE, NEAR, shipped_cluster
from tests.waiting import wait_until_async

NO_PLACE = NoSpaceError("too few DataNodes")
FULL = NoSpaceError("the disk of NameNode a is full", address="a")


async def test_a_file_comes_out_byte_for_byte_over_several_blocks() -> None:
    data = os.urandom(100 * KIB + 17)
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a", chunk_size=4 * KIB, block_size=32 * KIB) as out:
            assert await out.write(data) == len(data)
            assert out.tell() == len(data)
        assert await cluster.content("/a") == data
        assert len(await cluster.records("/a")) == 4
        assert (await fs.stat("/a")).size == len(data)


async def test_a_small_file_is_closed_by_one_call_that_ends_its_block() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a") as out:
            await out.write(b"a line")
            await out.hflush()
            begun = len(cluster.calls)
        assert [name for name in cluster.calls[begun:] if name != "renew_leases"] == ["close_file"]
        assert await cluster.content("/a") == b"a line"
        assert out.status.size == 6


async def test_a_close_whose_votes_do_not_come_goes_on_in_another_block() -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a")
        await out.write(b"a line")
        await out.hflush()
        await out.write(b" and one more")
        cluster.nodes[0].wire.faults.refuses_chunks = Reason.NO_SPACE
        await out.close()
        assert await cluster.content("/a") == b"a line and one more"


async def test_a_flush_tells_which_chunk_is_acknowledged_by_whom() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a", durability="memory") as out:
            assert (await out.hflush()).chunk == -1
            await out.write(b"hello")
            receipt = await out.hflush()
        (record,) = await cluster.records("/a")
        block, members = record.block, record.members
        held = BlockReceipt(block, 3, 0)
        assert receipt == FlushReceipt(
            block, receipt.generation, 0, 5, members, Durability.MEMORY, (held,)
        )
        assert set(members) == {node.storage for node in cluster.nodes}
        assert await cluster.content("/a") == b"hello"


async def test_a_sync_without_new_data_sends_an_empty_chunk_that_asks_for_the_disk() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a", durability="memory") as out:
            await out.write(b"hello")
            await out.hflush()
            receipt = await out.hsync()
            again = await out.hsync()
        assert receipt.chunk == 1
        assert receipt.size == 5
        assert receipt.durability is Durability.DISK
        assert receipt.blocks == (BlockReceipt(receipt.block, 3, 3),)
        assert again == receipt
        assert await cluster.content("/a") == b"hello"


async def test_a_sync_waits_until_earlier_blocks_are_finalized_on_disk() -> None:
    async with shipped_cluster() as (cluster, fs):
        cluster.hold_namenode()
        out = await fs.create("/a", durability="memory", chunk_size=10, block_size=10)
        await out.write(b"x" * 15)
        await out.hflush()
        sync = asyncio.create_task(out.hsync())
        asked = cluster.nodes[0].wire.asked["Read"]
        await wait_until_async(lambda: cluster.nodes[0].wire.asked["Read"] > asked + 1)
        assert not sync.done()
        cluster.release_namenode()
        assert (await sync).size == 15
        await out.close()


async def test_one_member_that_finalized_a_block_is_too_few_for_a_sync() -> None:
    """That one may be lost, and a read quorum without it sees what the others lost."""
    async with shipped_cluster() as (cluster, fs):
        cluster.hold_namenode()
        out = await fs.create("/a", durability="memory", chunk_size=10, block_size=10)
        await out.write(b"x" * 15)
        await out.hflush()
        first = (await cluster.records("/a"))[0].block
        await cluster.tell(cluster.nodes[0], first)
        sync = asyncio.create_task(out.hsync())
        asked = cluster.nodes[0].wire.asked["Read"]
        await wait_until_async(lambda: cluster.nodes[0].wire.asked["Read"] > asked + 1)
        assert not sync.done()
        await cluster.tell(cluster.nodes[1], first)
        receipt = await sync
        assert receipt.size == 15
        assert receipt.blocks == (BlockReceipt(first, 3, 2), BlockReceipt(receipt.block, 3, 3))
        cluster.release_namenode()
        await out.close()


@pytest.mark.parametrize("decided", [2, 9], ids=["less than acknowledged", "more than sent"])
async def test_a_decided_length_that_cannot_be_is_corruption(decided: int) -> None:
    """I5: the cluster lost what it acknowledged, or made up what no writer sent."""
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a", chunk_size=10)
        await out.write(b"x" * 30)
        await out.hflush()

        def lie(view: BlockView) -> BlockView:
            record = replace(view.record, length=decided, size_bytes=10 * decided)
            return replace(view, record=record)

        cluster.changes[SEAL_BLOCK] = lie
        cluster.nodes[0].wire.cut()
        await out.write(b"y")
        with pytest.raises(CorruptionError, match=f"finalized with {decided} chunks, but 3 are"):
            await out.hflush()
        await out.abort()


async def test_a_file_that_is_closed_with_fewer_bytes_than_acknowledged_is_corruption() -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a", chunk_size=10)
        await out.write(b"x" * 30)
        await out.hflush()
        cluster.changes[CLOSE_FILE] = lambda status: replace(status, size=status.size - 10)
        with pytest.raises(CorruptionError, match="closed with 20 bytes, but 30 are acknowledged"):
            await out.close()


async def test_a_sync_waits_for_a_block_whose_close_was_recorded_without_an_answer() -> None:
    """The writer's close decided it, not a recovery: nothing of it need be on a disk yet."""
    async with shipped_cluster(retry_for_s=1.0) as (cluster, fs):
        cluster.hold_namenode()
        out = await fs.create("/a", durability="memory", chunk_size=10, block_size=10)
        await out.write(b"x" * 10)
        await out.hflush()
        cluster.answers_lost.add("finalize_block")
        with pytest.raises(OutcomeUnknownError):
            await out.write(b"y" * 10)
        cluster.answers_lost.clear()
        (first,) = await cluster.records("/a")
        assert first.finalized
        cluster.nodes[0].wire.cut()
        assert out._left is not None
        block = out._left.block
        await wait_until_async(lambda: block._failure is not None)
        with pytest.raises(DeadlineError, match="on stable storage"):
            await out.hsync()
        cluster.release_namenode()
        assert (await out.hsync()).size == 20
        await out.close()
        assert await cluster.content("/a") == b"x" * 10 + b"y" * 10


async def test_a_block_whose_end_nobody_told_the_writer_does_not_stop_it() -> None:
    """A member took no replica, and the block was ended; but that answer was lost, too."""
    async with shipped_cluster(4, host=NEAR, retry_for_s=1.0) as (cluster, fs):
        cluster.nodes[0].wire.faults.refuses_replicas = True
        cluster.answers_lost.add("seal_block")
        out = await fs.create("/a")
        await out.write(b"hello")
        with pytest.raises(OutcomeUnknownError):
            await out.hflush()
        cluster.answers_lost.clear()
        assert (await out.hflush()).size == 5
        await out.close()
        assert await cluster.content("/a") == b"hello"


@pytest.mark.parametrize(("members", "on_disk"), [(3, 2), (2, 1)])
async def test_of_a_block_that_a_recovery_ended_only_its_quorum_is_on_disk_for_sure(
    members: int, on_disk: int
) -> None:
    async with shipped_cluster(members + 1, host=NEAR) as (
        cluster,
        fs,
    ):  # it may go on without the cut one
        out = await fs.create("/a", replication=members, durability="memory")
        await out.write(b"hello")
        await out.hflush()
        (block,) = [each.block for each in await cluster.records("/a")]
        writing = out._block
        assert writing is not None
        cluster.nodes[0].wire.cut()
        await wait_until_async(lambda: writing.failure is not None)
        receipt = await out.hsync()
        assert receipt.blocks[0] == BlockReceipt(block, members, on_disk)
        assert cluster.nodes[0].storage not in receipt.replicas
        assert (await out.hsync()).blocks == receipt.blocks[1:], "told once"
        await out.close()


@pytest.mark.parametrize("chunks_before", [0, 1, 3, 7])
async def test_a_datanode_that_dies_in_mid_write_is_not_noticed(chunks_before: int) -> None:
    data = os.urandom(50 * KIB)
    async with shipped_cluster(4, host=NEAR) as (cluster, fs):
        cluster.nodes[0].wire.faults.drops_after_chunks = chunks_before
        async with await fs.create("/a", chunk_size=4 * KIB) as out:
            await out.write(data)
            receipt = await out.hflush()
            assert receipt.size == len(data)
            assert cluster.nodes[0].storage not in receipt.replicas
        assert await cluster.content("/a") == data
        assert len(await cluster.records("/a")) == 2


async def test_chunks_that_no_member_received_go_to_the_next_block_in_their_order() -> None:
    """W7."""
    data = os.urandom(4 * KIB)
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a", chunk_size=KIB, window=4) as out:
            await out.write(data[:KIB])
            await out.hflush()
            for node in cluster.nodes:
                node.wire.hang()
            await out.write(data[KIB:])
            for node in cluster.nodes:
                node.wire.cut()
            await out.hflush()
        assert [record.length for record in await cluster.records("/a")] == [1, 3]
        assert await cluster.content("/a") == data


async def test_a_refused_write_moves_the_file_to_another_block() -> None:
    async with shipped_cluster(4, host=NEAR) as (cluster, fs):
        cluster.nodes[0].wire.faults.refuses_chunks = Reason.GAP
        async with await fs.create("/a") as out:
            await out.write(b"hello")
        assert await cluster.content("/a") == b"hello"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason.NO_SPACE, "its disk is full"),
        (Reason.NO_REPLICA, "its volume failed, or lost the replica"),
    ],
)
async def test_a_datanode_that_is_full_or_failed_is_left_out_of_the_next_block_and_told_why(
    reason: Reason, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with shipped_cluster(4, host=NEAR) as (cluster, fs):
        cluster.nodes[0].wire.faults.refuses_chunks = reason
        async with await fs.create("/a") as out:
            await out.write(b"hello")
            receipt = await out.hflush()
        assert cluster.nodes[0].storage not in receipt.replicas
        assert f"{cluster.nodes[0].storage} refused a chunk: {words}; sealed with" in caplog.text
        assert await cluster.content("/a") == b"hello"


async def test_a_datanode_that_votes_late_is_left_behind() -> None:
    async with shipped_cluster(4, host=NEAR, vote_timeout_s=1.0) as (cluster, fs):
        cluster.nodes[0].wire.votes_may_go.clear()
        async with await fs.create("/a", chunk_size=1000) as out:
            await out.write(b"x" * 10_000)
        assert await cluster.content("/a") == b"x" * 10_000
        *_, last = await cluster.records("/a")
        assert cluster.nodes[0].storage not in last.members


async def test_a_datanode_that_talks_garbage_is_left_behind() -> None:
    async with shipped_cluster(4, host=NEAR) as (cluster, fs):
        cluster.nodes[0].wire.faults.talks_garbage = True
        async with await fs.create("/a") as out:
            await out.write(b"hello")
        assert await cluster.content("/a") == b"hello"


async def test_a_member_lost_right_behind_the_vote_that_made_room_costs_no_chunk() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a", chunk_size=KIB, window=1) as out:
            for node in cluster.nodes:
                node.wire.votes_may_go.clear()
            await out.write(b"a" * KIB)
            second = asyncio.create_task(out.write(b"b" * KIB))
            block = out._block
            assert block is not None
            await wait_until_async(lambda: bool(block._waiters))
            for storage in block.members:
                block.on_vote(
                    Vote(block.block, block.generation, ChunkIndex(0), storage, synced=True)
                )
            block.on_lost(block.members[0], UnavailableError("its DataNode died"))
            for node in cluster.nodes:
                node.wire.votes_may_go.set()
            await second
        assert await cluster.content("/a") == b"a" * KIB + b"b" * KIB


async def test_no_flush_succeeds_that_lacks_a_byte() -> None:
    """W3: whatever this program does wrong, it gives no receipt for a file with a hole."""
    async with shipped_cluster() as (_, fs):
        out = await fs.create("/a")
        await out.write(b"hello")
        out._cut_bytes += 1
        with pytest.raises(InvariantError, match="W3"):
            await out.hflush()
        await out.abort()


async def test_a_vote_for_a_chunk_that_was_never_sent_ends_the_block() -> None:
    """I5."""
    async with shipped_cluster(4, host=NEAR) as (cluster, fs):
        cluster.nodes[0].wire.faults.votes_for_unsent = True
        async with await fs.create("/a") as out:
            await out.write(b"hello")
            await out.hflush()
        assert await cluster.content("/a") == b"hello"
        sealed, *_ = await cluster.records("/a")
        assert sealed.finalized_generation >= 2, "a recovery ended it, not the writer"


async def test_a_datanode_that_takes_no_replica_is_replaced() -> None:
    """W1."""
    async with shipped_cluster(4, host=NEAR) as (cluster, fs):
        cluster.nodes[0].wire.faults.refuses_replicas = True
        async with await fs.create("/a") as out:
            await out.write(b"hello")
        assert await cluster.content("/a") == b"hello"


async def test_fewer_replicas_than_asked_for_are_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shipped_cluster(2) as (_, fs):
        async with await fs.create("/a", block_size=1, chunk_size=1) as out:
            assert out.fewest_replicas == 3
            await out.write(b"abc")
        assert out.fewest_replicas == 2
    warnings = [record.message for record in caplog.records]
    assert warnings == ["'/a': a block gets only 2 of 3 replicas: too few DataNodes"]


async def test_two_of_three_datanodes_are_enough_to_go_on() -> None:
    data = os.urandom(20 * KIB)
    async with shipped_cluster(3) as (cluster, fs):
        async with await fs.create("/a", chunk_size=KIB) as out:
            await out.write(data[: 10 * KIB])
            await out.hflush()
            await cluster.nodes[2].kill()
            await out.write(data[10 * KIB :])
        assert await cluster.content("/a") == data


async def test_blocks_that_fail_one_after_the_other_are_begun_at_longer_and_longer_intervals() -> (
    None
):
    """No DataNode is to blame, so none is left out: each is begun with the same DataNodes."""
    async with shipped_cluster(3, retry_for_s=1.0) as (cluster, fs):
        out = await fs.create("/a")
        for node in cluster.nodes:
            node.wire.faults.refuses_chunks = Reason.FENCED
        await out.write(b"one")
        with pytest.raises(UnavailableError, match="no block takes chunks"):
            await out.hflush()
        assert 3 <= cluster.calls.count("add_block") <= 12, "after 10, 20, 40 ... milliseconds"
        for node in cluster.nodes:
            node.wire.faults.refuses_chunks = None
        await out.close()
        assert await cluster.content("/a") == b"one"


async def test_a_namenode_whose_disk_fills_when_it_has_added_a_block_is_waited_for() -> None:
    """Its answer was lost, so it cannot be said that nothing was done; but that it may be soon."""
    async with shipped_cluster(retry_for_s=30.0) as (cluster, fs):
        async with await fs.create("/a") as out:
            cluster.answers_lost.add("add_block")
            await out.write(b"hello")
            flushing = asyncio.create_task(out.hflush())
            await wait_until_async(lambda: "add_block" in cluster.calls)
            cluster.refusal = FULL
            asked = len(cluster.calls)
            await wait_until_async(lambda: flushing.done() or len(cluster.calls) > asked + 2)
            cluster.refusal = None
            cluster.answers_lost.clear()
            assert (await flushing).size == 5
        assert await cluster.content("/a") == b"hello"


async def test_a_file_whose_datanodes_are_gone_says_so_and_goes_on_when_they_are_back() -> None:
    names = dataclasses.replace(NAMENODE, recovery_timeout_s=0.2)
    async with shipped_cluster(names=names, retry_for_s=1.0) as (cluster, fs):
        async with await fs.create("/a") as out:
            await out.write(b"one")
            await out.hflush()
            for node in cluster.nodes[:2]:
                await node.kill()
            await out.write(b"two")
            with pytest.raises((UnavailableError, NotReadyError, DeadlineError)) as caught:
                await out.hflush()
            assert caught.value.outcome is Outcome.UNKNOWN, "a later call sends it"
            for node in cluster.nodes[:2]:
                await node.start()
            assert (await out.hflush()).size == 6
        assert await cluster.content("/a") == b"onetwo"


async def test_a_namenode_that_is_away_for_a_moment_is_not_noticed() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a", chunk_size=10, block_size=10) as out:
            await out.write(b"x" * 10)
            await cluster.stop_namenode()
            writing = asyncio.create_task(out.write(b"y" * 20))
            await wait_until_async(lambda: not writing.done())
            await cluster.start_namenode()
            await writing
        assert await cluster.content("/a") == b"x" * 10 + b"y" * 20


async def test_a_writer_that_was_taken_over_is_fenced_and_its_outcome_unknown() -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a")
        await out.write(b"kept")
        await out.hflush()
        async with AsyncClient([cluster.address], fs.config) as other:
            assert await other.take_over("/a") == 4
        await out.write(b"more")
        with pytest.raises(FencedError, match="unknown outcome"):
            await out.hflush()
        with pytest.raises(FencedError):
            await out.close()
        assert await cluster.content("/a") == b"kept"


async def test_an_error_that_is_raised_again_and_again_does_not_grow() -> None:
    """A program may try for as long as the NameNode is away, or another writer has the file."""
    async with shipped_cluster(retry_for_s=0.0) as (cluster, fs):
        out = await fs.create("/a")
        await out.write(b"acknowledged")
        await out.hflush()
        block = out._block
        assert block is not None
        await cluster.stop_namenode()
        cluster.nodes[0].wire.cut()
        await wait_until_async(lambda: block.failure is not None)
        await out.write(b"more")

        async def traced(expected: type[PaxosBlockError], kept: Callable[[], object]) -> set[int]:
            depths = []
            for _ in range(5):
                with pytest.raises(expected):
                    await out.hflush()
                error = kept()
                assert isinstance(error, Exception)
                depths.append(len(list(traceback.walk_tb(error.__traceback__))))
            return set(depths[1:])

        assert len(await traced(UnavailableError, lambda: block.failure)) == 1
        out._fence.lease_lost()
        assert len(await traced(FencedError, lambda: out._fence._error)) == 1
        await out.abort()


async def test_giving_up_does_not_wait_long_for_namenodes_that_do_not_answer() -> None:
    """A program that gives up has often waited in vain already; the lease ends the file anyway."""
    async with shipped_cluster(retry_for_s=60.0) as (cluster, fs):
        out = await fs.create("/a")
        await out.write(b"hello")
        await out.hflush()
        await cluster.stop_namenode()
        await asyncio.wait_for(out.abort(), 30)
        assert out.closed


async def test_a_lost_lease_surfaces_at_the_next_call() -> None:
    async with shipped_cluster(lease_interval_s=0.02) as (cluster, fs):
        out = await fs.create("/a")
        await fs.take_over("/a")

        async def is_fenced() -> bool:
            try:
                await out.write(b"")
            except FencedError:
                return True
            return False

        await wait_until_async(is_fenced)
        with pytest.raises(FencedError, match="lease"):
            await out.hflush()
        await out.abort()
        assert cluster.calls.count("add_block") == 0


async def test_leaving_by_an_exception_keeps_what_was_flushed_and_drops_the_rest() -> None:
    async with shipped_cluster() as (cluster, fs):

        async def fail() -> None:
            async with await fs.create("/a") as out:
                await out.write(b"flushed")
                await out.hflush()
                await out.write(b"not flushed")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await cluster.content("/a") == b"flushed"
        assert not (await fs.stat("/a")).open


async def test_memory_under_way_is_bounded_by_the_window() -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a", chunk_size=10, window=2)
        cluster.nodes[0].wire.votes_may_go.clear()
        writing = asyncio.create_task(out.write(b"x" * 100))
        await wait_until_async(lambda: cluster.nodes[1].wire.chunks == 2)
        assert not writing.done()
        cluster.nodes[0].wire.votes_may_go.set()
        await writing
        await out.close()
        assert await cluster.content("/a") == b"x" * 100


async def test_calls_that_fail_add_nothing_to_what_the_first_of_them_left() -> None:
    """An application that goes on all the same must not fill its memory."""
    async with shipped_cluster(retry_for_s=0.0) as (cluster, fs):
        for node in cluster.nodes:
            node.wire.faults.refuses_replicas = True
        out = await fs.create("/a", chunk_size=10, durability="memory")
        for _ in range(5):
            for call in (out.write(b"x" * 35), out.hsync()):
                with pytest.raises((NoSpaceError, NotReadyError, UnavailableError)) as caught:
                    await call
                assert caught.value.outcome is Outcome.UNKNOWN, "what was taken is sent later"
        assert (out.tell(), len(out._pending)) == (10, 2)
        for node in cluster.nodes:
            node.wire.faults.refuses_replicas = False
        await wait_until_async(lambda: not any(each.resting for each in out._exclusions.excluded()))
        await out.close()
        assert await cluster.content("/a") == b"x" * 10


async def test_a_window_of_one_is_the_protocol_of_the_seed() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a", chunk_size=10, window=1) as out:
            await out.write(b"x" * 95)
        assert await cluster.content("/a") == b"x" * 95


async def test_a_mutable_buffer_may_be_used_again_after_write() -> None:
    async with shipped_cluster() as (cluster, fs):
        buffer = bytearray(b"a" * 25)
        async with await fs.create("/a", chunk_size=10) as out:
            await out.write(buffer)
            buffer[:] = b"b" * 25
            await out.write(memoryview(buffer))
            buffer[:] = b"c" * 25
        assert await cluster.content("/a") == b"a" * 25 + b"b" * 25


async def test_a_closed_file_takes_nothing_more() -> None:
    async with shipped_cluster() as (_, fs):
        out = await fs.create("/a")
        await out.close()
        await out.close()
        with pytest.raises(InvalidRequestError, match="closed"):
            await out.write(b"x")


async def test_an_empty_file_has_no_block() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a"):
            pass
        assert await cluster.records("/a") == []
        assert await cluster.content("/a") == b""


async def test_a_process_that_stood_still_does_not_blame_the_datanodes() -> None:
    """The votes came in time; it was us who did not read them."""
    async with shipped_cluster(vote_timeout_s=0.5) as (cluster, fs), await fs.create("/a") as out:
        for node in cluster.nodes:
            node.wire.votes_may_go.clear()
        await out.write(b"hello")
        flush = asyncio.create_task(out.hflush())
        await wait_until_async(lambda: all(node.wire.votes for node in cluster.nodes))
        for node in cluster.nodes:
            node.wire.votes_may_go.set()
        stand_still(0.7)
        receipt = await flush
        assert (receipt.chunk, receipt.generation) == (0, 0)


def stand_still(seconds: float) -> None:
    """Block the event loop, as a program does that computes for long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.mark.parametrize(
    ("told", "maybe"),
    [
        ((OutcomeUnknownError("no answer"),), True),
        ((OutcomeUnknownError("no answer"), NO_PLACE), False),
        ((OutcomeUnknownError("no answer"), FULL), True),
        ((ProtocolError("HTTP 502"), UnavailableError("nobody there")), True),
        ((FULL,), False),
    ],
)
def test_a_block_may_be_there_until_a_namenode_knows_that_it_is_not(
    told: tuple[PaxosBlockError, ...], maybe: bool
) -> None:
    unopened = Unopened()
    for error in told:
        with pytest.raises(type(error)), unopened.asking():
            raise error
    assert bool(unopened) is maybe

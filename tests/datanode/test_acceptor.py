"""The acceptor against a real disk: what is asked, what is answered, what is there afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paxosblock.datanode import acceptor
from paxosblock.datanode.block import Block, ReplicaListener
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.protocol.messages import (
    Created,
    Delete,
    Deleted,
    Finalized,
    LastVote,
    Nack,
    Read,
    ReadReply,
    RecoveryVote,
    Short,
    Vote,
)
from paxosblock.protocol.types import (
    BlockId,
    Durability,
    Generation,
    Reason,
    ReplicaState,
    StorageId,
)
from tests.datanode.node import BLOCK, Holder, chunk, frame, name, refusal, running, unadopted
from tests.disks.faults import HELD, SYNCS, Fault
from tests.disks.simulated import SimulatedDisk
from tests.waiting import wait_until_async


async def test_a_chunk_is_voted_for_and_is_in_the_block_file_as_it_came(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        assert await node.create() == Created(BLOCK, node.storage)
        vote = await node.send(frame(0))
        assert vote == Vote(BLOCK, Generation(0), name(0).index, node.storage, synced=True)
        assert (tmp_path / "rbw" / "blk_7").read_bytes() == frame(0)[1]


async def test_a_finalized_replica_moves_to_current_and_loses_what_is_beyond(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(3)
        decided = [name(0), name(1)]
        assert await node.finalize(1, decided) == Finalized(BLOCK, Generation(1), node.storage, 2)
        assert (tmp_path / "current" / "blk_7").read_bytes() == frame(0)[1] + frame(1)[1]
        assert list((tmp_path / "rbw").iterdir()) == []
    async with running(tmp_path, boot="boot-2") as node:
        state = await node.ask(Read(BLOCK))
        assert isinstance(state, ReadReply)
        assert (state.registers.state, state.length, state.registers.weak) == (
            ReplicaState.FINALIZED,
            2,
            False,
        )


async def test_a_promise_survives_the_end_of_the_process(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(2)
        last = await node.next_gs(5)
        assert isinstance(last, LastVote)
        assert last.tail == (name(0), name(1))
    async with running(tmp_path) as node:
        refused = await node.next_gs(4)
        assert isinstance(refused, Nack)
        assert (refused.reason, refused.max_generation) == (Reason.FENCED, 5)


async def test_a_recovery_extends_a_lagging_replica_with_chunks_of_a_holder(tmp_path: Path) -> None:
    holder = Holder([chunk(0), chunk(1), chunk(2)])
    async with running(tmp_path, holder=holder) as node:
        await node.create()
        await node.write(1)
        log = [name(0), name(1), name(2)]
        assert await node.recover(1, log) == RecoveryVote(BLOCK, Generation(1), 3, node.storage)
        assert unadopted(tmp_path) == []
        (vote,) = await node.write(1, start=3, generation=1)
        assert isinstance(vote, Vote)
    async with running(tmp_path) as node:
        state = await node.ask(Read(BLOCK))
        assert isinstance(state, ReadReply)
        assert (state.registers.accepted_generation, state.length) == (1, 4)


async def test_a_storage_without_a_replica_takes_a_full_copy_to_finalize(tmp_path: Path) -> None:
    async with running(tmp_path, holder=Holder([chunk(0), chunk(1)])) as node:
        decided = [name(0), name(1)]
        assert await node.finalize(3, decided) == Finalized(BLOCK, Generation(3), node.storage, 2)
        assert (tmp_path / "current" / "blk_7").read_bytes() == frame(0)[1] + frame(1)[1]


async def test_a_short_replica_says_so_when_no_holder_answers(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(1)
        short = await node.finalize(2, [name(0), name(1)])
        assert short == Short(BLOCK, Generation(2), node.storage, 1)


async def test_a_deleted_replica_leaves_no_file(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(1)
        assert await node.ask(Delete(BLOCK, Generation(0))) == Deleted(BLOCK, node.storage)
        assert list((tmp_path / "rbw").iterdir()) == []
        assert refusal(await node.send(frame(1))) is Reason.NO_REPLICA


async def test_a_request_for_another_storage_is_answered_no_replica(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        refused = await node.ask(Read(BLOCK), StorageId("somebody else"))
        assert isinstance(refused, Nack)
        assert (refused.reason, refused.storage) == (Reason.NO_REPLICA, "somebody else")


async def test_a_damaged_chunk_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        header, sent = frame(0)
        damaged = sent[:-1] + bytes([sent[-1] ^ 1])
        assert refusal(await node.send((header, damaged))) is Reason.CORRUPT
        assert (tmp_path / "rbw" / "blk_7").read_bytes() == b""


async def test_a_write_is_fenced_while_a_promise_is_under_way(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
        disk.breaks(Fault(SYNCS, delay_s=HELD))
        promise = asyncio.ensure_future(node.next_gs(1))
        block = next(node.acceptor.blocks())
        await wait_until_async(lambda: block.stepping)
        assert refusal(await node.send(frame(0))) is Reason.FENCED
        disk.mend()
        last = await promise
        assert isinstance(last, LastVote)
        assert last.length == 0


async def test_a_memory_vote_leaves_before_anything_is_synced(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(durability=Durability.MEMORY)
        vote = node.send(frame(0))
        assert vote.done()
        assert node.volumes[0].commit.sync_count == 0
        synced = await node.send(frame(1, sync=True))
        assert isinstance(synced, Vote)
        assert synced.synced
        assert node.volumes[0].commit.sync_count == 1


@pytest.mark.parametrize(("durability", "syncs"), [(Durability.DISK, 0), (Durability.MEMORY, 1)])
async def test_a_finalization_syncs_only_what_votes_did_not_wait_for(
    tmp_path: Path, durability: Durability, syncs: int
) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create(durability=durability)
        await node.write(3)
        before = len(disk.synced)
        assert isinstance(await node.finalize(1, [name(i) for i in range(3)]), Finalized)
        assert sum(".meta" not in each.name for each in disk.synced[before:]) == syncs


async def test_many_votes_share_few_syncs(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        votes = await node.write(200)
        assert all(isinstance(vote, Vote) and vote.synced for vote in votes)
        assert node.volumes[0].commit.sync_count <= 3


class Watched(Block):
    """A block that takes down what the event loop could see at any instant of a step."""

    __slots__ = ("seen",)

    def __init__(self, block: BlockId, volume: Volume, listener: ReplicaListener) -> None:
        self.seen: list[tuple[int, int, bool]] = []
        super().__init__(block, volume, listener)

    def __setattr__(self, field: str, value: object) -> None:
        super().__setattr__(field, value)
        replica = getattr(self, "replica", None)
        if replica is not None and hasattr(self, "synced"):
            dead = bool(getattr(self, "corrupt", ""))
            self.seen.append((replica.registers.accepted_generation, self.synced, dead))


async def test_what_is_said_of_a_new_replica_is_never_seen_beside_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old log is not synced, and then it is dead: neither may look otherwise for an instant."""
    monkeypatch.setattr(acceptor, "Block", Watched)
    names = [name(i, size=90) for i in range(3)]
    async with running(tmp_path, holder=Holder([chunk(i, size=90) for i in range(3)])) as node:
        await node.create(durability=Durability.MEMORY)
        await node.write(3)
        block = node.acceptor.find(BLOCK, node.storage)
        assert isinstance(block, Watched)
        assert block.synced == 0
        block.mark_corrupt("a bit has flipped")
        block.seen.clear()
        assert isinstance(await node.finalize(1, names), Finalized)
        assert {(g, count, dead) for g, count, dead in block.seen if g == 0} == {(0, 0, True)}
        assert block.seen[-1] == (1, 3, False)

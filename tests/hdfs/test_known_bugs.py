"""Defects that HDFS had in its recoveries, each by its number: what would show it here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from paxosblock.api.datanode import Envelope, FetchChunks
from paxosblock.client.async_client import AsyncClient
from paxosblock.datanode.acceptor import Acceptor
from paxosblock.datanode.transfer import Transfer
from paxosblock.errors import FencedError, UnavailableError
from paxosblock.namenode.blocks.replicas import Verdict, judge
from paxosblock.net.streams.stream_calls import Bulk
from paxosblock.net.wire import Header
from paxosblock.protocol.messages import Create, Created, Read, ReadReply, RecoveryVote
from paxosblock.protocol.types import BlockId, Durability, Generation, ReplicaState
from tests.client.shipped import shipped_cluster
from tests.datanode.node import WINDOW, Notes
from tests.datanode.test_copies import beside, recovery, whole
from tests.datanode.test_transfer import Holder
from tests.hdfs.scenes import (
    COMMITTED,
    COMPLETE,
    CONSTRUCTION,
    Case,
    closed_by_the_housekeeper,
    file_of,
)
from tests.namenode.scene import MEMBERS, Scene
from tests.namenode.test_replicas import DECIDED, OPEN, summary
from tests.waiting import wait_until_async

RBW = ReplicaState.RBW


class HungHolder(Holder):
    """Takes questions and answers once it is `let`."""

    def __init__(self) -> None:
        super().__init__(whole())
        self.let = asyncio.Event()

    async def _ask(self, request: FetchChunks, header: Header) -> Bulk:
        self.asked.append(request)
        await self.let.wait()
        return whole(request.start)


async def test_hdfs_5016_a_recovery_that_waits_keeps_nothing_else_of_its_datanode_waiting(
    tmp_path: Path,
) -> None:
    """There a recovery waited for a writer's thread with the lock that heartbeats need."""
    holder, other = HungHolder(), BlockId(8)
    async with beside(tmp_path, holder) as (target, address):
        storage, acceptor = target.storage, Acceptor(target.volumes, Transfer(), Notes())
        recovering = asyncio.create_task(acceptor.take(Envelope(storage, recovery(), (address,))))
        await wait_until_async(lambda: holder.asked)
        create = Create(other, WINDOW, Durability.DISK)
        assert isinstance(await acceptor.take(Envelope(storage, create)), Created)
        assert isinstance(await acceptor.take(Envelope(storage, Read(other))), ReadReply)
        assert not recovering.done()
        holder.let.set()
        assert isinstance(await recovering, RecoveryVote)
        await acceptor.close()


async def test_hdfs_4882_a_file_that_cannot_be_closed_keeps_no_other_lease_from_its_recovery(
    case: Case,
) -> None:
    """There the thread that looks after leases went round in one file for ever."""
    scene, network = case
    await file_of(case, COMMITTED, path="/stuck")
    await file_of(case, CONSTRUCTION)
    await expire(scene)
    await wait_until_async(lambda: closed_by_the_housekeeper(scene, 1))
    network.lost.clear()
    await wait_until_async(lambda: closed_by_the_housekeeper(scene, 1, "/stuck"))


async def expire(scene: Scene) -> None:
    """All leases are over."""
    scene.clock.now += scene.node.config.lease_hard_limit_s
    for storage in MEMBERS:
        await scene.register(storage)


def test_hdfs_5557_a_replica_that_is_ahead_of_the_namenode_is_not_called_damaged() -> None:
    """There the report of a replica that a pipeline recovery had bumped came before the writer's
    word of it, and all sound replicas were taken for damaged."""
    recovering = replace(OPEN, generation=Generation(1))
    promised = summary(state=RBW, accepted=0, promised=1)
    accepted = summary(state=RBW, accepted=1, promised=1)
    for reported in (promised, accepted):
        assert judge(recovering, True, reported).verdict is Verdict.FINE
    reopening = replace(DECIDED, generation=Generation(5))
    assert judge(reopening, True, summary(state=RBW, accepted=5, promised=5)).verdict in (
        Verdict.FINE,
        Verdict.FINALIZE,
    )


async def test_hdfs_5558_a_complete_last_block_behind_one_that_is_not_ends_no_lease_checks(
    case: Case,
) -> None:
    """There the thread that looks after leases died."""
    scene, network = case
    await file_of(case, COMMITTED, COMPLETE, path="/stuck")
    await expire(scene)
    await scene.node.housekeeper.check_leases()
    await file_of(case, CONSTRUCTION)
    await expire(scene)
    await wait_until_async(lambda: closed_by_the_housekeeper(scene, 1))
    network.lost.clear()
    await wait_until_async(lambda: closed_by_the_housekeeper(scene, 2, "/stuck"))


async def test_hdfs_7342_a_committed_block_before_a_complete_one_still_ends_in_a_recovery(
    case: Case,
) -> None:
    """There nothing was done about such a file."""
    scene, network = case
    await file_of(case, COMMITTED, COMPLETE)
    await expire(scene)
    network.lost.clear()
    await wait_until_async(lambda: closed_by_the_housekeeper(scene, 2))


async def test_hdfs_6867_a_block_that_lost_a_member_is_recovered_without_a_call_of_its_writer() -> (
    None
):
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a")
        await out.write(b"acknowledged")
        await out.hflush()
        await cluster.nodes[0].kill()

        async def is_ended() -> bool:
            (view,) = await cluster.blocks("/a")
            return view.record.finalized

        await wait_until_async(is_ended)
        await out.write(b", and more")
        await out.close()
        assert await cluster.content("/a") == b"acknowledged, and more"


async def test_hdfs_4504_a_close_that_fails_for_good_renews_no_lease_any_more() -> None:
    """There the file stayed open for as long as its process lived."""
    async with shipped_cluster(lease_interval_s=0.02) as (cluster, fs):
        out = await fs.create("/a")
        await out.write(b"x")
        await out.hflush()
        async with AsyncClient([cluster.address], fs.config) as other:
            await other.take_over("/a")
        with pytest.raises(FencedError):
            await out.close()
        assert not fs._session.leases._kept
        await out.abort()


async def test_hdfs_4504_a_close_that_no_namenode_hears_renews_no_lease_any_more() -> None:
    async with shipped_cluster(retry_for_s=0.2) as (cluster, fs):
        out = await fs.create("/a")
        await out.write(b"x")
        await cluster.stop_namenode()
        with pytest.raises(UnavailableError):
            await out.close()
        assert not fs._session.leases._kept


async def test_hdfs_6937_a_datanode_that_finds_chunks_damaged_is_the_one_that_is_left_out() -> None:
    """There a sound DataNode was blamed, one after the other, until none was left."""
    async with shipped_cluster(4) as (cluster, fs):
        async with await fs.create("/a") as out:
            await out.write(b"hello")
            await out.hflush()
            (bad, *_) = await cluster.members("/a")
            bad.wire.faults.flips_chunks = True
            for _ in range(4):
                await out.write(b"hello")
                receipt = await out.hflush()
        used = [cluster.by_storage[storage] for storage in receipt.replicas]
        assert set(used) == {*cluster.nodes} - {bad}
        assert len(await cluster.blocks("/a")) == 2
        assert await cluster.content("/a") == b"hello" * 5

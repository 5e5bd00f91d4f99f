"""Chunks whose votes do not wait for the disk: it begins early, and is never far behind."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from paxosblock.base.units import MIB
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.volumes.group_commit import GroupCommit
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.datanode.volumes.write_out import PIECE_BYTES, WriteOut
from paxosblock.host.disk import OsDisk
from paxosblock.protocol.messages import Finalized, Nack, Vote
from paxosblock.protocol.types import BlockId, Durability, Reason
from tests.datanode.node import frame, name, refusal, running
from tests.disks.faults import HELD, SYNCS, Fault
from tests.disks.simulated import SimulatedDisk
from tests.waiting import wait_until_async

OTHER = BlockId(8)
LATE = Fault(SYNCS, path="/rbw/", delay_s=HELD)


def bound(volume: Volume, bound_bytes: int) -> WriteOut:
    """From now on so much may be unwritten on `volume`."""
    commit = GroupCommit(ThreadPoolExecutor(1), 1, step=OpenFile.write_out)
    volume.write_out = WriteOut(commit, volume.fail, bound_bytes)
    return volume.write_out


async def test_who_writes_faster_than_the_disk_waits_for_it(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create(durability=Durability.MEMORY)
        behind = bound(node.volumes[0], 300)
        disk.breaks(LATE)
        assert isinstance(await node.send(frame(0)), Vote)
        assert isinstance(await node.send(frame(1)), Vote)
        late = [node.send(frame(index)) for index in (2, 3)]
        await wait_until_async(lambda: disk.plan.waiting == 1)
        assert not any(vote.done() for vote in late)
        disk.mend()
        assert [isinstance(await vote, Vote) for vote in late] == [True, True]
        await wait_until_async(lambda: behind.unwritten_bytes <= 300)


async def test_the_bound_is_that_of_all_blocks_together(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        behind = bound(node.volumes[0], 200)
        for block in (BlockId(7), OTHER):
            await node.create(block, Durability.MEMORY)
        assert isinstance(await node.send(frame(0)), Vote)
        assert behind.unwritten_bytes == len(frame(0)[1])
        assert isinstance(await node.send(frame(0, block=OTHER)), Vote)
        await wait_until_async(lambda: behind.unwritten_bytes == 0)


async def test_the_way_to_the_disk_begins_while_a_block_is_written(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create(durability=Durability.MEMORY)
        disk.breaks(Fault(SYNCS, path="/rbw/"))
        chunks = PIECE_BYTES // MIB
        for index in range(chunks - 1):
            assert isinstance(await node.send(frame(index, bytes(MIB))), Vote)
        assert disk.met == []
        assert isinstance(await node.send(frame(chunks - 1, bytes(MIB))), Vote)
        await wait_until_async(lambda: node.volumes[0].write_out.unwritten_bytes == 0)
        assert disk.met == ["sync"]


async def test_a_disk_that_refuses_them_fails_and_the_votes_do_not_leave(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create(durability=Durability.MEMORY)
        bound(node.volumes[0], 100)
        disk.breaks(Fault(SYNCS, path="/rbw/", error="EIO", delay_s=HELD))
        votes = [node.send(frame(index)) for index in range(2)]
        await wait_until_async(lambda: disk.plan.waiting == 1)
        assert not any(vote.done() for vote in votes)
        disk.mend()
        for vote in votes:
            refused = await vote
            assert isinstance(refused, Nack)
            assert refusal(refused) is Reason.NO_REPLICA
        assert "Input/output error" in node.volumes[0].failed


async def test_what_was_synced_or_deleted_counts_no_more(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(durability=Durability.MEMORY)
        behind = node.volumes[0].write_out
        await node.write(3)
        assert behind.unwritten_bytes > 0
        assert isinstance(await node.finalize(1, [name(index) for index in range(3)]), Finalized)
        assert behind.unwritten_bytes == 0


def test_a_real_disk_takes_what_was_written(tmp_path: Path) -> None:
    disk = OsDisk()
    file = disk.create(tmp_path / "file")
    disk.write(file, os.urandom(MIB), 0)
    disk.write_out(file)
    assert disk.size(file) == MIB
    disk.close(file)

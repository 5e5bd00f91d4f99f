"""Replicas at rest: a node keeps a few bytes of each, and makes the rest when a caller asks."""

from __future__ import annotations

import gc
from pathlib import Path

from paxosblock.api.datanode import ReplicaSummary
from paxosblock.datanode.block import Block
from paxosblock.datanode.reporter import reported
from paxosblock.datanode.store.layout import ReplicaFiles
from paxosblock.protocol.messages import Create, Delete, Deleted, LastVote, Read, ReadReply
from paxosblock.protocol.types import BlockId, Durability, Generation, Reason
from tests.datanode.node import Node, chunk, frame, name, refusal, running
from tests.disks.simulated import SimulatedDisk
from tests.format.test_small_log import put
from tests.waiting import wait_until_async

FOLDER = Path("/volume")
BLOCKS = tuple(BlockId(number) for number in range(1, 9))


async def restarted_disk() -> SimulatedDisk:
    """The disk of a process that wrote a small replica of each block, and ended."""
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        for block in BLOCKS:
            await put(node, block)
    return disk.next_process()


def owner(node: Node, block: BlockId) -> Block:
    found = node.acceptor.find(block, node.storage)
    assert found is not None
    return found


def objects(node: Node) -> int:
    """Return how many blocks of the node there are as objects."""
    gc.collect()
    return sum(isinstance(one, Block) and one.volume in node.volumes for one in gc.get_objects())


async def objects_become(count: int, node: Node) -> None:
    """Wait until that many are left: what has just ended is held until the loop has turned, and by
    a thread that has not ended yet on a busy machine."""
    await wait_until_async(lambda: objects(node) == count, what=f"{count} blocks as objects")


async def test_no_object_is_made_of_a_replica_at_rest_until_somebody_asks() -> None:
    disk = await restarted_disk()
    async with running(FOLDER, disk=disk) as node:
        assert (node.acceptor.count, objects(node)) == (len(BLOCKS), 0)
        told = [
            (each, block and reported(block))
            for each, block in node.acceptor.behind(BlockId(0), node.storage)
        ]
        assert all(isinstance(summary, ReplicaSummary) for _, summary in told)
        assert [each for each, _ in told] == list(BLOCKS)
        assert objects(node) == 0
        held = owner(node, BLOCKS[0])
        assert owner(node, BLOCKS[0]) is held
        assert objects(node) == 1


async def test_a_replica_that_was_written_and_finalized_rests() -> None:
    async with running(FOLDER, disk=SimulatedDisk()) as node:
        await put(node, BLOCKS[0])
        await put(node, BLOCKS[1], finalized=False)
        await objects_become(1, node)
        assert node.acceptor.count == 2


async def test_what_is_told_and_counted_after_a_start_is_what_was_before() -> None:
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        for block in BLOCKS:
            await put(node, block)
        before = [(one.id, one.replica, reported(one)) for one in node.acceptor.blocks()]
        used_bytes = node.volumes[0].used_bytes
    async with running(FOLDER, disk=disk.next_process()) as node:
        assert node.volumes[0].used_bytes == used_bytes > 0
        assert [(one.id, one.replica, reported(one)) for one in node.acceptor.blocks()] == before
        assert node.volumes[0].used_bytes == used_bytes
        for block in BLOCKS:
            assert isinstance(await node.ask(Delete(block, Generation(1))), Deleted)
        assert (node.acceptor.count, node.volumes[0].used_bytes) == (0, 0)


async def test_a_replica_at_rest_that_is_found_damaged_stays_dead_when_nobody_holds_it() -> None:
    disk = await restarted_disk()
    async with running(FOLDER, disk=disk) as node:
        owner(node, BLOCKS[0]).mark_corrupt("a bit has flipped")
        gc.collect()
        assert owner(node, BLOCKS[0]).corrupt == "a bit has flipped"
        assert refusal(await node.ask(Read(BLOCKS[0]))) is Reason.CORRUPT
        assert node.notes.corrupt == [(BLOCKS[0], node.storage, "a bit has flipped")]
    async with running(FOLDER, disk=disk.next_process()) as node:
        assert owner(node, BLOCKS[0]).corrupt
        assert not owner(node, BLOCKS[1]).corrupt


async def test_a_promise_of_a_replica_at_rest_is_kept() -> None:
    disk = await restarted_disk()
    async with running(FOLDER, disk=disk) as node:
        assert isinstance(await node.next_gs(5, block=BLOCKS[0]), LastVote)
        gc.collect()
        assert isinstance(owner(node, BLOCKS[0]).files, ReplicaFiles)
        assert refusal(await node.next_gs(4, block=BLOCKS[0])) is Reason.FENCED
    async with running(FOLDER, disk=disk.next_process()) as node:
        assert refusal(await node.next_gs(4, block=BLOCKS[0])) is Reason.FENCED


async def test_requests_that_are_refused_leave_a_replica_at_rest() -> None:
    disk = await restarted_disk()
    async with running(FOLDER, disk=disk) as node:
        create = Create(BLOCKS[0], 4, Durability.DISK, small=True)
        assert refusal(await node.ask(create)) is Reason.FENCED
        late = await node.send(frame(0, chunk(0, salt=1), block=BLOCKS[0]))
        assert refusal(late) is Reason.FENCED
        assert isinstance(await node.ask(Read(BLOCKS[0])), ReadReply)
        assert (node.acceptor.count, objects(node)) == (len(BLOCKS), 0)


async def test_the_later_of_two_replicas_on_two_volumes_counts_also_after_it_rested() -> None:
    """One volume had failed, and was given up, when the block came to the other."""
    disk, folders = SimulatedDisk(), (FOLDER, Path("/other"))
    async with running(folders[0], disk=disk) as node:
        await put(node, BLOCKS[0])
    async with running(folders[1], disk=disk) as node:
        await put(node, BLOCKS[0])
        later = node.storage
        named = [name(0, salt=int(BLOCKS[0]))]
        await node.finalize(2, named, block=BLOCKS[0])
    async with running(*folders, disk=disk.next_process()) as node:
        (block,) = node.acceptor.blocks()
        assert block.volume.storage == later
        assert node.acceptor.find(BLOCKS[0], node.storage) is None


async def test_replicas_at_rest_go_with_their_volume() -> None:
    disk = await restarted_disk()
    async with running(FOLDER, disk=disk) as node:
        held = owner(node, BLOCKS[0])
        node.volumes[0].fail(OSError("gone"))
        assert node.acceptor.count == 0
        assert node.acceptor.find(BLOCKS[1], node.storage) is None
        assert held.volume.failed

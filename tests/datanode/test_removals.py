"""Deleted replicas: gone at once, and their bytes a little later, one file after the other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from paxosblock.base.units import KIB
from paxosblock.datanode.store.removals import DELETED
from paxosblock.datanode.volumes.remover import Remover
from paxosblock.errors import NoSpaceError
from paxosblock.protocol.messages import Created, Delete, Deleted, Vote
from paxosblock.protocol.types import BlockId, Generation
from tests.datanode.node import BLOCK, Node, frame, running
from tests.disks.faults import Fault
from tests.disks.simulated import SimulatedDisk
from tests.waiting import wait_until_async

BLOCKS = [BlockId(number) for number in range(3)]
NEVER = 1e-9
"""Bytes per second at which nothing goes behind the first file."""


def left(disk: SimulatedDisk, folder: Path) -> list[str]:
    return [name for name in disk.names(folder / "tmp") if name.startswith(DELETED)]


async def write_and_delete(node: Node, *blocks: BlockId) -> None:
    for block in blocks:
        await node.create(block)
        assert isinstance(await node.send(frame(0, block=block)), Vote)
    for block in blocks:
        assert await node.ask(Delete(block, Generation(0))) == Deleted(block, node.storage)


@asynccontextmanager
async def removing(node: Node, bytes_per_s: float) -> AsyncIterator[None]:
    task = asyncio.create_task(Remover(node.volumes[0], bytes_per_s).run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_deleted_replicas_give_their_room_back(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node, removing(node, 1e12):
        volume = node.volumes[0]
        await write_and_delete(node, *BLOCKS)
        await wait_until_async(lambda: volume.store.removals.waiting_bytes == 0)
        assert left(disk, tmp_path) == []
        assert volume.report(0).used_bytes == 0
        await write_and_delete(node, *BLOCKS)
        await wait_until_async(lambda: not left(disk, tmp_path))


async def test_what_is_not_removed_yet_counts_as_used(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await write_and_delete(node, *BLOCKS)
        used = node.volumes[0].report(0).used_bytes
        assert used == len(BLOCKS) * len(frame(0)[1])
        assert len(left(disk, tmp_path)) == len(BLOCKS)
        assert node.acceptor.count == 0


async def test_only_so_many_bytes_go_in_a_second(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await write_and_delete(node, *BLOCKS)
        async with removing(node, NEVER):
            await wait_until_async(lambda: len(left(disk, tmp_path)) < len(BLOCKS))
            for _ in range(3):  # as often as the volume answers, it has nothing more to do
                await node.volumes[0].run_read(lambda: None)
            assert len(left(disk, tmp_path)) == 1, "the first two: the rate begins with them"


async def test_nothing_waits_where_room_is_scarce(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
        assert isinstance(await node.send(frame(0, bytes(KIB * 100))), Vote)
        await write_and_delete(node, *BLOCKS)
        disk.capacity_bytes = disk.used_bytes() + 100
        async with removing(node, NEVER):
            await wait_until_async(lambda: not left(disk, tmp_path))


async def test_a_new_replica_takes_the_room_of_deleted_ones(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk, reserved_bytes=100) as node:
        await write_and_delete(node, *BLOCKS)
        disk.capacity_bytes = disk.used_bytes() + 100
        assert isinstance(await node.create(), Created)
        assert left(disk, tmp_path) == []
        disk.capacity_bytes = disk.used_bytes() + 100
        with pytest.raises(NoSpaceError):
            await node.create(BlockId(99))


async def test_a_restart_forgets_none(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await write_and_delete(node, *BLOCKS)
        waiting = node.volumes[0].store.removals.waiting_bytes
    disk = disk.next_process()
    async with running(tmp_path, disk=disk) as node:
        removals = node.volumes[0].store.removals
        assert (node.acceptor.count, removals.waiting_bytes) == (0, waiting)
        await write_and_delete(node, *BLOCKS)
        assert (len(left(disk, tmp_path)), removals.waiting_bytes) == (6, 2 * waiting)
        async with removing(node, 1e12):
            await wait_until_async(lambda: not left(disk, tmp_path))
        assert removals.waiting_bytes == 0


@pytest.mark.parametrize("seed", range(10))
async def test_a_power_cut_leaves_no_file_that_nobody_removes(seed: int, tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await write_and_delete(node, *BLOCKS)
        await node.create()
        assert isinstance(await node.send(frame(0)), Vote)
    disk = disk.power_cut(random.Random(seed))
    async with running(tmp_path, disk=disk, boot="boot-2") as node:
        async with removing(node, 1e12):
            await wait_until_async(lambda: not left(disk, tmp_path))
        assert [block.id for block in node.acceptor.blocks()] == [BLOCK]
        found = {path.name for path in disk.files() if path.name.startswith("blk_")}
        assert found == {"blk_7", "blk_7.meta"}


async def test_a_disk_that_refuses_to_remove_has_failed(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await write_and_delete(node, *BLOCKS)
        disk.breaks(Fault(("remove",), path=DELETED, error="EIO"))
        async with removing(node, 1e12):
            await wait_until_async(lambda: bool(node.volumes[0].failed))
        assert "Input/output error" in node.volumes[0].failed

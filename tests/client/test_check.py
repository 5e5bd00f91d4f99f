"""`check_block`: what every replica of a block really holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from paxosblock.api.namenode import BlockView
from paxosblock.base.checksum import crc32c
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.check import PIECE_BYTES, ReplicaHealth
from paxosblock.errors import NotFoundError, NotReadyError
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, ChunkIndex
from tests.client.shipped import ShippedDataNode, shipped_cluster
from tests.waiting import wait_until_async

DATA = b"abc" * 1000


async def block_of_a_file(fs: AsyncClient, data: bytes = DATA) -> BlockId:
    async with await fs.create("/a") as out:
        await out.write(data)
        receipt = await out.hflush()
    return receipt.block


async def test_three_equal_replicas_are_sound() -> None:
    async with shipped_cluster() as (_, fs):
        found = await fs.blocks.check(await block_of_a_file(fs))
        assert found.sound_count == 3
        assert {check.crc for check in found.replicas} == {crc32c(DATA)}


async def test_a_block_larger_than_what_is_read_at_a_time_is_checked_whole() -> None:
    data = b"x" * (PIECE_BYTES + 17)
    async with shipped_cluster() as (_, fs):
        found = await fs.blocks.check(await block_of_a_file(fs, data))
        assert {check.crc for check in found.replicas} == {crc32c(data)}


async def damaged(node: ShippedDataNode) -> None:
    (path,) = node.block_files()
    path.write_bytes(bytes(len(DATA)))


async def missing(node: ShippedDataNode) -> None:
    await node.kill()
    for path in (node.folder / "current").iterdir():
        path.unlink()
    await node.start()


@pytest.mark.parametrize("fault", [damaged, missing])
async def test_one_bad_replica_is_named_and_the_others_are_sound(
    fault: Callable[[ShippedDataNode], Awaitable[None]],
) -> None:
    async with shipped_cluster() as (cluster, fs):
        block = await block_of_a_file(fs)
        await wait_until_async(lambda: all(node.block_files() for node in cluster.nodes))
        bad = cluster.nodes[1]
        await fault(bad)
        found = await fs.blocks.check(block)
        health = {cluster.by_storage[each.member.storage]: each.health for each in found.replicas}
        assert found.sound_count == 2
        assert health[bad] is ReplicaHealth[fault.__name__.upper()]


async def block_that_differs(fs: AsyncClient, datas: Sequence[bytes]) -> BlockView:
    """Return a block whose members have these bytes, each under a right checksum."""
    view = await fs.blocks.add(replication=len(datas), durability="memory")
    for member, data in zip(view.members, datas, strict=True):
        node = fs.blocks.datanode(member)
        await node.write(view.record.block, FIRST_GENERATION, ChunkIndex(0), data)
    return await fs.blocks.finalize(view.record.block, 1)


async def test_one_replica_of_other_bytes_is_different_and_the_others_are_sound() -> None:
    async with shipped_cluster() as (_, fs):
        view = await block_that_differs(fs, [b"abc", b"abd", b"abc"])
        found = await fs.blocks.check(view.record.block)
        assert found.sound_count == 2
        assert {each.member.storage: each.health for each in found.replicas}[
            view.members[1].storage
        ] is ReplicaHealth.DIFFERENT


async def test_a_datanode_that_is_down_is_unreachable() -> None:
    async with shipped_cluster() as (cluster, fs):
        block = await block_of_a_file(fs)
        await cluster.nodes[0].kill()
        found = await fs.blocks.check(block)
        assert sorted(check.health.value for check in found.replicas) == [
            "sound",
            "sound",
            "unreachable",
        ]


async def test_two_replicas_that_contradict_each_other_are_both_not_sound() -> None:
    async with shipped_cluster(2) as (_, fs):
        view = await block_that_differs(fs, [b"abc", b"abd"])
        found = await fs.blocks.check(view.record.block)
        assert [check.health for check in found.replicas] == [ReplicaHealth.DIFFERENT] * 2


async def test_a_damaged_replica_is_reported_to_the_namenode() -> None:
    async with shipped_cluster() as (cluster, fs):
        block = await block_of_a_file(fs)
        await wait_until_async(lambda: all(node.block_files() for node in cluster.nodes))
        await damaged(cluster.nodes[2])
        await fs.blocks.check(block)
        assert cluster.calls.count("report_bad_replica") == 1


async def test_a_block_that_is_being_written_is_not_ready() -> None:
    async with shipped_cluster() as (_, fs), await fs.create("/a") as out:
        await out.write(b"data")
        receipt = await out.hflush()
        with pytest.raises(NotReadyError, match="being written"):
            await fs.blocks.check(receipt.block)


async def test_a_block_that_is_not_there_is_not_found() -> None:
    async with shipped_cluster() as (_, fs):
        with pytest.raises(NotFoundError):
            await fs.blocks.check(BlockId(99))

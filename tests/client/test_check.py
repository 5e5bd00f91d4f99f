"""`check_block`: what every replica of a block really holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paxosblock.base.checksum import crc32c
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.check import PIECE_BYTES, ReplicaHealth
from paxosblock.errors import NotFoundError, NotReadyError
from paxosblock.net.wire import HEADER_BYTES, Header
from paxosblock.protocol.types import BlockId
from tests.client.memory_cluster import MemoryCluster, memory_cluster
from tests.client.memory_node import MemoryDataNode

DATA = b"abc" * 1000


async def block_of_a_file(fs: AsyncClient, data: bytes = DATA) -> BlockId:
    async with await fs.create("/a") as out:
        await out.write(data)
        receipt = await out.hflush()
    return receipt.block


async def test_three_equal_replicas_are_sound() -> None:
    async with memory_cluster() as (_, fs):
        found = await fs.blocks.check(await block_of_a_file(fs))
        assert found.sound_count == 3
        assert {check.crc for check in found.replicas} == {crc32c(DATA)}


async def test_a_block_larger_than_what_is_read_at_a_time_is_checked_whole() -> None:
    data = b"x" * (PIECE_BYTES + 17)
    async with memory_cluster() as (_, fs):
        found = await fs.blocks.check(await block_of_a_file(fs, data))
        assert {check.crc for check in found.replicas} == {crc32c(data)}


def damaged(cluster: MemoryCluster, node: MemoryDataNode) -> None:
    node.faults.corrupt_reads = True


def missing(cluster: MemoryCluster, node: MemoryDataNode) -> None:
    node.replicas.clear()


def different(cluster: MemoryCluster, node: MemoryDataNode) -> None:
    """Other bytes under a right checksum, as no disk makes them."""
    ((block, (frame,)),) = node.frames.items()
    payload = bytes(len(frame) - HEADER_BYTES)
    header = Header.unpack(frame)
    fields = (header.kind, header.flags, len(payload), crc32c(payload), block)
    node.frames[block] = [Header(*fields, header.generation, header.index).pack() + payload]


@pytest.mark.parametrize("fault", [damaged, missing, different])
async def test_one_bad_replica_is_named_and_the_others_are_sound(
    fault: Callable[[MemoryCluster, MemoryDataNode], None],
) -> None:
    async with memory_cluster() as (cluster, fs):
        block = await block_of_a_file(fs)
        fault(cluster, cluster.nodes[1])
        found = await fs.blocks.check(block)
        health = {check.member.storage: check.health for check in found.replicas}
        assert found.sound_count == 2
        assert health[cluster.nodes[1].storage] is ReplicaHealth[fault.__name__.upper()]


async def test_a_datanode_that_is_down_is_unreachable() -> None:
    async with memory_cluster() as (cluster, fs):
        block = await block_of_a_file(fs)
        await cluster.kill(cluster.nodes[0])
        found = await fs.blocks.check(block)
        assert sorted(check.health.value for check in found.replicas) == [
            "sound",
            "sound",
            "unreachable",
        ]


async def test_two_replicas_that_contradict_each_other_are_both_not_sound() -> None:
    async with memory_cluster(2) as (cluster, fs):
        block = await block_of_a_file(fs)
        different(cluster, cluster.nodes[0])
        found = await fs.blocks.check(block)
        assert [check.health for check in found.replicas] == [ReplicaHealth.DIFFERENT] * 2


async def test_a_damaged_replica_is_reported_to_the_namenode() -> None:
    async with memory_cluster() as (cluster, fs):
        block = await block_of_a_file(fs)
        damaged(cluster, cluster.nodes[2])
        await fs.blocks.check(block)
        assert [report.storage for report in cluster.bad_replicas] == [cluster.nodes[2].storage]


async def test_a_block_that_is_being_written_is_not_ready() -> None:
    async with memory_cluster() as (_, fs), await fs.create("/a") as out:
        await out.write(b"data")
        receipt = await out.hflush()
        with pytest.raises(NotReadyError, match="being written"):
            await fs.blocks.check(receipt.block)


async def test_a_block_that_is_not_there_is_not_found() -> None:
    async with memory_cluster() as (_, fs):
        with pytest.raises(NotFoundError):
            await fs.blocks.check(BlockId(99))

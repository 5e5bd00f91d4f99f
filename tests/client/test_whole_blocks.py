"""Blocks of one short chunk that are written together: one message to each member."""

from __future__ import annotations

import asyncio

import pytest

from paxosblock.api.namenode import (
    CLOSE_FILE,
    CREATE,
    CloseFile,
    CreateFile,
    FinalizeBlock,
    FirstBlock,
)
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.session.lease_keeper import new_writer
from paxosblock.client.writing.block_writer import BlockFailed, BlockWriter
from paxosblock.client.writing.chunks import chunk_of
from paxosblock.client.writing.whole_blocks import written_together
from paxosblock.protocol.types import SMALL_BYTES_MAX, Durability, WriterId
from tests.client.shipped import ShippedCluster, shipped_cluster
from tests.waiting import wait_until_async

Writers = dict[str, tuple[int, WriterId, BlockWriter]]


async def made(fs: AsyncClient, *paths: str) -> Writers:
    """Files, each with the writer of the block that was made with it."""
    writers: Writers = {}
    for path in paths:
        asked = CreateFile(
            path, new_writer(), False, 3, 1 << 20, Durability.DISK, first=FirstBlock(window=4)
        )
        created = await fs._session.namenodes.call(CREATE, asked)
        assert created.first is not None
        block = BlockWriter(created.first, asked.writer, fs._session.namenodes, fs._session.writing)
        writers[path] = created.status.file_id, asked.writer, block
    return writers


def bytes_of(path: str, size: int) -> bytes:
    return path.encode() * (size // len(path))


async def write(
    fs: AsyncClient, writers: Writers, size: int = 40
) -> dict[str, FinalizeBlock | BlockFailed]:
    wholes = [(each[2], chunk_of(bytes_of(path, size))) for path, each in writers.items()]
    ends = await written_together(fs._session.writing, wholes)
    return dict(zip(writers, ends, strict=True))


async def close_and_check(
    cluster: ShippedCluster,
    fs: AsyncClient,
    writers: Writers,
    ends: dict[str, FinalizeBlock | BlockFailed],
    size: int = 40,
) -> None:
    for path, (file, writer, _) in writers.items():
        end = ends[path]
        assert isinstance(end, FinalizeBlock)
        await fs._session.namenodes.call(CLOSE_FILE, CloseFile(file, writer, end))
        assert await cluster.content(path) == bytes_of(path, size)


PATHS = [f"/{number}" for number in range(5)]


async def test_each_member_gets_the_chunks_of_all_blocks_in_one_message() -> None:
    async with shipped_cluster() as (cluster, fs):
        writers = await made(fs, *PATHS)
        ends = await write(fs, writers)
        assert [node.wire.batches for node in cluster.nodes] == [["CreateAndWriteAll of 5"]] * 3
        await close_and_check(cluster, fs, writers, ends)


async def test_more_bytes_than_a_message_takes_go_in_several() -> None:
    async with shipped_cluster() as (cluster, fs):
        writers = await made(fs, *(f"/{number:03}" for number in range(24)))
        ends = await write(fs, writers, SMALL_BYTES_MAX)
        assert [len(node.wire.batches) for node in cluster.nodes] == [3] * 3
        await close_and_check(cluster, fs, writers, ends, SMALL_BYTES_MAX)


@pytest.mark.parametrize("how", ["refuses", "votes for what was never sent", "is dead"])
async def test_a_member_that_fails_is_blamed_by_its_blocks_and_others_are_written(
    how: str,
) -> None:
    async with shipped_cluster(6) as (cluster, fs):
        writers = await made(fs, *PATHS)
        failing = cluster.by_storage[writers[PATHS[0]][2].members[0]]
        if how == "refuses":
            failing.wire.faults.refuses_replicas = True
        elif how == "is dead":
            await failing.kill()
        else:
            failing.wire.faults.votes_for_unsent = True
        ends = await write(fs, writers)
        for path, end in ends.items():
            if failing.storage in writers[path][2].members:
                assert isinstance(end, BlockFailed)
                assert end.failed == (failing.storage,)
            else:
                assert isinstance(end, FinalizeBlock)
        assert isinstance(ends[PATHS[0]], BlockFailed)


async def test_one_that_is_cancelled_leaves_no_call_under_way() -> None:
    async with shipped_cluster() as (cluster, fs):
        for node in cluster.nodes:
            node.wire.votes_may_go.clear()
        writing = asyncio.create_task(write(fs, await made(fs, *PATHS)))
        await wait_until_async(lambda: all(node.wire.batches for node in cluster.nodes))
        writing.cancel()
        await asyncio.wait([writing])
        for node in cluster.nodes:
            connection = await fs._session.writing.get(node.address)
            assert not connection._channel._pending.by_number
            node.wire.votes_may_go.set()

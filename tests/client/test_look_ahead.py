"""The next block is made while the last one is written (against memory nodes)."""

from __future__ import annotations

import asyncio
import os

import pytest

from paxosblock.client import next_block
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.file_writer import AsyncFileWriter
from paxosblock.units import KIB
from tests.client.memory_cluster import MemoryCluster, memory_cluster
from tests.waiting import wait_until_async

CHUNK = 4 * KIB
BLOCK = 4 * CHUNK
DATA = os.urandom(3 * BLOCK)


@pytest.fixture(autouse=True)
def small_blocks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_block, "AHEAD_FROM_BYTES", BLOCK)
    monkeypatch.setattr(next_block, "AHEAD_BEFORE_S", 0.0)


async def created(fs: AsyncClient) -> AsyncFileWriter:
    return await fs.create("/a", chunk_size=CHUNK, block_size=BLOCK)


async def write_three_of_four(cluster: MemoryCluster, out: AsyncFileWriter) -> None:
    """Write three chunks of the first block, and wait for the block that is made ahead."""
    await out.write(DATA[: 3 * CHUNK])
    await out.hflush()
    assert out._next._making is not None
    await out._next._making


def asked(cluster: MemoryCluster) -> list[str]:
    """What the NameNode was asked since, for blocks."""
    return [name for name in cluster.calls if name in {"add_block", "finalize_block", "close_file"}]


async def test_the_step_to_the_next_block_is_one_call() -> None:
    async with memory_cluster() as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        assert asked(cluster) == ["add_block", "add_block"]
        cluster.calls.clear()
        await out.write(DATA[3 * CHUNK : 5 * CHUNK])
        await out.hflush()
        assert asked(cluster) == ["finalize_block"]
        await out.write(DATA[5 * CHUNK :])
        await out.close()
        assert cluster.content("/a") == DATA
        assert [cluster.records[block].size_bytes for block in cluster.files["/a"].blocks] == [
            BLOCK
        ] * 3


@pytest.mark.parametrize(("seconds", "chunks"), [(60.0, 1), (0.0, 2)])
async def test_a_quick_writer_asks_for_the_next_block_earlier(
    monkeypatch: pytest.MonkeyPatch, seconds: float, chunks: int
) -> None:
    """A quarter of the block tells how quick it is; a slow one waits for half of it."""
    monkeypatch.setattr(next_block, "AHEAD_BEFORE_S", seconds)
    async with memory_cluster() as (_, fs), await created(fs) as out:
        for _ in range(chunks):
            assert out._next._making is None
            await out.write(DATA[:CHUNK])
        assert out._next._making is not None


async def test_a_block_that_is_still_being_made_is_waited_for() -> None:
    async with memory_cluster() as (cluster, fs):
        async with await created(fs) as out:
            await out.write(DATA)
        assert cluster.content("/a") == DATA
        assert len(cluster.files["/a"].blocks) == 3
        assert asked(cluster).count("add_block") == 4, "one for each, and one that was not needed"


async def test_a_file_that_ends_before_its_block_is_full_is_as_without() -> None:
    async with memory_cluster() as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        await out.close()
        assert cluster.content("/a") == DATA[: 3 * CHUNK]
        assert len(cluster.files["/a"].blocks) == 1


async def test_no_block_is_made_ahead_of_a_writer_that_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(next_block, "AHEAD_WITHIN_S", 0.0)
    async with memory_cluster() as (cluster, fs):
        out = await created(fs)
        await out.write(DATA[: 3 * CHUNK])
        await out.hflush()
        assert out._next._making is None
        await out.write(DATA[3 * CHUNK :])
        await out.close()
        assert cluster.content("/a") == DATA


async def test_a_block_made_ahead_whose_member_died_is_left_alone() -> None:
    async with memory_cluster(4) as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        ahead = out._next._made()
        assert ahead is not None
        await cluster.kill(cluster.by_storage[ahead.members[0]])
        await wait_until_async(lambda: out._next._made() is None)
        await out.write(DATA[3 * CHUNK :])
        await out.close()
        assert cluster.content("/a") == DATA
        assert ahead.block not in cluster.files["/a"].blocks


async def test_a_block_that_fails_after_the_next_was_made_is_followed_by_a_new_one() -> None:
    """What it kept is kept, what it did not comes first in the next one."""
    async with memory_cluster(4) as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        ahead = out._next._made()
        assert ahead is not None
        cluster.nodes[0].cut()
        await out.write(DATA[3 * CHUNK :])
        await out.close()
        assert cluster.content("/a") == DATA
        assert ahead.block not in cluster.files["/a"].blocks[:1]


async def test_a_step_that_was_carried_out_but_not_answered_is_repeated() -> None:
    async with memory_cluster() as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        cluster.answers_lost.add("finalize_block")
        writing = asyncio.create_task(out.write(DATA[3 * CHUNK :]))
        await wait_until_async(lambda: len(cluster.files["/a"].blocks) == 2)
        cluster.answers_lost.clear()
        await writing
        await out.close()
        assert cluster.content("/a") == DATA

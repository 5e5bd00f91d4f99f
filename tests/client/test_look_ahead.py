"""The next block is made while the last one is written (against nodes of this process)."""

from __future__ import annotations

import asyncio
import os

import pytest

from paxosblock.base.units import KIB
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing import next_block
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import DeadlineError, OutcomeUnknownError
from paxosblock.protocol.types import BlockId
from tests.client.shipped import ShippedCluster, shipped_cluster
from tests.waiting import PATIENCE_S, wait_until_async

CHUNK = 4 * KIB
BLOCK = 4 * CHUNK
DATA = os.urandom(3 * BLOCK)


@pytest.fixture(autouse=True)
def small_blocks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_block, "AHEAD_FROM_BYTES", BLOCK)
    monkeypatch.setattr(next_block, "AHEAD_BEFORE_S", 0.0)


async def created(fs: AsyncClient) -> AsyncFileWriter:
    return await fs.create("/a", chunk_size=CHUNK, block_size=BLOCK)


async def write_three_of_four(cluster: ShippedCluster, out: AsyncFileWriter) -> None:
    """Write three chunks of the first block, and wait for the block that is made ahead."""
    await out.write(DATA[: 3 * CHUNK])
    await out.hflush()
    assert out._next._making is not None
    await out._next._making


async def numbers(cluster: ShippedCluster) -> list[BlockId]:
    """Return the blocks of the file."""
    return [each.record.block for each in await cluster.blocks("/a")]


async def has_blocks(cluster: ShippedCluster, count: int) -> bool:
    return len(await numbers(cluster)) == count


def asked(cluster: ShippedCluster) -> list[str]:
    """Return what the NameNode was asked since, for blocks."""
    return [name for name in cluster.calls if name in {"add_block", "finalize_block", "close_file"}]


async def test_the_step_to_the_next_block_is_one_call() -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        assert asked(cluster) == ["add_block", "add_block"]
        cluster.calls.clear()
        await out.write(DATA[3 * CHUNK : 5 * CHUNK])
        await out.hflush()
        assert asked(cluster) == ["finalize_block"]
        await out.write(DATA[5 * CHUNK :])
        await out.close()
        assert await cluster.content("/a") == DATA
        assert [each.record.size_bytes for each in await cluster.blocks("/a")] == [BLOCK] * 3


@pytest.mark.parametrize(("seconds", "chunks"), [(60.0, 1), (0.0, 2)])
async def test_a_quick_writer_asks_for_the_next_block_earlier(
    monkeypatch: pytest.MonkeyPatch, seconds: float, chunks: int
) -> None:
    """A quarter of the block tells how quick it is; a slow one waits for half of it."""
    monkeypatch.setattr(next_block, "AHEAD_BEFORE_S", seconds)
    async with shipped_cluster() as (_, fs), await created(fs) as out:
        for _ in range(chunks):
            assert out._next._making is None
            await out.write(DATA[:CHUNK])
        assert out._next._making is not None


async def test_a_block_that_is_still_being_made_is_waited_for() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await created(fs) as out:
            await out.write(DATA)
        assert await cluster.content("/a") == DATA
        assert len(await cluster.blocks("/a")) == 3
        assert asked(cluster).count("add_block") == 4, "one for each, and one that was not needed"


async def test_a_file_that_ends_before_its_block_is_full_is_as_without() -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        await out.close()
        assert await cluster.content("/a") == DATA[: 3 * CHUNK]
        assert len(await cluster.blocks("/a")) == 1


async def test_no_block_is_made_ahead_of_a_writer_that_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(next_block, "AHEAD_WITHIN_S", 0.0)
    async with shipped_cluster() as (cluster, fs):
        out = await created(fs)
        await out.write(DATA[: 3 * CHUNK])
        await out.hflush()
        assert out._next._making is None
        await out.write(DATA[3 * CHUNK :])
        await out.close()
        assert await cluster.content("/a") == DATA


async def test_a_block_made_ahead_whose_member_died_is_left_alone() -> None:
    async with shipped_cluster(4) as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        ahead = out._next._made()
        assert ahead is not None
        await cluster.by_storage[ahead.members[0]].kill()
        await wait_until_async(lambda: out._next._made() is None)
        await out.write(DATA[3 * CHUNK :])
        await out.close()
        assert await cluster.content("/a") == DATA
        assert ahead.block not in await numbers(cluster)


async def test_a_block_that_fails_after_the_next_was_made_is_followed_by_a_new_one() -> None:
    """Chunks that it kept stay there; those that it did not come first in the next one."""
    async with shipped_cluster(4) as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        ahead = out._next._made()
        assert ahead is not None
        (await cluster.members("/a"))[0].wire.cut()
        await out.write(DATA[3 * CHUNK :])
        await out.close()
        assert await cluster.content("/a") == DATA
        assert ahead.block not in (await numbers(cluster))[:1]


async def test_a_step_that_was_carried_out_but_not_answered_is_repeated() -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        cluster.answers_lost.add("finalize_block")
        writing = asyncio.create_task(out.write(DATA[3 * CHUNK :]))
        await wait_until_async(lambda: has_blocks(cluster, 2))
        cluster.answers_lost.clear()
        await writing
        await out.close()
        assert await cluster.content("/a") == DATA


async def test_the_file_goes_on_while_the_end_of_a_block_is_recorded() -> None:
    """Bytes that the next block gets meanwhile are acknowledged when the end of this one is."""
    async with shipped_cluster() as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        cluster.answers_lost.add("finalize_block")
        await out.write(DATA[3 * CHUNK : 5 * CHUNK])
        block, flushing = out._block, asyncio.create_task(out.hflush())
        assert block is not None
        await wait_until_async(lambda: block.acknowledged_bytes == CHUNK)
        assert (out.acknowledged, flushing.done()) == (BLOCK, False)
        cluster.answers_lost.clear()
        assert (await flushing).size == out.acknowledged == 5 * CHUNK
        await out.write(DATA[5 * CHUNK :])
        await out.close()
        assert await cluster.content("/a") == DATA
        assert len(await cluster.blocks("/a")) == 3


async def test_an_end_that_nobody_records_in_time_is_told_by_a_later_call_and_asked_for_again() -> (
    None
):
    async with shipped_cluster() as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        cluster.answers_lost.add("finalize_block")
        out._session = fs.within(0.2)._session
        await out.write(DATA[3 * CHUNK : 5 * CHUNK])
        with pytest.raises((OutcomeUnknownError, DeadlineError)):
            await out.hflush()
        assert out.acknowledged == BLOCK
        cluster.answers_lost.clear()
        out._session = fs.within(PATIENCE_S)._session
        assert (await out.hflush()).size == 5 * CHUNK
        await out.close()
        assert await cluster.content("/a") == DATA[: 5 * CHUNK]


async def test_a_member_that_fails_before_the_end_of_the_block_before_is_recorded() -> None:
    """Its block is sealed, once it is one of the file."""
    async with shipped_cluster(4) as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        cluster.answers_lost.add("finalize_block")
        await out.write(DATA[3 * CHUNK : 5 * CHUNK])
        block = out._block
        assert block is not None
        await cluster.by_storage[block.members[0]].kill()
        await wait_until_async(lambda: block.failure is not None)
        assert cluster.calls.count("seal_block") == 0
        cluster.answers_lost.clear()
        await out.write(DATA[5 * CHUNK :])
        await out.close()
        assert await cluster.content("/a") == DATA
        assert block.block in await numbers(cluster)


async def test_a_writer_that_gives_up_in_the_midst_of_a_step_keeps_what_was_acknowledged() -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await created(fs)
        await write_three_of_four(cluster, out)
        await out.write(DATA[3 * CHUNK : 5 * CHUNK])
        await out.abort()
        kept = await cluster.content("/a")
        assert len(kept) >= BLOCK
        assert DATA.startswith(kept)

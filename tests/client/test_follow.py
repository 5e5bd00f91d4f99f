"""Following a file while it is being written (against nodes of this process)."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import pytest

from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import (
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    TruncatedError,
    UnavailableError,
)
from tests.client.shipped import shipped_cluster
from tests.waiting import wait_until_async


class Tail:
    """A follower in the background and what it has heard so far."""

    def __init__(self, fs: AsyncClient, path: str, offset: int = 0) -> None:
        self.heard = b""
        self.task = asyncio.create_task(self._run(fs, path, offset))

    async def _run(self, fs: AsyncClient, path: str, offset: int) -> None:
        async for data in fs.follow(path, offset):
            self.heard += data

    async def hears(self, data: bytes) -> None:
        """Wait until exactly `data` was heard."""
        await wait_until_async(lambda: self.heard == data or self.task.done())
        assert self.heard == data


async def test_every_flush_is_heard_and_the_end_of_the_file_ends_the_iterator() -> None:
    data = os.urandom(1000)
    async with shipped_cluster() as (_, fs):
        async with await fs.create("/a", chunk_size=10, block_size=45) as out:
            tail = Tail(fs, "/a")
            for length in (1, 10, 45, 46, 300):
                await out.write(data[out.tell() : length])
                await out.hflush()
                await tail.hears(data[:length])
            await out.write(data[300:])
        await asyncio.wait_for(tail.task, 10)
        assert tail.heard == data


async def test_a_follower_may_start_in_the_middle_or_beyond_the_end() -> None:
    async with shipped_cluster() as (_, fs):
        async with await fs.create("/a", chunk_size=4) as out:
            await out.write(b"0123456789")
            await out.hflush()
            middle, beyond = Tail(fs, "/a", 7), Tail(fs, "/a", 12)
            await middle.hears(b"789")
            await out.write(b"abcdef")
        await asyncio.gather(middle.task, beyond.task)
        assert middle.heard == b"789abcdef"
        assert beyond.heard == b"cdef"


async def test_a_follower_survives_the_loss_of_a_datanode() -> None:
    data = os.urandom(500)
    async with shipped_cluster(4) as (cluster, fs):
        async with await fs.create("/a", chunk_size=10) as out:
            tail = Tail(fs, "/a")
            await out.write(data[:100])
            await out.hflush()
            await tail.hears(data[:100])
            await cluster.nodes[0].kill()
            await out.write(data[100:])
            await out.hflush()
            await tail.hears(data)
        await asyncio.wait_for(tail.task, 10)
        assert tail.heard == await cluster.content("/a")


async def test_a_take_over_ends_a_follower_with_everything_that_was_kept() -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a")
        tail = Tail(fs, "/a")
        await out.write(b"hello")
        await out.hflush()
        await fs.take_over("/a")
        await asyncio.wait_for(tail.task, 10)
        assert tail.heard == await cluster.content("/a") == b"hello"
        await out.abort()


async def test_a_quiet_file_is_not_asked_about_in_a_loop() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a") as out:
            await out.write(b"hello")
            await out.hflush()
            tail = Tail(fs, "/a")
            await tail.hears(b"hello")

            def asked() -> tuple[int, int]:
                return len(cluster.calls), sum(node.wire.answers for node in cluster.nodes)

            async def is_quiet() -> bool:
                before = asked()
                await asyncio.wait([tail.task], timeout=0.3)
                return before == asked()

            await wait_until_async(is_quiet, what="a follower that waits for news")
        await asyncio.wait_for(tail.task, 10)


async def test_following_what_is_not_there_is_an_error() -> None:
    async with shipped_cluster() as (_, fs):
        with pytest.raises(NotFoundError):
            await anext(fs.follow("/nothing"))
        with pytest.raises(InvalidRequestError, match="negative"):
            fs.follow("/nothing", -1)


async def test_a_follower_of_a_replaced_file_does_not_mix_the_two() -> None:
    async with shipped_cluster() as (_, fs):
        old = await fs.create("/a")
        tail = Tail(fs, "/a")
        await old.write(b"old")
        await old.hflush()
        await tail.hears(b"old")
        await fs.delete("/a")
        async with await fs.create("/a") as new:
            await new.write(b"newer")
        with pytest.raises(NotFoundError, match="replaced"):
            await asyncio.wait_for(tail.task, 10)
        assert tail.heard == b"old"
        await old.abort()


async def is_taken_over(fs: AsyncClient) -> bool:
    """End the file, once the NameNode has heard of nodes that were started again."""
    with suppress(NotReadyError, UnavailableError):
        await fs.take_over("/a")
        return True
    return False


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_follower_is_told_that_a_recovery_took_back_what_was_delivered(
    goes_on: bool,
) -> None:
    """I10: as after a force that gave up all who had the last chunks, whatever comes in their place
    later."""
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a", chunk_size=4)
        await out.write(b"0123")
        await out.hflush()
        for node in cluster.nodes:
            node.keep_folder()
        await out.write(b"456789ab")
        await out.hflush()
        following = aiter(fs.follow("/a"))
        heard = b""
        while len(heard) < 12:
            heard += await anext(following)
        for node in cluster.nodes:
            await node.kill()
        for node in cluster.nodes:
            node.roll_back()
            await node.start()
        await wait_until_async(lambda: is_taken_over(fs), what="the end of the file")
        assert (await fs.stat("/a")).size == 4
        if goes_on:
            async with await fs.append("/a", new_block=True) as more:
                await more.write(b"others and more of them")
        with pytest.raises(TruncatedError, match="'/a': no longer has the 12 bytes that were read"):
            await anext(following)
        await out.abort()


async def test_waiting_for_more_ends_with_the_first_byte_that_is_flushed() -> None:
    async with shipped_cluster() as (_, fs), await fs.create("/a") as out:
        await out.write(b"0123")
        await out.hflush()
        assert await fs.wait_longer("/a", 3, timeout_s=30)
        waiting = asyncio.create_task(fs.wait_longer("/a", 4, timeout_s=30))
        await out.write(b"4")
        assert not waiting.done()
        await out.hflush()
        assert await waiting


async def test_waiting_for_more_of_a_quiet_file_ends_in_time_whether_it_is_open_or_closed() -> None:
    async with shipped_cluster() as (_, fs):
        async with await fs.create("/a") as out:
            await out.write(b"0123")
            await out.hflush()
            assert not await fs.wait_longer("/a", 4, timeout_s=0.05)
        assert not await fs.wait_longer("/a", 4, timeout_s=0.05)


async def test_waiting_for_more_of_a_file_that_is_not_there_is_an_error() -> None:
    async with shipped_cluster() as (_, fs):
        with pytest.raises(NotFoundError):
            await fs.wait_longer("/nowhere", 0, timeout_s=30)

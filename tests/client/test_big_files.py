"""Files of more blocks than one page of the NameNode's answer (against the shipped nodes)."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.base.units import KIB
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.reading.file_blocks import all_extents
from paxosblock.client.reading.length import Consistency, ReadableFile, whole_file
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.errors import InvalidRequestError, NotFoundError, ProtocolError
from tests.client.shipped import ShippedCluster, shipped_cluster
from tests.waiting import wait_until_async

BLOCK_BYTES = KIB
PAGE = 3
DATA = os.urandom(40 * BLOCK_BYTES + 17)


@asynccontextmanager
async def stored(data: bytes = DATA) -> AsyncIterator[tuple[ShippedCluster, AsyncClient]]:
    """A cluster with a closed file /a of many blocks, three in a page."""
    async with shipped_cluster(page_blocks=PAGE) as (cluster, fs):
        async with await fs.create("/a", chunk_size=KIB, block_size=BLOCK_BYTES) as out:
            await out.write(data)
        cluster.calls.clear()
        yield cluster, fs


async def look(session: SharedSession, path: str) -> ReadableFile:
    return await whole_file(session, path, Consistency.QUORUM)


def pages_asked(cluster: ShippedCluster) -> int:
    """Return how often the NameNode was asked for blocks of a file, since the last call of this."""
    count = cluster.calls.count("get_file")
    cluster.calls.clear()
    return count


async def test_a_file_of_one_page_is_opened_and_read_with_one_call() -> None:
    async with stored(DATA[: PAGE * BLOCK_BYTES]) as (cluster, fs), await fs.open("/a") as file:
        assert await file.read() == DATA[: PAGE * BLOCK_BYTES]
        assert pages_asked(cluster) == 1


async def test_a_file_of_many_pages_is_read_page_by_page() -> None:
    async with stored() as (cluster, fs), await fs.open("/a") as file:
        assert file.size == len(DATA)
        assert await file.read() == DATA
        assert pages_asked(cluster) <= 2 + 41 // PAGE


async def test_the_end_of_a_file_of_many_pages_takes_one_page_more() -> None:
    async with stored() as (cluster, fs), await fs.open("/a") as file:
        assert await file.pread(len(DATA) - 5, 5) == DATA[-5:]
        assert pages_asked(cluster) == 1
        assert await file.pread(len(DATA) - 20, 20) == DATA[-20:]
        assert pages_asked(cluster) == 1


async def test_random_places_are_read_and_few_pages_are_kept() -> None:
    rng = random.Random(7)
    async with stored() as (cluster, fs), await fs.open("/a") as file:
        for _ in range(60):
            offset, size = rng.randrange(len(DATA)), rng.randrange(3 * BLOCK_BYTES)
            assert await file.pread(offset, size) == DATA[offset : offset + size]
        assert pages_asked(cluster) > 41 // PAGE, "pages were forgotten and asked for again"
        places = [rng.randrange(len(DATA)) for _ in range(20)]
        pieces = await asyncio.gather(*(file.pread(at, 100) for at in places))
        assert pieces == [DATA[at : at + 100] for at in places]


async def test_locations_are_those_of_all_pages_or_of_the_range_that_is_asked_for() -> None:
    async with stored() as (cluster, fs):
        found = await fs.locations("/a")
        ends = [min(end, len(DATA)) for end in range(BLOCK_BYTES, 42 * BLOCK_BYTES, BLOCK_BYTES)]
        assert [each.offset + each.size for each in found] == ends
        assert all(each.finalized for each in found)
        assert await fs.locations("/a", len(DATA)) == []
        pages_asked(cluster)
        for begin, size in itertools.product((0, 1, 5000, 20_000, len(DATA) - 1), (0, 1, 3000)):
            wanted = [e for e in found if e.offset < begin + size and e.offset + e.size > begin]
            assert await fs.locations("/a", begin, size) == wanted
        assert pages_asked(cluster) <= 15 * 3
        with pytest.raises(InvalidRequestError):
            await fs.locations("/a", -1)
        with pytest.raises(InvalidRequestError):
            await fs.locations("/a", 0, -1)


async def test_a_file_that_grows_is_read_as_it_was_when_it_was_opened() -> None:
    """Its last block is finalized with more bytes, others follow: of them a reader sees nothing."""
    async with shipped_cluster(page_blocks=PAGE) as (_, fs):
        opened = 20 * BLOCK_BYTES + 300
        async with await fs.create("/a", chunk_size=100, block_size=BLOCK_BYTES) as out:
            await out.write(DATA[:opened])
            await out.hflush()
            async with await fs.open("/a") as file:
                assert file.size == opened
                locations = await fs.locations("/a")
                assert [each.finalized for each in locations] == [True] * 20 + [False]
                found = all_extents(file._session, await look(file._session, "/a"))
                first = await anext(found)
                await out.write(DATA[opened:])
                await out.hflush()
                extents = [first, *[extent async for extent in found]]
                assert [each.end for each in extents] == [e.offset + e.size for e in locations]
                assert await file.read() == DATA[:opened]
                assert await file.pread(opened - 10, 100) == DATA[opened - 10 : opened]
        async with await fs.open("/a") as file:
            assert await file.read() == DATA


async def test_what_is_decided_of_many_pages_is_served_while_the_last_block_is_not() -> None:
    async with shipped_cluster(page_blocks=PAGE, retry_for_s=0.2) as (cluster, fs):
        out = await fs.create("/a", chunk_size=KIB, block_size=BLOCK_BYTES)
        whole = 10 * BLOCK_BYTES
        await out.write(DATA[: whole + 10])
        await out.hflush()
        # The block is under recovery: no member can tell its length.
        await cluster.begin_recovery("/a")
        async with await fs.open("/a") as file:
            assert file.undecided
            assert file.decided_size == whole
            assert await file.read(whole) == DATA[:whole]
            await cluster.end_recovery()
            assert await file.decide() == whole + 10
            assert await file.read() == DATA[whole : whole + 10]
        await out.abort()


async def test_the_pages_of_a_file_that_was_replaced_are_not_those_of_the_new_one() -> None:
    async with stored() as (cluster, fs), await fs.open("/a") as file:
        async with await fs.create("/b", block_size=BLOCK_BYTES) as out:
            await out.write(bytes(len(DATA)))
        cluster.hold_namenode()  # the replicas are there for a while yet
        await fs.rename("/b", "/a", overwrite=True)
        assert await file.pread(0, BLOCK_BYTES) == DATA[:BLOCK_BYTES]
        with pytest.raises(NotFoundError):
            await file.pread(20 * BLOCK_BYTES, 10)


async def test_a_page_without_the_byte_that_was_asked_for_is_an_error() -> None:
    async with stored() as (cluster, fs), await fs.open("/a") as file:
        first = await fs._session.namenodes.call(GET_FILE, GetFile("/a"))
        cluster.changes[GET_FILE] = lambda _: first
        with pytest.raises(ProtocolError, match="no finalized block holds byte 20480"):
            await file.pread(20 * BLOCK_BYTES, 10)


async def test_a_follower_gets_page_after_page_and_then_what_is_flushed() -> None:
    async with shipped_cluster(page_blocks=PAGE) as (_, fs):
        heard = bytearray()
        async with await fs.create("/a", chunk_size=KIB, block_size=BLOCK_BYTES) as out:
            await out.write(DATA[: 30 * BLOCK_BYTES])
            await out.hflush()

            async def follow() -> None:
                async for data in fs.follow("/a", 1000):
                    heard.extend(data)

            task = asyncio.create_task(follow())
            await wait_until_async(lambda: len(heard) == 30 * BLOCK_BYTES - 1000)
            await out.write(DATA[30 * BLOCK_BYTES :])
        await asyncio.wait_for(task, 10)
        assert bytes(heard) == DATA[1000:]


async def test_waiting_at_the_end_of_a_file_of_many_pages_asks_for_its_last_page_only() -> None:
    async with stored() as (cluster, fs):
        assert await fs.wait_longer("/a", len(DATA) - 1, 5)
        assert pages_asked(cluster) == 1

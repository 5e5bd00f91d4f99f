"""A file of thousands of blocks, read by several while it is appended to: real processes."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from typing import Final

import pytest

from paxosblock import AsyncClient, LocalCluster
from paxosblock.client.writing.file_writer import AsyncFileWriter

PARTS: Final = 12
PART_BLOCKS: Final = 250
BLOCK_BYTES: Final = 64
SIZE: Final = PARTS * PART_BLOCKS * BLOCK_BYTES
DATA: Final = os.urandom(SIZE + 40 * BLOCK_BYTES)
WITHIN_S: Final = 280


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(datanodes=1) as cluster:
        yield cluster


async def write_parts(fs: AsyncClient) -> None:
    """A closed file of 3,000 blocks: written in parts side by side, and joined."""

    async def part(number: int) -> None:
        out = await fs.create(
            f"/part-{number:02}",
            block_size=BLOCK_BYTES,
            chunk_size=BLOCK_BYTES,
            replication=1,
            durability="memory",
        )
        size = PART_BLOCKS * BLOCK_BYTES
        async with out:
            await out.write(DATA[number * size : (number + 1) * size])

    await asyncio.gather(*(part(number) for number in range(PARTS)))
    await fs.concat("/part-00", [f"/part-{number:02}" for number in range(1, PARTS)])
    await fs.rename("/part-00", "/big")


async def read_random_places(fs: AsyncClient, seed: int) -> None:
    rng = random.Random(seed)
    async with await fs.open("/big") as file:
        assert await file.decide() >= SIZE
        for _ in range(40):
            offset, size = rng.randrange(file.size), rng.randrange(5 * BLOCK_BYTES)
            wanted = DATA[offset : min(offset + size, file.size)]
            assert await file.pread(offset, size) == wanted


async def read_tails(fs: AsyncClient, seen: set[int], stop: asyncio.Event) -> None:
    """The last hundred bytes, again and again, of whatever length the file has by then."""
    while not stop.is_set():
        async with await fs.open("/big") as file:
            await file.decide()  # replicas may answer late on a busy machine
            file.seek(-100, 2)
            assert await file.read() == DATA[file.size - 100 : file.size]
            seen.add(file.size)


async def follow(fs: AsyncClient, offset: int) -> bytes:
    return b"".join([data async for data in fs.follow("/big", offset)])


async def append(out: AsyncFileWriter) -> None:
    async with out:
        for start in range(SIZE, len(DATA), BLOCK_BYTES // 2):
            await out.write(DATA[start : start + BLOCK_BYTES // 2])
            await out.hflush()


async def test_a_file_of_thousands_of_blocks_is_read_everywhere_while_it_grows(
    cluster: LocalCluster,
) -> None:
    async with asyncio.timeout(WITHIN_S), AsyncClient(cluster.url) as fs:
        await write_parts(fs)
        assert (await fs.stat("/big")).size == SIZE
        places = await fs.locations("/big")
        ends = [place.offset + place.size for place in places]
        assert ends == list(range(BLOCK_BYTES, SIZE + 1, BLOCK_BYTES))
        middle = await fs.locations("/big", 1000 * BLOCK_BYTES, 3 * BLOCK_BYTES)
        assert middle == places[1000:1003]
        out = await fs.append("/big", chunk_size=BLOCK_BYTES)
        stop, lengths = asyncio.Event(), set[int]()
        tails = asyncio.create_task(read_tails(fs, lengths, stop))
        followers = [
            asyncio.create_task(follow(fs, offset)) for offset in (0, SIZE - 10, SIZE + 100)
        ]
        async with await fs.open("/big") as before:
            await asyncio.gather(append(out), *(read_random_places(fs, seed) for seed in range(4)))
            assert await before.read() == DATA[:SIZE]
        stop.set()
        await tails
        assert len(lengths) > 1, "the file grew while its end was read"
        assert (await fs.stat("/big")).size == len(DATA)
        async with await fs.open("/big") as file:
            assert await file.read() == DATA
        for follower, offset in zip(followers, (0, SIZE - 10, SIZE + 100), strict=True):
            assert await follower == DATA[offset:]

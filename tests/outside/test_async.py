"""The asynchronous half: on the loop of the caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.errors import InvalidRequestError
from paxosblock.local.cluster import LocalCluster


class Oops(Exception):
    """An error that the tests raise in the middle of a block."""


@pytest.fixture
async def mine(cluster: LocalCluster) -> AsyncIterator[PaxosBlockFileSystem]:
    """A file system on the loop of the test."""
    fs = PaxosBlockFileSystem(cluster.url, asynchronous=True, skip_instance_cache=True)
    yield fs
    await fs.aclose()


async def test_coroutines_run_side_by_side(mine: PaxosBlockFileSystem, home: str) -> None:
    paths = [f"{home}/{number}" for number in range(10)]
    await asyncio.gather(*(mine._pipe_file(path, path.encode()) for path in paths))
    assert await mine._cat(paths) == {path: path.encode() for path in paths}
    assert await mine._du(home) == sum(map(len, paths))


async def test_a_stream_is_written_and_read(mine: PaxosBlockFileSystem, home: str) -> None:
    path = f"{home}/a"
    async with await mine.open_async(path, "wb") as out:
        for _ in range(3):
            await out.write(b"hello ")
        assert out.tell() == 18
        assert not await mine._exists(path)
    async with await mine.open_async(path, "ab") as out:
        await out.write(b"world")
    async with await mine.open_async(path) as file:
        assert file.size == 23
        assert await file.read(5) == b"hello"
        file.seek(-5, 2)
        assert await file.read() == b"world"


async def test_a_stream_that_raises_publishes_nothing(
    mine: PaxosBlockFileSystem, home: str
) -> None:
    await mine._pipe_file(f"{home}/a", b"old")

    async def fail() -> None:
        async with await mine.open_async(f"{home}/a", "wb") as out:
            await out.write(b"half")
            raise Oops

    with pytest.raises(Oops):
        await fail()
    assert await mine._cat_file(f"{home}/a") == b"old"


async def test_a_stream_is_given_up_by_the_block_that_an_exception_ends_and_no_other_close(
    mine: PaxosBlockFileSystem, home: str, caplog: pytest.LogCaptureFixture
) -> None:
    out = await mine.open_async(f"{home}/a", "wb")
    try:
        raise Oops
    except Oops:
        await out.write(b"report")
        await out.close()

    async def fail() -> None:
        async with AsyncExitStack() as stack:
            half = await mine.open_async(f"{home}/b", "wb")
            stack.push_async_callback(half.close)
            await half.write(b"half")
            raise Oops

    with pytest.raises(Oops):
        await fail()
    (warning,) = [each.getMessage() for each in caplog.records]
    assert f"'{home}/b' was not published" in warning
    assert await mine._ls(home, detail=False) == [f"{home}/a"]


async def test_a_cancelled_upload_publishes_nothing(mine: PaxosBlockFileSystem, home: str) -> None:
    out = await mine.open_async(f"{home}/a", "wb")
    written = asyncio.Event()

    async def write() -> None:
        async with out:
            await out.write(b"half")
            written.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(write())
    await written.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not await mine._exists(f"{home}/a")


async def test_synchronous_verbs_of_an_asynchronous_file_system_are_refused(
    mine: PaxosBlockFileSystem,
) -> None:
    with pytest.raises(InvalidRequestError, match="open_async"):
        mine.open("/a", "wb")

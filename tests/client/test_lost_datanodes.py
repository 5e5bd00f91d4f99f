"""Writers that lost DataNodes: what is done between their calls, and how the nodes come back."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref
from functools import partial

import pytest

from paxosblock.base.units import KIB
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import FencedError, UnavailableError
from tests.client.memory_cluster import MemoryCluster, memory_cluster
from tests.waiting import wait_until_async


def blocks(cluster: MemoryCluster, path: str = "/a") -> list[tuple[int, bool]]:
    """Of each block of a file how many members it has, and whether it is finalized."""
    records = [cluster.records[block] for block in cluster.files[path].blocks]
    return [(len(record.members), record.finalized) for record in records]


async def read(fs: AsyncClient, path: str = "/a") -> bytes:
    async with await fs.open(path) as file:
        return await file.read()


async def begun(fs: AsyncClient) -> AsyncFileWriter:
    """A file that is being written, of which "acknowledged" is acknowledged."""
    out = await fs.create("/a")
    await out.write(b"acknowledged")
    await out.hflush()
    return out


async def test_a_block_that_lost_a_member_is_sealed_without_a_call_of_its_writer() -> None:
    async with memory_cluster() as (cluster, fs), await begun(fs) as out:
        await cluster.kill(cluster.nodes[2])
        await wait_until_async(lambda: blocks(cluster) == [(3, True)])
        await cluster.kill(cluster.nodes[1])
        assert await read(fs) == b"acknowledged"
        await cluster.revive(cluster.nodes[1])
        await out.write(b", and more")
        assert (await out.hflush()).size == 22
        await out.close()
        assert cluster.content("/a") == b"acknowledged, and more"
        assert len(blocks(cluster)) == 2


async def test_what_was_not_acknowledged_is_sent_again_without_a_call_of_its_writer() -> None:
    data = os.urandom(3 * KIB)
    async with memory_cluster(4) as (cluster, fs):
        async with await fs.create("/a", chunk_size=KIB) as out:
            cluster.nodes[0].votes_may_go.clear()
            await out.write(data)
            await wait_until_async(lambda: cluster.nodes[0].chunks_received == 3)
            assert out.acknowledged == 0
            cluster.nodes[0].cut()
            await wait_until_async(lambda: out.acknowledged == len(data))
            calls = list(cluster.calls)
            assert (await out.hflush()).size == len(data)
            assert cluster.calls == calls, "the flush found everything done"
        assert cluster.content("/a") == data


async def test_a_block_that_a_cancelled_call_began_is_opened_without_a_call_of_its_writer() -> None:
    """No member has a replica of it, so no node could tell how long the file is."""
    async with memory_cluster(hung_after_s=60.0) as (cluster, fs):
        out = await fs.create("/a", chunk_size=4, block_size=4)
        await out.write(b"one,")
        await out.hflush()
        cluster.answers_lost.add("add_block")
        writing = asyncio.create_task(out.write(b"two,"))
        await wait_until_async(lambda: len(cluster.records) == 2)
        writing.cancel()
        await asyncio.wait([writing])
        cluster.answers_lost.clear()
        await wait_until_async(lambda: out.acknowledged == 8)
        assert await read(fs) == b"one,two,"
        cluster.nodes[0].hang()
        writing = asyncio.create_task(out.write(b"three"))
        await wait_until_async(lambda: len(cluster.records) == 3)
        writing.cancel()
        await asyncio.wait([writing])
        cluster.nodes[0].cut()
        await wait_until_async(lambda: out.acknowledged == 12)
        assert await read(fs) == b"one,two,thre"
        await out.close()
        assert cluster.content("/a") == b"one,two,thre"


async def test_sealing_in_the_background_goes_on_until_a_namenode_can_do_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with memory_cluster() as (cluster, fs), await begun(fs):
        for node in cluster.nodes[:2]:
            await cluster.kill(node)
        await wait_until_async(lambda: "trying again" in caplog.text)
        assert blocks(cluster) == [(3, False)]
        await cluster.revive(cluster.nodes[0])
        await wait_until_async(lambda: blocks(cluster) == [(3, True)])
        assert await read(fs) == b"acknowledged"
        attempts = [line for line in caplog.messages if "trying again" in line]
        assert attempts == ["'/a': block 3: too few members live; trying again"]


async def test_a_call_of_the_writer_does_not_wait_long_for_what_fails_in_the_background() -> None:
    """Half a minute is what the call itself may take; the attempt before it takes a second."""
    async with memory_cluster(retry_for_s=30.0) as (cluster, fs):
        out = await begun(fs)
        for node in cluster.nodes[:2]:
            await cluster.kill(node)
        await wait_until_async(out._lock.locked)
        assert await asyncio.wait_for(out.write(b"small: only buffered"), 15) == 20
        for node in cluster.nodes[:2]:
            await cluster.revive(node)
        await out.close()
        assert cluster.content("/a") == b"acknowledgedsmall: only buffered"


async def test_a_writer_that_nobody_holds_any_more_is_not_kept_by_its_background_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with memory_cluster(lease_interval_s=0.02) as (cluster, fs):
        out = await begun(fs)
        for node in cluster.nodes[:2]:
            await cluster.kill(node)
        await wait_until_async(lambda: "trying again" in caplog.text)
        gone = weakref.ref(out)

        def is_collected() -> bool:
            gc.collect()
            return gone() is None

        del out
        with pytest.warns(ResourceWarning, match="never closed"):
            await wait_until_async(is_collected)


async def test_no_background_work_of_a_file_outlives_its_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with memory_cluster() as (cluster, fs):
        out = await begun(fs)
        before = asyncio.all_tasks()
        for node in cluster.nodes[:2]:
            await cluster.kill(node)
        await wait_until_async(lambda: "trying again" in caplog.text)
        tending = {task for task in asyncio.all_tasks() - before if "tender" in task.get_name()}
        assert len(tending) == 1
        await fs.close()
        assert all(task.done() for task in tending)
        await out.abort()


async def test_being_fenced_in_the_background_surfaces_at_the_next_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with memory_cluster() as (cluster, fs):
        out = await begun(fs)
        async with AsyncClient([cluster.address], fs.config) as other:
            await other.take_over("/a")
        cluster.nodes[0].cut()
        await wait_until_async(lambda: "left to the next call" in caplog.text)
        with pytest.raises(FencedError, match="unknown outcome"):
            await out.write(b"more")
        await out.abort()
        assert cluster.content("/a") == b"acknowledged"


async def test_a_client_that_is_closed_before_its_files_says_nothing_of_the_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with memory_cluster() as (cluster, _), AsyncClient([cluster.address]) as fs:
        out = await begun(fs)
        block = out._block
        assert block is not None
        await fs.close()
        await wait_until_async(lambda: block.failure is not None)
        with pytest.raises(ValueError, match="client is closed"):
            await out.close()
        assert caplog.messages == []


async def test_a_datanode_that_came_back_is_a_member_of_the_next_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """HDFS-6867: the NameNode says so when the leases are renewed, to a writer that is idle too."""
    async with memory_cluster(lease_interval_s=0.02) as (cluster, fs):
        async with await fs.create("/a") as out:
            for number, node in enumerate(cluster.nodes):
                await out.write(b"before")
                await out.hflush()
                await cluster.kill(node)
                await wait_until_async(lambda: blocks(cluster)[-1][1])
                await out.write(b"without")
                await out.hflush()
                assert blocks(cluster)[2 * number :] == [(3, True), (2, False)]
                await cluster.revive(node)
                await wait_until_async(lambda: blocks(cluster)[-1][1])
            await out.write(b"at last")
        assert blocks(cluster) == [(3, True), (2, True)] * 3 + [(3, True)]
        assert cluster.content("/a") == b"beforewithout" * 3 + b"at last"
        assert (out.fewest_replicas, out.shortfall) == (2, "too few DataNodes")
    told = [line for line in caplog.messages if "replicas" in line]
    assert told == ["'/a': a block gets only 2 of 3 replicas: too few DataNodes"] * 3


async def test_a_writer_in_the_middle_of_one_long_write_gets_a_whole_block_too() -> None:
    async with memory_cluster(lease_interval_s=0.02) as (cluster, fs):
        cluster.nodes[0].faults.refuse_create = True
        out = await fs.create("/a", chunk_size=KIB, window=1)
        cluster.nodes[1].votes_may_go.clear()
        writing = asyncio.create_task(out.write(bytes(10 * KIB)))
        await wait_until_async(lambda: cluster.nodes[1].chunks_received == 1)
        assert [members for members, _ in blocks(cluster)] == [3, 2]
        cluster.nodes[0].faults.refuse_create = False
        await cluster.nodes[0].kill()
        await cluster.revive(cluster.nodes[0])
        await wait_until_async(lambda: out._rolling)
        cluster.nodes[1].votes_may_go.set()
        await writing
        assert [members for members, _ in blocks(cluster)] == [3, 2, 3]
        await out.close()
        assert cluster.content("/a") == bytes(10 * KIB)


async def test_a_datanode_that_lives_but_takes_no_replica_does_not_hold_its_writer_up() -> None:
    """It is heard of all the time, and refuses: it rests for longer and longer."""
    async with memory_cluster(lease_interval_s=0.02) as (cluster, fs):
        cluster.nodes[0].faults.refuse_create = True
        refused_for = 0.0
        async with await fs.create("/a") as out:
            began = asyncio.get_running_loop().time()
            while refused_for < 4.0:
                await out.write(b"x")
                await out.hflush()
                refused_for = asyncio.get_running_loop().time() - began
            written = out.tell()
            failed = [record for record in cluster.records.values() if not record.length]
            assert len(failed) <= 4, "at the start, and when it had rested for 1 and 2 seconds"
        assert cluster.content("/a") == b"x" * written


async def test_a_datanode_whose_connection_was_cut_is_taken_again_when_it_is_heard_of() -> None:
    async with memory_cluster(lease_interval_s=0.02) as (cluster, fs):
        async with await fs.create("/a") as out:
            await out.write(b"one")
            await out.hflush()
            cluster.silent.add(cluster.nodes[0].storage)
            cluster.nodes[0].cut()
            await wait_until_async(lambda: blocks(cluster) == [(3, True)])
            await out.write(b"two")
            await out.hflush()
            asked = cluster.calls.count("renew_leases")
            await wait_until_async(lambda: not out._exclusions.excluded()[0].resting)
            await wait_until_async(lambda: cluster.calls.count("renew_leases") > asked + 2)
            assert blocks(cluster) == [(3, True), (2, False)]
            cluster.silent.clear()
            await wait_until_async(lambda: blocks(cluster) == [(3, True), (2, True)])
            await out.write(b"three")
            await out.hflush()
            assert out._exclusions.excluded() == (), "it works again: a next failure is its first"
        assert blocks(cluster) == [(3, True), (2, True), (3, True)]
        assert cluster.content("/a") == b"onetwothree"


async def test_when_all_datanodes_failed_the_writer_the_first_that_is_heard_of_is_taken() -> None:
    async with memory_cluster(2) as (cluster, fs):
        async with await fs.create("/a") as out:
            await out.write(b"one")
            await out.hflush()
            cluster.silent = {node.storage for node in cluster.nodes}
            block = out._block
            assert block is not None
            for storage in block.members:
                block.on_lost(storage, UnavailableError("cut"))
            await wait_until_async(lambda: blocks(cluster) == [(2, True)])
            await out.write(b"two")
            flushing = asyncio.create_task(out.hflush())
            await wait_until_async(lambda: cluster.calls.count("add_block") > 3)
            cluster.silent.clear()
            assert (await flushing).size == 6
        assert blocks(cluster) == [(2, True), (2, True)]


async def test_a_whole_file_is_written_while_datanodes_go_and_come(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Calls and background work take turns, and lose or repeat nothing."""
    data = os.urandom(200 * KIB)
    async with memory_cluster(4, lease_interval_s=0.02) as (cluster, fs):

        def received() -> int:
            return sum(node.chunks_received for node in cluster.nodes)

        def has_moved_on(count: int) -> bool:
            return received() >= count

        async def harass() -> None:
            for turn in range(12):
                node, enough = cluster.nodes[turn % 4], received() + 6
                await cluster.kill(node)
                await wait_until_async(partial(has_moved_on, enough))
                await cluster.revive(node)

        async with await fs.create("/a", chunk_size=100, block_size=50_000) as out:
            harassing = asyncio.create_task(harass())
            at = 0
            while at < len(data) or not harassing.done():
                piece = data[at : at + 777] or os.urandom(777)
                data += piece if at >= len(data) else b""
                at += await out.write(piece)
                if at % 5 == 0:
                    await out.hflush()
            await harassing
        assert cluster.content("/a") == data
    assert "left to the next call" not in caplog.text

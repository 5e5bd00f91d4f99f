"""Writers that lost DataNodes: what is done between their calls, and how the nodes come back."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref
from dataclasses import replace
from functools import partial

import pytest

from paxosblock.base.units import KIB
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import FencedError, UnavailableError
from tests.client.shipped import NAMENODE, ShippedCluster, shipped_cluster
from tests.waiting import wait_until_async


async def blocks(cluster: ShippedCluster, path: str = "/a") -> list[tuple[int, bool]]:
    """Of each block of a file how many members it has, and whether it is finalized."""
    records = [view.record for view in await cluster.blocks(path)]
    return [(len(record.members), record.finalized) for record in records]


async def wait_blocks(cluster: ShippedCluster, *wanted: tuple[int, bool]) -> None:
    """Wait until the blocks of the file are these."""

    async def are_these() -> bool:
        return await blocks(cluster) == [*wanted]

    await wait_until_async(are_these)


async def has_blocks(cluster: ShippedCluster, count: int) -> bool:
    return len(await blocks(cluster)) == count


async def last_ended(cluster: ShippedCluster) -> bool:
    """True once the last block of the file is finalized."""
    return (await blocks(cluster))[-1][1]


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
    async with shipped_cluster() as (cluster, fs), await begun(fs) as out:
        await cluster.nodes[2].kill()
        await wait_blocks(cluster, (3, True))
        await cluster.nodes[1].kill()
        assert await read(fs) == b"acknowledged"
        await cluster.nodes[1].start()
        await out.write(b", and more")
        assert (await out.hflush()).size == 22
        await out.close()
        assert await cluster.content("/a") == b"acknowledged, and more"
        assert len(await blocks(cluster)) == 2


async def test_what_was_not_acknowledged_is_sent_again_without_a_call_of_its_writer() -> None:
    data = os.urandom(3 * KIB + 1)
    async with shipped_cluster(4) as (cluster, fs):
        async with await fs.create("/a", chunk_size=KIB) as out:
            await out.write(data[:1])
            await out.hflush()
            slow, *_ = await cluster.members("/a")
            slow.wire.votes_may_go.clear()
            chunks = slow.wire.chunks
            await out.write(data[1:])
            await wait_until_async(lambda: slow.wire.chunks == chunks + 3)
            assert out.acknowledged == 1
            slow.wire.cut()
            slow.wire.votes_may_go.set()
            await wait_until_async(lambda: out.acknowledged == len(data))
            calls = list(cluster.calls)
            assert (await out.hflush()).size == len(data)
            assert cluster.calls == calls, "the flush found everything done"
        assert await cluster.content("/a") == data


async def test_a_block_that_a_cancelled_call_began_is_opened_without_a_call_of_its_writer() -> None:
    """No member has a replica of it, so no node could tell how long the file is."""
    async with shipped_cluster(hung_after_s=60.0) as (cluster, fs):
        out = await fs.create("/a", chunk_size=4, block_size=4)
        await out.write(b"one,")
        await out.hflush()
        cluster.answers_lost.add("add_block")
        writing = asyncio.create_task(out.write(b"two,"))
        await wait_until_async(lambda: has_blocks(cluster, 2))
        writing.cancel()
        await asyncio.wait([writing])
        cluster.answers_lost.clear()
        await wait_until_async(lambda: out.acknowledged == 8)
        assert await read(fs) == b"one,two,"
        cluster.nodes[0].wire.hang()
        writing = asyncio.create_task(out.write(b"three"))
        await wait_until_async(lambda: has_blocks(cluster, 3))
        writing.cancel()
        await asyncio.wait([writing])
        cluster.nodes[0].wire.cut()
        await wait_until_async(lambda: out.acknowledged == 12)
        assert await read(fs) == b"one,two,thre"
        await out.close()
        assert await cluster.content("/a") == b"one,two,thre"


async def test_sealing_in_the_background_goes_on_until_a_namenode_can_do_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = replace(NAMENODE, recovery_timeout_s=0.2)
    async with shipped_cluster(names=names) as (cluster, fs), await begun(fs):
        for node in cluster.nodes[:2]:
            await node.kill()
        await wait_until_async(lambda: "trying again" in caplog.text)
        assert await blocks(cluster) == [(3, False)]
        await cluster.nodes[0].start()
        await wait_blocks(cluster, (3, True))
        assert await read(fs) == b"acknowledged"
        (view,) = await cluster.blocks("/a")
        attempts = [line for line in caplog.messages if "trying again" in line]
        (attempt,) = attempts
        assert attempt.startswith(f"'/a': block {view.record.block}: not recovered in 0.2 s")


async def test_a_call_of_the_writer_does_not_wait_long_for_what_fails_in_the_background() -> None:
    """Half a minute is what the call itself may take; the attempt before it takes a second."""
    async with shipped_cluster(retry_for_s=30.0) as (cluster, fs):
        out = await begun(fs)
        for node in cluster.nodes[:2]:
            await node.kill()
        await wait_until_async(out._lock.locked)
        assert await asyncio.wait_for(out.write(b"small: only buffered"), 15) == 20
        for node in cluster.nodes[:2]:
            await node.start()
        await out.close()
        assert await cluster.content("/a") == b"acknowledgedsmall: only buffered"


async def test_a_writer_that_nobody_holds_any_more_is_not_kept_by_its_background_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shipped_cluster(lease_interval_s=0.02) as (cluster, fs):
        out = await begun(fs)
        for node in cluster.nodes[:2]:
            await node.kill()
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
    async with shipped_cluster() as (cluster, fs):
        out = await begun(fs)
        before = asyncio.all_tasks()
        for node in cluster.nodes[:2]:
            await node.kill()
        await wait_until_async(lambda: "trying again" in caplog.text)
        tending = {task for task in asyncio.all_tasks() - before if "tender" in task.get_name()}
        assert len(tending) == 1
        await fs.close()
        assert all(task.done() for task in tending)
        await out.abort()


async def test_being_fenced_in_the_background_surfaces_at_the_next_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await begun(fs)
        async with AsyncClient([cluster.address], fs.config) as other:
            await other.take_over("/a")
            async with await other.append("/a") as appending:
                await appending.write(b", and more")
        cluster.nodes[0].wire.cut()
        await wait_until_async(lambda: "left to the next call" in caplog.text)
        with pytest.raises(FencedError, match="unknown outcome"):
            await out.write(b"more")
        await out.abort()
        assert await cluster.content("/a") == b"acknowledged, and more"


async def test_a_client_that_is_closed_before_its_files_says_nothing_of_the_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shipped_cluster() as (cluster, _), AsyncClient([cluster.address]) as fs:
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
    async with shipped_cluster(lease_interval_s=0.02) as (cluster, fs):
        async with await fs.create("/a") as out:
            for number, node in enumerate(cluster.nodes):
                await out.write(b"before")
                await out.hflush()
                await node.kill()
                await wait_until_async(lambda: last_ended(cluster))
                await out.write(b"without")
                await out.hflush()
                assert (await blocks(cluster))[2 * number :] == [(3, True), (2, False)]
                await node.start()
                await wait_until_async(lambda: last_ended(cluster))
            await out.write(b"at last")
        assert len(await blocks(cluster)) == 7
        assert (await blocks(cluster))[-1] == (3, True)
        assert await cluster.content("/a") == b"beforewithout" * 3 + b"at last"
    reasons = [f"DataNodes not used: datanode-{number} (failed this writer)" for number in range(3)]
    assert (out.fewest_replicas, out.shortfall) == (2, reasons[0])
    told = [line for line in caplog.messages if "replicas" in line]
    assert told == [f"'/a': a block gets only 2 of 3 replicas: {reason}" for reason in reasons]


async def test_a_writer_in_the_middle_of_one_long_write_gets_a_whole_block_too() -> None:
    async with shipped_cluster(lease_interval_s=0.02) as (cluster, fs):
        refusing, slow, _ = cluster.nodes
        refusing.wire.faults.refuses_replicas = True
        out = await fs.create("/a", chunk_size=KIB, window=1)
        slow.wire.votes_may_go.clear()
        writing = asyncio.create_task(out.write(bytes(10 * KIB)))
        await wait_until_async(lambda: slow.wire.chunks == 1)
        assert [members for members, _ in await blocks(cluster)] == [3, 2]
        refusing.wire.heal()
        await refusing.kill()
        await refusing.start()
        await wait_until_async(lambda: out._rolling)
        slow.wire.votes_may_go.set()
        await writing
        assert [await has_blocks(cluster, 3), (await blocks(cluster))[-1]] == [True, (3, False)]
        await out.close()
        assert await cluster.content("/a") == bytes(10 * KIB)


async def test_a_datanode_that_lives_but_takes_no_replica_does_not_hold_its_writer_up() -> None:
    """It is heard of all the time, and refuses: it rests for longer and longer."""
    async with shipped_cluster(lease_interval_s=0.02) as (cluster, fs):
        cluster.nodes[0].wire.faults.refuses_replicas = True
        refused_for = 0.0
        async with await fs.create("/a") as out:
            began = asyncio.get_running_loop().time()
            while refused_for < 4.0:
                await out.write(b"x")
                await out.hflush()
                refused_for = asyncio.get_running_loop().time() - began
            written = out.tell()
            failed = cluster.calls.count("seal_block")
            assert failed <= 4, "at the start, and when it had rested for 1 and 2 seconds"
        assert await cluster.content("/a") == b"x" * written


async def test_a_datanode_whose_connection_was_cut_is_taken_again_when_it_is_heard_of() -> None:
    async with shipped_cluster(lease_interval_s=0.02) as (cluster, fs):
        async with await fs.create("/a") as out:
            await out.write(b"one")
            await out.hflush()
            cluster.nodes[0].silent = True
            cluster.nodes[0].wire.cut()
            await wait_blocks(cluster, (3, True))
            await out.write(b"two")
            await out.hflush()
            asked = cluster.calls.count("renew_leases")
            await wait_until_async(lambda: not out._exclusions.excluded()[0].resting)
            await wait_until_async(lambda: cluster.calls.count("renew_leases") > asked + 2)
            assert await blocks(cluster) == [(3, True), (2, False)]
            cluster.nodes[0].silent = False
            await wait_until_async(lambda: last_ended(cluster))
            await out.write(b"three")
            await out.hflush()
            assert out._exclusions.excluded() == (), "it works again: a next failure is its first"
            assert (await blocks(cluster))[-1] == (3, False)
        assert len(await blocks(cluster)) == 3
        assert await cluster.content("/a") == b"onetwothree"


async def test_when_all_datanodes_failed_the_writer_the_first_that_is_heard_of_is_taken() -> None:
    async with shipped_cluster(2) as (cluster, fs):
        async with await fs.create("/a") as out:
            await out.write(b"one")
            await out.hflush()
            for node in cluster.nodes:
                node.silent = True
            block = out._block
            assert block is not None
            for storage in block.members:
                block.on_lost(storage, UnavailableError("cut"))
            await wait_blocks(cluster, (2, True))
            await out.write(b"two")
            flushing = asyncio.create_task(out.hflush())
            await wait_until_async(lambda: cluster.calls.count("add_block") > 3)
            for node in cluster.nodes:
                node.silent = False
            assert (await flushing).size == 6
        assert [ended for _, ended in await blocks(cluster)] == [True, True]


async def test_a_whole_file_is_written_while_datanodes_go_and_come(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Calls and background work take turns, and lose or repeat nothing."""
    data = os.urandom(200 * KIB)
    async with shipped_cluster(4, lease_interval_s=0.02) as (cluster, fs):

        def received() -> int:
            return sum(node.wire.chunks for node in cluster.nodes)

        def has_moved_on(count: int) -> bool:
            return received() >= count

        async def harass() -> None:
            for turn in range(12):
                node, enough = cluster.nodes[turn % 4], received() + 6
                await node.kill()
                await wait_until_async(partial(has_moved_on, enough))
                await node.start()

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
        assert await cluster.content("/a") == data
    assert "left to the next call" not in caplog.text

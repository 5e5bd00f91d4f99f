"""Writers with a DataNode that hangs, or with one whose votes are late."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import asdict

import pytest

from paxosblock.base.units import MIB
from paxosblock.client.session.watched import WritingConnections
from paxosblock.client.writing.block_writer import BlockWriter
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.client.writing.receipt import BlockReceipt
from paxosblock.config import ClientConfig
from paxosblock.errors import UnavailableError
from tests.client.shipped import NEAR, ShippedCluster, ShippedDataNode, shipped_cluster
from tests.waiting import wait_until_async

NEVER_S = 60.0
"""For votes: what ends sooner was not ended by the time-out of a vote."""
HUNG_S = 0.3


def block_of(out: AsyncFileWriter) -> BlockWriter:
    assert out._block is not None
    return out._block


async def a_member(cluster: ShippedCluster, out: AsyncFileWriter) -> ShippedDataNode:
    """Return one of the DataNodes of the block that is being written."""
    members = (await out.hflush()).replicas
    return next(node for node in cluster.nodes if node.storage in members)


@pytest.mark.parametrize("chunks_before", [1, 5])
async def test_a_writer_goes_on_without_a_node_that_hangs(chunks_before: int) -> None:
    async with shipped_cluster(4, hung_after_s=HUNG_S, vote_timeout_s=NEVER_S) as (cluster, fs):
        async with await fs.create("/a", chunk_size=10) as out:
            await out.write(b"x" * 10 * chunks_before)
            (await a_member(cluster, out)).wire.hang()
            begun = time.monotonic()
            await out.write(b"y" * 25)
            assert (await out.hflush()).size == 10 * chunks_before + 25
            assert time.monotonic() - begun < NEVER_S / 4
        assert await cluster.content("/a") == b"x" * 10 * chunks_before + b"y" * 25


async def test_a_node_that_hangs_when_a_block_begins_takes_no_replica() -> None:
    async with shipped_cluster(4, hung_after_s=HUNG_S, vote_timeout_s=NEVER_S) as (cluster, fs):
        async with await fs.create("/a", chunk_size=10, block_size=10) as out:
            await out.write(b"x" * 10)
            await out.hflush()
            (await cluster.members("/a"))[0].wire.hang()
            begun = time.monotonic()
            await out.write(b"y" * 10)
            assert (await out.hflush()).size == 20
            assert time.monotonic() - begun < NEVER_S / 4
        assert await cluster.content("/a") == b"x" * 10 + b"y" * 10


async def test_a_writer_that_is_idle_hears_of_a_node_that_hangs() -> None:
    async with (
        shipped_cluster(3, hung_after_s=HUNG_S, vote_timeout_s=NEVER_S) as (cluster, fs),
        await fs.create("/a", chunk_size=10) as out,
    ):
        await out.write(b"x" * 10)
        await out.hflush()
        block = block_of(out)
        cluster.nodes[1].wire.hang()
        await wait_until_async(lambda: block._failure is not None, timeout_s=NEVER_S / 4)
        assert block._failure is not None
        assert block._failure.failed == (cluster.nodes[1].storage,)
        assert "hangs or is out of reach" in block._failure.reason


async def test_a_sync_asks_a_majority_and_does_not_wait_for_a_member_that_hangs() -> None:
    patient = ClientConfig(hung_after_s=HUNG_S, vote_timeout_s=NEVER_S, rpc_timeout_s=NEVER_S)
    async with shipped_cluster(3, **asdict(patient)) as (cluster, fs):
        out = await fs.create("/a", durability="memory", chunk_size=10, block_size=10)
        async with out:
            await out.write(b"x" * 15)
            await out.hsync()  # all members are connected now
            await out.write(b"x" * 20)
            await out.hflush()
            closed = (await cluster.records("/a"))[2].block
            cluster.nodes[0].wire.hang()
            begun = time.monotonic()
            receipt = await out.hsync()
            assert time.monotonic() - begun < NEVER_S / 4
        assert BlockReceipt(closed, 3, 2) in receipt.blocks
        assert await cluster.content("/a") == b"x" * 35


async def test_a_disk_that_is_slow_for_long_does_not_end_a_block() -> None:
    async with shipped_cluster(3, hung_after_s=HUNG_S, vote_timeout_s=NEVER_S) as (cluster, fs):
        clock = fs._session.writing.clock
        async with await fs.create("/a", chunk_size=10) as out:
            await out.write(b"x" * 10)
            await out.hflush()
            cluster.nodes[0].wire.votes_may_go.clear()
            flush = asyncio.create_task(_flushed(out, b"y" * 10))
            late = clock.now_s + 5 * HUNG_S
            await wait_until_async(lambda: clock.now_s > late)
            assert not flush.done()
            cluster.nodes[0].wire.votes_may_go.set()
            await flush
        assert len(await cluster.records("/a")) == 1


async def test_a_disk_that_never_answers_ends_a_block_though_its_node_lives() -> None:
    async with shipped_cluster(4, hung_after_s=HUNG_S, vote_timeout_s=2.0) as (cluster, fs):
        async with await fs.create("/a", chunk_size=10) as out:
            await out.write(b"x" * 10)
            slow = await a_member(cluster, out)
            block = block_of(out)
            slow.wire.votes_may_go.clear()
            await _flushed(out, b"y" * 10)
            assert block._failure is not None
            assert block._failure.failed == (slow.storage,)
            assert block._failure.reason.startswith(f"no vote of {slow.storage} in 1")
            slow.wire.votes_may_go.set()
        assert await cluster.content("/a") == b"x" * 10 + b"y" * 10


async def test_a_writer_goes_on_without_a_node_whose_disk_hangs() -> None:
    config = ClientConfig(disk_hung_after_s=HUNG_S, vote_timeout_s=NEVER_S)
    async with shipped_cluster(4, **asdict(config)) as (cluster, fs):
        async with await fs.create("/a", chunk_size=10) as out:
            await out.write(b"x" * 10)
            hung = await a_member(cluster, out)
            block = block_of(out)
            hung.wire.votes_may_go.clear()
            hung.wire.faults.disk_stands_s = HUNG_S
            begun = time.monotonic()
            await _flushed(out, b"y" * 10)
            assert time.monotonic() - begun < NEVER_S / 4
            assert block._failure is not None
            assert block._failure.failed == (hung.storage,)
            assert f"the disk of {hung.storage} hangs" in block._failure.reason
            hung.wire.votes_may_go.set()
        assert await cluster.content("/a") == b"x" * 10 + b"y" * 10


async def test_a_small_file_is_made_without_a_node_whose_disk_hangs() -> None:
    config = ClientConfig(disk_hung_after_s=HUNG_S, vote_timeout_s=NEVER_S, host=NEAR)
    async with shipped_cluster(4, **asdict(config)) as (cluster, fs):
        for node in cluster.nodes[:1]:
            node.wire.votes_may_go.clear()
            node.wire.faults.disk_stands_s = HUNG_S
        begun = time.monotonic()
        for number in range(4):  # the first of them is placed there
            async with await fs.create(f"/{number}") as out:
                await out.write(b"x")
        assert time.monotonic() - begun < NEVER_S / 4
        assert "CreateAndWrite" in cluster.nodes[0].wire.batches
        cluster.nodes[0].wire.votes_may_go.set()
        assert [await cluster.content(f"/{number}") for number in range(4)] == [b"x"] * 4


async def test_nobody_is_left_while_too_few_disks_answer_for_a_recovery() -> None:
    """As where all nodes have one disk: to leave some would be to wait for them all the same."""
    config = ClientConfig(disk_hung_after_s=HUNG_S, vote_timeout_s=NEVER_S)
    async with shipped_cluster(3, **asdict(config)) as (cluster, fs):
        clock = fs._session.writing.clock
        async with await fs.create("/a", chunk_size=10) as out:
            await _flushed(out, b"x" * 10)
            for node in cluster.nodes[:2]:
                node.wire.votes_may_go.clear()
                node.wire.faults.disk_stands_s = 10 * HUNG_S
            flush = asyncio.create_task(_flushed(out, b"y" * 10))
            late = clock.now_s + 5 * HUNG_S
            await wait_until_async(lambda: clock.now_s > late)
            assert not flush.done()
            for node in cluster.nodes[:2]:
                node.wire.votes_may_go.set()
            await flush
        assert len(await cluster.records("/a")) == 1


async def test_a_node_that_takes_no_connection_is_given_twice_the_time_at_the_next_try() -> None:
    """The system of a stopped process accepts in its name; then no answer comes."""
    config = ClientConfig(hung_after_s=0.1, connect_timeout_s=0.3)
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        pool = WritingConnections(config)
        address = f"127.0.0.1:{stopped.getsockname()[1]}"
        for within in ("0.1", "0.2", "0.3", "0.3"):
            tries = (pool.get(address) for _ in range(5))
            failures = await asyncio.gather(*tries, return_exceptions=True)
            assert all(isinstance(failure, UnavailableError) for failure in failures)
            assert {str(failure).partition("did not answer ")[2] for failure in failures} == {
                f"within {within} s"
            }
        left = asyncio.create_task(pool.get(address))
        await wait_until_async(lambda: pool._connecting)
        await pool.close()
        with pytest.raises(UnavailableError, match="the client is closed"):
            await left


async def test_a_client_is_closed_though_a_node_that_hangs_does_not_take_what_was_sent() -> None:
    async with shipped_cluster(3, hung_after_s=NEVER_S, vote_timeout_s=NEVER_S) as (cluster, fs):
        out = await fs.create("/a", chunk_size=4 * MIB, window=8)
        await out.write(b"x")
        await out.hflush()
        stream = await fs._session.writing.get(cluster.nodes[0].address)
        cluster.nodes[0].wire.hang()
        data = bytes(32 * MIB)
        writing = asyncio.create_task(out.write(data))
        await wait_until_async(lambda: not stream.stream.writable)
        writing.cancel()
        await asyncio.wait([writing])
        await out.abort()
        assert not stream.closed
        await asyncio.wait_for(fs.close(), NEVER_S / 4)
        assert stream.closed


async def test_a_call_that_is_cancelled_while_a_block_begins_leaves_nobody_who_listens() -> None:
    """Each would be told votes, and have the node beat for it, as long as the client lives."""
    async with shipped_cluster(3, hung_after_s=NEVER_S, vote_timeout_s=NEVER_S) as (cluster, fs):
        out = await fs.create("/a", chunk_size=10, block_size=10)
        await out.write(b"x" * 10)
        await out.hflush()
        streams = [await fs._session.writing.get(node.address) for node in cluster.nodes]
        cluster.nodes[2].wire.hang()
        writing = asyncio.create_task(out.write(b"y" * 10))

        async def is_begun() -> bool:
            listening = [len(stream._listeners) for stream in streams]
            return len(await cluster.records("/a")) == 2 and listening == [1, 1, 0]

        await wait_until_async(is_begun)
        writing.cancel()
        await asyncio.wait([writing])
        assert [len(stream._listeners) for stream in streams] == [0, 0, 0]
        await cluster.nodes[2].kill()
        await out.abort()


async def _flushed(out: AsyncFileWriter, data: bytes) -> None:
    await out.write(data)
    await out.hflush()

"""W5: the writer of a block that goes on in a later generation, with other members or after K7."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from paxosblock.api.namenode import ADD_BLOCK, NO_BLOCK, NO_FILE, AddBlock, BlockView
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.block_writer import BlockFailed, BlockWriter
from paxosblock.client.writing.chunks import chunk_of
from paxosblock.errors import CorruptionError, FencedError, ProtocolError
from paxosblock.protocol.types import BlockId, StorageId, WriterId
from tests.client.memory_cluster import MemoryCluster, memory_cluster
from tests.waiting import wait_until_async

ANN = WriterId("ann")
BOB = WriterId("bob")
Begun = tuple[MemoryCluster, AsyncClient, BlockWriter]


@pytest.fixture
async def begun() -> AsyncIterator[Begun]:
    """A block of three of four DataNodes; two of its chunks are acknowledged."""
    async with memory_cluster(4) as (cluster, fs):
        request = AddBlock(NO_FILE, ANN, NO_BLOCK, window=4)
        view = await fs._session.namenodes.call(ADD_BLOCK, request)
        block = BlockWriter(view, ANN, fs._session.namenodes, fs._session.writing)
        await block.open()
        await write(block, b"one,", b"two,")
        await block.settled()
        yield cluster, fs, block
        block.release()


async def write(block: BlockWriter, *pieces: bytes) -> None:
    for piece in pieces:
        await block.room()
        block.send(chunk_of(piece, sync=False))


async def failed(cluster: MemoryCluster, block: BlockWriter, *lost: int) -> None:
    """These DataNodes are killed, and the writer has heard of it."""
    for number in lost:
        await cluster.kill(cluster.nodes[number])
    await wait_until_async(lambda: block.failure is not None)


def storages(*numbers: int) -> tuple[StorageId, ...]:
    return tuple(StorageId(f"storage-{number}") for number in numbers)


def held(cluster: MemoryCluster, block: BlockId, *numbers: int) -> set[bytes]:
    return {cluster.nodes[number].data(block) for number in numbers}


async def test_the_same_bytes_are_sent_again_to_another_member(begun: Begun) -> None:
    """One member has the chunks that are under way, and the others do not vote for them."""
    cluster, _, block = begun
    for node in cluster.nodes[1:3]:
        node.votes_may_go.clear()
    await write(block, b"three,", b"four")
    await wait_until_async(lambda: cluster.nodes[1].chunks_received == 4)
    await failed(cluster, block, 0)
    for node in cluster.nodes:
        node.votes_may_go.set()
    await block.regrant(cluster.rebuild(block.block, storages(1, 2, 3)))
    await write(block, b", five")
    view = await block.close()
    assert (view.record.length, block.acknowledged_bytes, block.generation) == (5, 24, 1)
    assert held(cluster, block.block, 1, 2, 3) == {b"one,two,three,four, five"}


async def test_chunks_that_a_member_alone_had_are_kept_or_sent_again(begun: Begun) -> None:
    """Granted length 2 of 4 that were sent: chunks 2 and 3 go again under the same names."""
    cluster, _, block = begun
    for node in cluster.nodes[1:3]:
        node.hang()
    await write(block, b"three,", b"four")
    await wait_until_async(lambda: cluster.nodes[0].chunks_received == 4)
    for node in cluster.nodes[1:3]:
        node.cut()
    await cluster.kill(cluster.nodes[0])
    await wait_until_async(lambda: block.failure is not None and len(block.failure.failed) == 3)
    await block.regrant(cluster.rebuild(block.block, storages(1, 2)))
    assert block.members == storages(1, 2)
    view = await block.close()
    assert view.record.length == 4
    assert held(cluster, block.block, 1, 2) == {b"one,two,three,four"}


async def test_what_is_refused_of_the_generation_before_is_old_news(begun: Begun) -> None:
    """A member is fenced before it gets a chunk, and says so after the Grant."""
    cluster, _, block = begun
    view = cluster.rebuild(block.block, storages(0, 1, 2))
    for node in cluster.nodes[:3]:
        node.votes_may_go.clear()
    await write(block, b"three")
    await wait_until_async(lambda: cluster.nodes[0].chunks_received == 3)
    await block.regrant(view)
    for node in cluster.nodes[:3]:
        node.votes_may_go.set()
    assert (await block.close()).record.length == 3
    assert held(cluster, block.block, 0, 1, 2) == {b"one,two,three"}


async def test_a_member_that_fails_again_leaves_all_chunks_to_the_next_block(begun: Begun) -> None:
    cluster, _, block = begun
    for node in cluster.nodes[:3]:
        node.votes_may_go.clear()
    await write(block, b"three")
    await failed(cluster, block, 0)
    view = cluster.rebuild(block.block, storages(1, 2, 3))
    await cluster.kill(cluster.nodes[3])
    with pytest.raises(BlockFailed, match="storage-3"):
        await block.regrant(view)
    cluster.nodes[1].votes_may_go.set()
    sealed = await block.seal()
    kept = sealed.view.record.length
    assert b"one,two," + b"".join([b"three"][: kept - 2]) in held(cluster, block.block, 1)
    assert [bytes(chunk.data) for chunk in sealed.rest] == [b"three"][kept - 2 :]


async def test_a_grant_whose_call_is_cancelled_leaves_a_block_that_failed(begun: Begun) -> None:
    """Else the next chunk would take the place of one that was sent before."""
    cluster, _, block = begun
    for node in cluster.nodes[:3]:
        node.votes_may_go.clear()
    await write(block, b"three")
    await failed(cluster, block, 0)
    view = cluster.rebuild(block.block, storages(1, 2, 3))
    regranting = asyncio.create_task(block.regrant(view))
    await asyncio.sleep(0)
    regranting.cancel()
    await asyncio.wait([regranting])
    with pytest.raises(BlockFailed, match="cancelled"):
        await block.room()
    assert block.sent_bytes == block.acknowledged_bytes


async def test_a_grant_of_the_generation_that_there_is_already_is_an_error(begun: Begun) -> None:
    _, _, block = begun
    with pytest.raises(ProtocolError, match="granted no later generation"):
        await block.regrant(block.view)


async def test_a_grant_below_what_is_acknowledged_is_corruption(begun: Begun) -> None:
    cluster, _, block = begun
    view = cluster.rebuild(block.block, storages(0, 1, 2))
    short = msgspec.structs.replace(
        view, record=msgspec.structs.replace(view.record, base_length=1)
    )
    with pytest.raises(CorruptionError, match="was granted with 1 chunks, but 2 are acknowledged"):
        await block.regrant(short)


async def test_an_appender_goes_on_behind_what_the_block_has(begun: Begun) -> None:
    cluster, fs, block = begun
    finalized = await block.close()
    assert finalized.record.finalized
    opened = cluster.reopen(block.block, BOB)
    appender = BlockWriter.granted(opened, BOB, fs._session.namenodes, fs._session.writing)
    assert (appender.sent, appender.acknowledged_bytes, appender.sent_bytes) == (2, 8, 8)
    await appender.open()
    await write(appender, b"three")
    view: BlockView = await appender.close()
    assert (view.record.length, view.record.size_bytes) == (3, 13)
    assert held(cluster, block.block, 0, 1, 2) == {b"one,two,three"}


async def test_a_grant_of_another_writer_is_refused(begun: Begun) -> None:
    """P6: a NameNode that answers with it, by mistake, makes no second writer of a generation."""
    cluster, _, block = begun
    cluster.begin_recovery(block.block)
    cluster.end_recovery(block.block)
    others = cluster.reopen(block.block, BOB)
    with pytest.raises(FencedError, match="has another writer now"):
        await block.regrant(others)
    with pytest.raises(FencedError, match="has another writer now"):
        BlockWriter.granted(others, ANN, block._namenodes, block._pool)


async def test_a_fenced_writer_whose_block_was_cut_hears_that_and_of_no_lost_chunk(
    begun: Begun,
) -> None:
    cluster, _, block = begun
    cluster.begin_recovery(block.block)
    cluster.end_recovery(block.block)
    cluster.cut(block.block, 1)
    with pytest.raises(FencedError, match="was cut since"):
        await block.seal()
    assert block.acknowledged_bytes == 8

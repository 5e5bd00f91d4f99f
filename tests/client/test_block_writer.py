"""W5: the writer of a block that goes on in a later generation, with other members or after K7."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec
import pytest

from paxosblock.api.namenode import (
    ADD_BLOCK,
    APPEND,
    CLOSE_FILE,
    CREATE,
    NO_BLOCK,
    REOPEN_BLOCK,
    AddBlock,
    AppendFile,
    BlockView,
    CloseFile,
    CreateFile,
    ReopenBlock,
)
from paxosblock.api.rebuild import REBUILD_BLOCK, RebuildBlock
from paxosblock.base.replacement import Policy, Replacement
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.block_writer import BlockFailed, BlockWriter
from paxosblock.client.writing.chunks import chunk_of
from paxosblock.errors import CorruptionError, FencedError, ProtocolError
from paxosblock.protocol.types import Durability, WriterId
from tests.client.shipped import ShippedCluster, ShippedDataNode, shipped_cluster
from tests.waiting import wait_until_async

ANN = WriterId("ann")
BOB = WriterId("bob")
CHUNKS = 100


@dataclass(slots=True)
class Begun:
    """A file of one block at three of four DataNodes, and the writer of the block, Ann."""

    cluster: ShippedCluster
    fs: AsyncClient
    file: int
    block: BlockWriter
    members: list[ShippedDataNode]
    spare: ShippedDataNode

    async def rebuilt(
        self, *failed: ShippedDataNode, by: Replacement = Replacement.ALWAYS
    ) -> BlockView:
        """Have the block rebuilt without these members."""
        gone = tuple(node.storage for node in failed)
        request = RebuildBlock(self.block.block, ANN, self.block.generation, gone, Policy(by))
        return await self.fs._session.namenodes.call(REBUILD_BLOCK, request)

    async def reopened(self) -> BlockView:
        """Have the block of the closed file opened again, for Bob."""
        call = self.fs._session.namenodes.call
        await call(APPEND, AppendFile("/a", BOB))
        request = ReopenBlock(self.file, BOB, self.block.block, 4, CHUNKS, CHUNKS)
        opened = await call(REOPEN_BLOCK, request)
        assert opened.view is not None
        return opened.view

    async def lose(self, node: ShippedDataNode) -> None:
        """Kill a DataNode, and wait until the writer has heard of it."""
        await node.kill()
        await wait_until_async(lambda: self.block.failure is not None)

    def keep_votes_back(self, *nodes: ShippedDataNode) -> None:
        for node in nodes:
            node.wire.votes_may_go.clear()

    def let_votes_go(self) -> None:
        for node in self.cluster.nodes:
            node.wire.votes_may_go.set()


@pytest.fixture
async def begun() -> AsyncIterator[Begun]:
    """A block of which two chunks are acknowledged."""
    async with shipped_cluster(4) as (cluster, fs):
        call = fs._session.namenodes.call
        created = await call(CREATE, CreateFile("/a", ANN, False, 3, 1 << 20, Durability.DISK))
        file = created.status.file_id
        view = await call(ADD_BLOCK, AddBlock(file, ANN, NO_BLOCK, window=4))
        block = BlockWriter(view, ANN, fs._session.namenodes, fs._session.writing)
        await block.open()
        await write(block, b"one,", b"two,")
        await block.settled()
        members = await cluster.members("/a")
        (spare,) = set(cluster.nodes) - set(members)
        yield Begun(cluster, fs, file, block, members, spare)
        block.release()


async def write(block: BlockWriter, *pieces: bytes) -> None:
    for piece in pieces:
        await block.room()
        block.send(chunk_of(piece, sync=False))


async def test_the_same_bytes_are_sent_again_to_another_member(begun: Begun) -> None:
    """One member has the chunks that are under way, and the others do not vote for them."""
    block, members = begun.block, begun.members
    begun.keep_votes_back(*members[1:])
    await write(block, b"three,", b"four")
    await wait_until_async(lambda: members[1].wire.chunks == 4)
    await begun.lose(members[0])
    begun.let_votes_go()
    await block.regrant(await begun.rebuilt(members[0]))
    await write(block, b", five")
    view = await block.close()
    assert (view.record.length, block.acknowledged_bytes, block.generation) == (5, 24, 1)
    assert await begun.cluster.content("/a") == b"one,two,three,four, five"


async def test_chunks_that_a_member_alone_had_are_kept_or_sent_again(begun: Begun) -> None:
    """Granted length 2 of 4 that were sent: chunks 2 and 3 go again under the same names."""
    block, members = begun.block, begun.members
    for node in members[1:]:
        node.wire.hang()
    await write(block, b"three,", b"four")
    await wait_until_async(lambda: members[0].wire.chunks == 4)
    for node in members[1:]:
        node.wire.cut()
    await members[0].kill()
    await wait_until_async(lambda: block.failure is not None and len(block.failure.failed) == 3)
    await block.regrant(await begun.rebuilt(members[0], by=Replacement.NEVER))
    assert block.members == (members[1].storage, members[2].storage)
    view = await block.close()
    assert view.record.length == 4
    assert await begun.cluster.content("/a") == b"one,two,three,four"


async def test_what_is_refused_of_the_generation_before_is_old_news(begun: Begun) -> None:
    """A member is fenced before it gets a chunk, and says so after the Grant."""
    block, members = begun.block, begun.members
    view = await begun.rebuilt()
    begun.keep_votes_back(*members)
    await write(block, b"three")
    await wait_until_async(lambda: members[0].wire.chunks == 3)
    await block.regrant(view)
    begun.let_votes_go()
    assert (await block.close()).record.length == 3
    assert await begun.cluster.content("/a") == b"one,two,three"


async def test_a_member_that_fails_again_leaves_all_chunks_to_the_next_block(begun: Begun) -> None:
    block, members = begun.block, begun.members
    begun.keep_votes_back(*members)
    await write(block, b"three")
    await begun.lose(members[0])
    view = await begun.rebuilt(members[0])
    await begun.spare.kill()
    with pytest.raises(BlockFailed, match=begun.spare.storage):
        await block.regrant(view)
    members[1].wire.votes_may_go.set()
    sealed = await block.seal()
    kept = sealed.view.record.length
    content = b"one,two," + b"".join([b"three"][: kept - 2])
    assert await begun.cluster.content("/a") == content
    assert [bytes(chunk.data) for chunk in sealed.rest] == [b"three"][kept - 2 :]


async def test_a_grant_whose_call_is_cancelled_leaves_a_block_that_failed(begun: Begun) -> None:
    """Else the next chunk would take the place of one that was sent before."""
    block, members = begun.block, begun.members
    begun.keep_votes_back(*members)
    await write(block, b"three")
    await begun.lose(members[0])
    view = await begun.rebuilt(members[0])
    regranting = asyncio.create_task(block.regrant(view))
    await asyncio.sleep(0)
    regranting.cancel()
    await asyncio.wait([regranting])
    with pytest.raises(BlockFailed, match="cancelled"):
        await block.room()
    assert block.sent_bytes == block.acknowledged_bytes


async def test_a_grant_of_the_generation_that_there_is_already_is_an_error(begun: Begun) -> None:
    block = begun.block
    with pytest.raises(ProtocolError, match="granted no later generation"):
        await block.regrant(block.view)


async def test_a_grant_below_what_is_acknowledged_is_corruption(begun: Begun) -> None:
    block = begun.block
    view = await begun.rebuilt()
    short = msgspec.structs.replace(
        view, record=msgspec.structs.replace(view.record, base_length=1)
    )
    with pytest.raises(CorruptionError, match="was granted with 1 chunks, but 2 are acknowledged"):
        await block.regrant(short)


async def test_an_appender_goes_on_behind_what_the_block_has(begun: Begun) -> None:
    fs, block = begun.fs, begun.block
    finalized = await block.close()
    assert finalized.record.finalized
    await fs._session.namenodes.call(CLOSE_FILE, CloseFile(begun.file, ANN))
    opened = await begun.reopened()
    appender = BlockWriter.granted(opened, BOB, fs._session.namenodes, fs._session.writing)
    assert (appender.sent, appender.acknowledged_bytes, appender.sent_bytes) == (2, 8, 8)
    await appender.open()
    await write(appender, b"three")
    view: BlockView = await appender.close()
    assert (view.record.length, view.record.size_bytes) == (3, 13)
    assert await begun.cluster.content("/a") == b"one,two,three"


async def test_a_grant_of_another_writer_is_refused(begun: Begun) -> None:
    """P6: a NameNode that answers with it, by mistake, makes no second writer of a generation."""
    block = begun.block
    await begun.fs.take_over("/a")
    others = await begun.reopened()
    with pytest.raises(FencedError, match="has another writer now"):
        await block.regrant(others)
    with pytest.raises(FencedError, match="has another writer now"):
        BlockWriter.granted(others, ANN, block._namenodes, block._pool)


async def test_a_fenced_writer_whose_block_was_cut_hears_that_and_of_no_lost_chunk(
    begun: Begun,
) -> None:
    block = begun.block
    await begun.fs.take_over("/a")
    await begun.fs.truncate("/a", len(b"one,"))
    with pytest.raises(FencedError, match="was cut since"):
        await block.seal()
    assert block.acknowledged_bytes == 8

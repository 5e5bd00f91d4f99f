"""The seed's own verbs, for programs that use blocks without files: `fs.blocks`."""

from __future__ import annotations

import asyncio
import uuid

from paxosblock.api.namenode import (
    ADD_BLOCK,
    DELETE_BLOCK,
    FINALIZE_BLOCK,
    GET_BLOCK,
    NO_BLOCK,
    NO_FILE,
    SEAL_BLOCK,
    AddBlock,
    BlockMember,
    BlockRequest,
    BlockView,
    DeleteBlock,
    FinalizeBlock,
    OpenBlock,
)
from paxosblock.client.check import BlockCheck, check_block
from paxosblock.client.datanode_verbs import AsyncDataNode
from paxosblock.client.session.shared_session import SharedSession, durability_of
from paxosblock.errors import (
    InvalidRequestError,
    Outcome,
    UnavailableError,
)
from paxosblock.protocol.messages import ReadReply
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    Durability,
    WriterId,
)


class AsyncBlockVerbs:
    """Blocks without files: `AddBlock`, `FinalizeBlock` and `GetBlock` of the seed, at `fs.blocks`.

    The client may write and finalize the blocks that it adds. Its lease is kept as those of files
    are: the NameNode ends the blocks of a client that is gone.
    """

    def __init__(self, session: SharedSession, writer: BlocksWriter) -> None:
        self._session = session
        self._writer = writer

    async def add(
        self,
        replication: int | None = None,
        durability: Durability | str | None = None,
        window: int | None = None,
    ) -> BlockView:
        """AddBlock(): a new block that belongs to no file; this client may write it (K1, W1).

        When this client is gone and its lease is over, the NameNode ends the block with what was
        acknowledged. The block stays until `delete`. Every member has an empty replica when this
        returns (see `datanode` for writing). What is None is taken from the client's settings.

        Raises:
            NoSpaceError: too few DataNodes.
            UnavailableError: a member took no replica; the block is finalized, empty.
            OutcomeUnknownError: no NameNode answered in time; an unused block may be there.
        """
        from paxosblock.client.writing.block_writer import BlockFailed, BlockWriter  # noqa: PLC0415 - readers need none of it

        session, config, writer = self._session, self._session.config, self._writer.name
        request = AddBlock(
            NO_FILE,
            writer,
            NO_BLOCK,
            config.window if window is None else window,
            replication=config.replication if replication is None else replication,
            durability=config.durability if durability is None else durability_of(durability),
            host=config.host,
        )
        view = await session.namenodes.call_once(ADD_BLOCK, request)
        self._writer.keep_lease(session)
        block = BlockWriter(view, writer, session.namenodes, session.writing)
        try:
            await block.open()
        except BlockFailed as failure:
            await block.seal()
            error = UnavailableError(str(failure), block=view.record.block)
            raise error.with_outcome(Outcome.UNKNOWN) from failure  # it was added, and ended
        block.release()
        return view

    async def delete(self, block: BlockId) -> bool:
        """Delete a block that belongs to no file, ended or not; False when there is none (any
        more).

        Raises InvalidRequestError when it belongs to a file.
        """
        deletion = await self._session.namenodes.call_once(DELETE_BLOCK, DeleteBlock(block))
        return deletion.existed

    async def finalize(self, block: BlockId, length: int | None = None) -> BlockView:
        """FinalizeBlock(b, length in chunks) by its writer, or FinalizeBlock(b): a recovery (K6,
        K11). The view's record has the length that was decided.

        Raises:
            FencedError: a recovery decided another length, or the block has another writer.
            InvalidRequestError: not all members say that they hold exactly that many chunks.
        """
        namenodes = self._session.namenodes
        if length is None:
            return await namenodes.call(SEAL_BLOCK, BlockRequest(block))
        size = await self._size_everywhere(await self.get(block), length)
        request = FinalizeBlock(block, self._writer.name, FIRST_GENERATION, length, size)
        return await namenodes.call(FINALIZE_BLOCK, request)

    async def _size_everywhere(self, view: BlockView, length: int) -> int:
        """Return the bytes of a block whose members all hold `length` chunks (W6): a reader may
        have seen what only some hold.
        """
        record = view.record
        if record.finalized and record.length == length:
            return record.size_bytes
        states = await asyncio.gather(
            *(self.datanode(member).state(record.block) for member in view.members),
            return_exceptions=True,
        )
        sizes = {
            state.size_bytes if isinstance(state, ReadReply) and state.length == length else -1
            for state in states
        }
        size = sizes.pop()
        if sizes or size < 0:
            raise InvalidRequestError(
                f"block {record.block}: not all members say that they hold {length} chunks; "
                "without a length it is recovered",
                block=record.block,
            )
        return size

    async def get(self, block: BlockId) -> BlockView:
        """GetBlock(b): its record, linearizable, and the addresses of its members (K10).

        Raises NotFoundError when there is no such block.
        """
        request = BlockRequest(block, self._writer.name, self._session.config.host)
        return await self._session.namenodes.call(GET_BLOCK, request)

    async def check(self, block: BlockId) -> BlockCheck:
        """Read and compare the whole of every replica of a finalized block, of a file or not.

        Damaged replicas are reported to the NameNode, which has them copied again from sound ones.

        Raises:
            NotFoundError: there is no such block.
            NotReadyError: its length is not decided yet.
        """
        return await check_block(self._session, block)

    def datanode(self, member: BlockMember) -> AsyncDataNode:
        """`write`, `read` and `next_gs` on the DataNode of one member of a block's view."""
        return AsyncDataNode(self._session, member)


class BlocksWriter:
    """The writer of the blocks without files of one client; its lease is kept while this lives."""

    def __init__(self) -> None:
        self.name = WriterId(uuid.uuid4().hex)

    def keep_lease(self, session: SharedSession) -> None:
        """Renew the lease from now on."""
        session.leases.keep(self.name, self._lost, self._open_block, self._roll)

    def _lost(self) -> None:
        """Do nothing: all blocks are ended, or a recovery ends them, and the next write of their
        writer fails with that.
        """

    def _open_block(self) -> OpenBlock | None:
        """Return None: a block without a file stays with the members it has."""

    def _roll(self, block: BlockId) -> None:
        """There is no next block."""

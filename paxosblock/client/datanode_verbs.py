"""The seed's verbs of one DataNode: `Write`, `Read` and `NextGS`."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from paxosblock.api.datanode import ACCEPT, Answer, Envelope
from paxosblock.api.limits import MAX_CHUNK_BYTES
from paxosblock.api.namenode import (
    GET_BLOCK,
    BlockMember,
    BlockRequest,
)
from paxosblock.base.checksum import Buffer
from paxosblock.client.reading.block_reader import BlockReader, Extent
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.client.writing.chunks import chunk_of
from paxosblock.errors import (
    CorruptionError,
    DeadlineError,
    FencedError,
    InvalidRequestError,
    NoSpaceError,
    NotFoundError,
    NotReadyError,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
)
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.wire import Flags, FrameKind, Header
from paxosblock.protocol.messages import LastVote, Nack, NextGS, Read, ReadReply, Vote
from paxosblock.protocol.read import Version
from paxosblock.protocol.types import (
    BlockId,
    ChunkIndex,
    Generation,
    Reason,
)

T = TypeVar("T")


class AsyncDataNode:
    """`Write`, `Read` and `NextGS` of the seed, to one DataNode; see `fs.blocks.datanode`."""

    def __init__(self, session: SharedSession, member: BlockMember) -> None:
        self._member = member
        self._session = session

    @property
    def member(self) -> BlockMember:
        """Return the storage, and where it is reached."""
        return self._member

    def __repr__(self) -> str:
        return f"<AsyncDataNode {self.member.storage} at {self.member.address}>"

    async def write(
        self,
        block: BlockId,
        generation: Generation,
        index: ChunkIndex,
        data: Buffer,
        *,
        sync: bool = False,
    ) -> Vote:
        """Write(b, gs, c, data): propose one chunk to this DataNode alone, and return its vote.

        The chunk is acknowledged when every member has voted for the same bytes. A repeated write
        of the same bytes gets the same vote (D2).

        Raises:
            FencedError: a higher generation was promised.
            AccessDeniedError: no capability to write the block came with this member.
            InvalidRequestError: not the next chunk, or too long for one.
            CorruptionError: the chunk has other bytes already.
            DeadlineError, OutcomeUnknownError: no vote came; there may be one.
        """
        chunk = chunk_of(data, sync=sync)
        if chunk.size_bytes > MAX_CHUNK_BYTES:
            raise InvalidRequestError(f"a chunk has at most {MAX_CHUNK_BYTES} bytes")
        header = Header(
            FrameKind.CHUNK,
            Flags.SYNC if sync else 0,
            chunk.size_bytes,
            chunk.crc,
            block,
            generation,
            index,
        )
        packed = header.pack()
        connection = await self._session.writing.get(self.member.address)
        async with connection.asking:
            if capability := self.member.capability:
                await connection.admit(block, capability, self._session.config.rpc_timeout_s)
            listener = _OneVote(self.member, header)
            connection.listen(block, listener)
            try:
                connection.send(packed, chunk.data)
                async with asyncio.timeout(self._session.config.vote_timeout_s):
                    return await listener.vote
            except TimeoutError as error:
                if isinstance(error, PaxosBlockError):
                    raise
                raise DeadlineError(
                    f"{self.member.storage} did not vote for chunk {index} of block {block}"
                ) from None
            finally:
                connection.ignore(block)
                if not listener.answered:
                    # A vote does not identify its bytes: a late one would pass for the next.
                    connection.abort()

    async def state(self, block: BlockId) -> ReadReply:
        """Return the registers of the replica. Raises NotFoundError when there is none here."""
        connection = await self._session.reading.get(self.member.address)
        capability = self.member.capability
        question = Envelope(self.member.storage, Read(block), capability=capability)
        answer = await connection.ask(question, self._session.config.rpc_timeout_s)
        return _expected(ReadReply, answer)

    async def read(
        self, block: BlockId, offset: int = 0, max_length: int = -1
    ) -> tuple[Generation, bytes]:
        """Read(b, offset, max_length): the highest generation promised, and bytes of the replica.

        What one replica holds is a vote, not a decision: only a reader that asks a quorum
        (`AsyncClient.open`) knows what will stay. A replica that may have lost votes reports none.

        Raises:
            InvalidRequestError: a negative offset.
            NotFoundError: there is no replica here.
            CorruptionError: its bytes do not match their checksum; the NameNode hears of it.
            UnavailableError, DeadlineError: no answer.
        """
        if offset < 0:
            raise InvalidRequestError(f"block {block}: negative offset {offset}")
        state = await self.state(block)
        registers = state.registers
        end = state.size_bytes if max_length < 0 else min(state.size_bytes, offset + max_length)
        if registers.weak or offset >= end:
            return registers.max_generation, b""
        version = Version(registers.epoch, registers.finalized_generation, state.length)
        extent = Extent(block, version, 0, state.size_bytes, (self.member,))
        into = bytearray(end - offset)
        await BlockReader(self._session, extent).fetch_once(offset, memoryview(into))
        return registers.max_generation, bytes(into)

    async def next_gs(self, block: BlockId, generation: Generation) -> LastVote:
        """NextGS(b, gs): make the replica promise a generation, and return its last vote.

        This fences the block's writer. It is what the NameNode does in a recovery. Only the
        NameNode may allocate generations, so a caller that invents one gets in the way of the next
        recovery.

        Raises:
            FencedError: it promised a higher one already.
        """
        view = await self._session.namenodes.call(GET_BLOCK, BlockRequest(block))
        record = view.record
        request = NextGS(
            block, generation, record.writer_generation, record.window, record.durability
        )
        async with RpcClient(self._session.rpc.access.at_datanodes()) as rpc:
            answer = await rpc.call(
                self.member.address,
                ACCEPT.name,
                Envelope(self.member.storage, request),
                ACCEPT.answer,
                self._session.config.rpc_timeout_s,
            )
        return _expected(LastVote, answer)


class _OneVote:
    """Waits for what one DataNode says about one chunk."""

    def __init__(self, member: BlockMember, chunk: Header) -> None:
        self.vote: asyncio.Future[Vote] = asyncio.get_running_loop().create_future()
        self._member = member
        self._chunk = chunk

    @property
    def answered(self) -> bool:
        """True if nothing more will come."""
        return self.vote.done() and not self.vote.cancelled()

    def on_vote(self, header: Header) -> None:
        synced = bool(header.flags & Flags.SYNC)
        vote = Vote(header.block, header.generation, header.index, self._member.storage, synced)
        asked = (self._chunk.generation, self._chunk.index)
        if (vote.generation, vote.index) == asked and not self.vote.done():
            self.vote.set_result(vote)

    def on_nack(self, nack: Nack) -> None:
        if not self.vote.done():
            self.vote.set_exception(refused(nack))

    def on_lost(self, error: PaxosBlockError) -> None:
        if not self.vote.done():
            self.vote.set_exception(OutcomeUnknownError(str(error)))


def _expected(kind: type[T], answer: Answer) -> T:
    if isinstance(answer, kind):
        return answer
    if isinstance(answer, Nack):
        raise refused(answer)
    raise ProtocolError(f"unexpected answer {answer}")


def refused(nack: Nack) -> PaxosBlockError:
    """Return what a refusal by an acceptor means to the caller."""
    text = (
        f"{nack.storage} refused generation {nack.generation} of block {nack.block}: "
        f"{nack.reason.value} (promised {nack.max_generation}, holds {nack.length} chunks)"
    )
    match nack.reason:
        case Reason.FENCED:
            return FencedError(text)
        case Reason.GAP:
            return InvalidRequestError(text)
        case Reason.NO_REPLICA:
            return NotFoundError(text)
        case Reason.STALE:
            return NotReadyError(text)
        case Reason.CORRUPT:
            return CorruptionError(text)
        case Reason.NO_SPACE:
            return NoSpaceError(text)

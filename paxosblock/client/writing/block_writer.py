"""Step 1, the shell: runs `protocol.write` for one block against its DataNodes.

The members of a block get the same frame: its header is packed once, its payload goes by reference.
A chunk that is not acknowledged yet is kept, so that it can be sent again with the same bytes (I2).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Self
from weakref import WeakMethod

from msgspec.structs import replace

from paxosblock.api.datanode import CreateAndWrite, Envelope
from paxosblock.api.namenode import (
    FINALIZE_BLOCK,
    GET_BLOCK,
    NO_BLOCK,
    SEAL_BLOCK,
    BlockMember,
    BlockRequest,
    BlockView,
    FinalizeBlock,
)
from paxosblock.base.chunk_cipher import ChunkCipher, stored_bytes, user_bytes
from paxosblock.client.session.namenodes import NameNodes
from paxosblock.client.session.transport import FRESH_MAX, DataConnection
from paxosblock.client.session.watched import WritingConnections
from paxosblock.client.writing.chunks import Chunk, chunk_of, frame_header
from paxosblock.errors import (
    AccessDeniedError,
    CorruptionError,
    FencedError,
    PaxosBlockError,
    ProtocolError,
)
from paxosblock.net.wire import Flags, Header
from paxosblock.protocol import write
from paxosblock.protocol.chunk_log import acknowledged_before
from paxosblock.protocol.finalize import BlockRecord, grant
from paxosblock.protocol.messages import Created, Nack, Vote
from paxosblock.protocol.types import BlockId, Durability, Generation, Reason, StorageId, WriterId

_log = logging.getLogger(__name__)

_SYNC: Final = int(Flags.SYNC)
_REFUSED: Final = {
    Reason.NO_SPACE: "its disk is full",
    Reason.NO_REPLICA: "its volume failed, or lost the replica",
}
"""Refusals that an operator can do something about, in words for the log."""


class BlockFailed(Exception):
    """W4: no more chunks for this block; `failed` are the storages to blame (none when fenced)."""

    def __init__(self, block: BlockId, failed: tuple[StorageId, ...], reason: str) -> None:
        super().__init__(f"block {block}: {reason}")
        self.block = block
        self.failed = failed
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Sealed:
    """W7: how a recovery ended the block, and the chunks that the next block begins with."""

    view: BlockView
    rest: tuple[Chunk, ...]


class _InFlight(NamedTuple):
    """A chunk that a writer gave, the chunk as it was sent, and when."""

    chunk: Chunk
    stored: Chunk
    sent_at: float


class _Waiter(NamedTuple):
    goal: int
    synced: bool
    done: asyncio.Future[None]


class BlockWriter:
    """The writer of one block, in one generation after the other.

    `acknowledged_bytes` and `sent_bytes` count the block's bytes of user data that all members
    voted for, and that were sent to them. The chunks of a block with a key are encrypted as they
    are sent for the first time.
    """

    def __init__(
        self,
        view: BlockView,
        writer: WriterId,
        namenodes: NameNodes,
        pool: WritingConnections,
        *,
        on_failed: Callable[[tuple[StorageId, ...]], None] | None = None,
    ) -> None:
        """`view` is the answer of AddBlock, or a Grant; `open` comes next.

        `on_failed`, a method, hears at once of every failure, and whom it is newly blamed on. It
        is referred to weakly: connections know their blocks, but keep no file that was dropped.
        """
        self.view = view
        self.block = view.record.block
        self.acknowledged_bytes = self.sent_bytes = 0
        self.flushed = False
        """True once a flush returned what this block holds, or it was opened to append to it."""
        self.asked_to_close = False
        """True if the length may have been recorded by `close`, answered or not."""
        self._identity = writer
        self._namenodes = namenodes
        self._pool = pool
        self._on_failed = None if on_failed is None else WeakMethod(on_failed)
        record, key = view.record, view.key
        self._added_bytes = view.added_bytes
        self._cipher = None if key is None else ChunkCipher(key.key, record.block)
        self._durability = record.durability
        self._writer = write.open_writer(record.block, record.members, record.window)
        self._connections: dict[StorageId, DataConnection] = {}
        self._in_flight: deque[_InFlight] = deque()
        self._waiters: list[_Waiter] = []
        self._failure: BlockFailed | None = None
        self._refreshing = asyncio.Lock()

    @classmethod
    def granted(
        cls,
        view: BlockView,
        writer: WriterId,
        namenodes: NameNodes,
        pool: WritingConnections,
        *,
        on_failed: Callable[[tuple[StorageId, ...]], None] | None = None,
    ) -> Self:
        """W5 for an appender: `view` shows the config that was installed for it (K7).

        What the block had then counts as acknowledged, and as sent. `open` comes next. It raises
        FencedError if the config is another writer's."""
        block = cls(view, writer, namenodes, pool, on_failed=on_failed)
        record = view.record
        block._writer = write.granted_writer(grant(record), record.window)
        block._check_ours(record)
        size_bytes = user_bytes(record.size_bytes, record.length, view.added_bytes)
        block.acknowledged_bytes = block.sent_bytes = size_bytes
        block.flushed = True
        return block

    def __repr__(self) -> str:
        writer = self._writer
        return (
            f"<BlockWriter block={writer.block} {writer.state.value} sent={writer.sent} "
            f"acknowledged={writer.acknowledged}>"
        )

    @property
    def generation(self) -> Generation:
        """Return the writer's generation."""
        return self._writer.generation

    @property
    def members(self) -> tuple[StorageId, ...]:
        """Return the storages that vote."""
        return self._writer.members

    @property
    def sent(self) -> int:
        """Return how many chunks were sent."""
        return self._writer.sent

    def voters(self, count: int) -> tuple[StorageId, ...]:
        """Return the members that were heard to vote for the first `count` chunks."""
        voted = zip(self.members, self._writer.voted, strict=True)
        return tuple(storage for storage, heard in voted if heard >= count)

    @property
    def acknowledged_synced(self) -> int:
        """Return how many chunks all members have on stable storage."""
        return self._writer.acknowledged_synced

    @property
    def on_disk(self) -> int:
        """Count the members with all that was sent on stable storage, by their votes: all or 0."""
        unsynced = self._durability is Durability.MEMORY and self.acknowledged_synced < self.sent
        return 0 if unsynced else len(self.members)

    @property
    def failure(self) -> BlockFailed | None:
        """Return why the block takes no more chunks; None while it does."""
        return self._failure

    # -- W1 -------------------------------------------------------------------------------------

    async def open(self, *, small: bool = False) -> None:
        """W1: connect to all members and make an empty replica at each, a `small` one if no more
        than one short chunk comes (D1); W5: they have theirs.

        Raises:
            BlockFailed: at least one of them did not; `seal` comes next.
        """
        try:
            await self._open_everywhere(partial(self._open_at, small=small))
        except BaseException:
            self.release()  # a cancelled call forgets us, the connections would not
            raise
        self._pool.clock.watch(self, self._look_at_the_clock)

    async def write_whole(self, chunk: Chunk) -> None:
        """W1 to W3 of a new block with one short chunk, in one message to each member (D1).

        Raises:
            BlockFailed: at least one of them did not vote.
        """
        frame = self._whole_frame(chunk)
        await self._open_everywhere(partial(self._write_whole_at, frame=frame))

    def begin_whole(self, chunk: Chunk) -> list[tuple[str, CreateAndWrite]]:
        """Begin `write_whole`: return the message to each member, and its address. The caller sends
        them, gives the votes to `on_vote`, and calls `opened`."""
        frame = self._whole_frame(chunk)
        members = map(self._member, self.members)
        return [(each.address, self._whole_request(each, frame)) for each in members]

    def _whole_frame(self, chunk: Chunk) -> bytes:
        """Propose the first chunk behind Create; return the frame that takes it there."""
        stored = chunk if self._cipher is None else self._encrypted(self._cipher, chunk)
        self._writer, message = write.send_with_create(self._writer, stored.size_bytes, stored.crc)
        self.sent_bytes += chunk.size_bytes
        self._in_flight.append(_InFlight(chunk, stored, self._pool.clock.now_s))
        return frame_header(message) + stored.data

    async def _open_everywhere(self, open_at: Callable[[BlockMember], Awaitable[None]]) -> None:
        asked = [(self._member(at).address, self._open_with(at, open_at)) for at in self.members]
        self.opened(await self._pool.errors(asked))

    def opened(self, errors: Sequence[PaxosBlockError | None]) -> None:
        """W1: end `open`, `write_whole` or `begin_whole`, with what went wrong at each member.

        Raises:
            BlockFailed: something did.
        """
        failed: list[StorageId] = []
        for storage, error in zip(self.members, errors, strict=True):
            if error is not None:
                failed.append(storage)
                _log.info("block %d: %s takes no replica: %s", self.block, storage, error)
        if failed:
            why = next(error for error in errors if error is not None)
            self._fail(tuple(failed), f"{', '.join(failed)} took no replica: {why}")
        self._check()

    def _member(self, storage: StorageId) -> BlockMember:
        """Return a member as the view shows it, or as one whose address is not known."""
        unknown = BlockMember(storage, "", "", live=False)
        return next((each for each in self.view.members if each.storage == storage), unknown)

    async def _open_with(
        self, storage: StorageId, open_at: Callable[[BlockMember], Awaitable[None]]
    ) -> None:
        """Open at a member; a block that waited for its first chunk may need a fresh capability.

        The refusal says that nothing was done.
        """
        for left in reversed(range(FRESH_MAX)):
            member = self._member(storage)
            try:
                return await open_at(member)
            except AccessDeniedError:
                if not (left and await self._has_fresh(member)):
                    raise
        return None

    async def _has_fresh(self, refused: BlockMember) -> bool:
        """Get the capabilities of all members again, unless another member's refusal did so; return
        False if this one has no other."""
        async with self._refreshing:
            if self._member(refused.storage).capability == refused.capability:
                request = BlockRequest(self.block, self._identity)
                fresh = await self._namenodes.call(GET_BLOCK, request)
                if fresh.record.writer_generation == self.generation:
                    self.view = replace(self.view, members=fresh.members)
        return self._member(refused.storage).capability != refused.capability

    async def _open_at(self, member: BlockMember, *, small: bool) -> None:
        storage, address, capability = member.storage, member.address, member.capability
        connection = await self._pool.get(address)
        if self._writer.state is write.WriterState.OPENING:
            create = write.create_message(self._writer, self._durability, small=small)
            question = Envelope(storage, create, capability=capability)
            answer = await connection.ask(question, self._pool.votes.seconds)
            if not isinstance(answer, Created):
                raise ProtocolError(f"{address} did not create block {self.block}: {answer}")
            self._writer = write.on_created(self._writer, answer)
        elif capability:
            await connection.admit(self.block, capability, self._pool.votes.seconds)
        connection.listen(self.block, _Listener(self, storage))
        self._connections[storage] = connection

    async def _write_whole_at(self, member: BlockMember, *, frame: bytes) -> None:
        connection = await self._pool.get(member.address)
        request = self._whole_request(member, frame)
        self.on_vote(await connection.vote(request, self._pool.votes.seconds))

    def _whole_request(self, member: BlockMember, frame: bytes) -> CreateAndWrite:
        create = write.create_message(self._writer, self._durability, small=True)
        return CreateAndWrite(member.storage, create, frame, member.capability)

    # -- W2 -------------------------------------------------------------------------------------

    async def room(self) -> None:
        """Wait until the window has room for one more chunk.

        Raises:
            BlockFailed: the block takes no more chunks.
        """
        self._check()
        if not self._writer.can_send:
            known = acknowledged_before(self._writer.sent, self._writer.window)
            await self._reached(known, synced=False)
            self._check()  # a member may have failed since the vote that we waited for

    def send(self, chunk: Chunk) -> None:
        """W2: propose the next chunk to all members; `room` was awaited before.

        The bytes of the chunk must not change any more.
        """
        stored = chunk if self._cipher is None else self._encrypted(self._cipher, chunk)
        self._in_flight.append(self._sent(chunk, stored))

    def _encrypted(self, cipher: ChunkCipher, chunk: Chunk) -> Chunk:
        """Return the next chunk to send, as DataNodes keep it."""
        data = cipher.encrypt(self._writer.sent, self.sent_bytes, chunk.data)
        return chunk_of(data, sync=chunk.sync)

    def _sent(self, chunk: Chunk, stored: Chunk) -> _InFlight:
        self._writer, message = write.send(
            self._writer, stored.size_bytes, stored.crc, sync=stored.sync
        )
        self.sent_bytes += chunk.size_bytes
        header = frame_header(message)
        for connection in self._connections.values():
            connection.send(header, stored.data)
        return _InFlight(chunk, stored, self._pool.clock.now_s)

    # -- W3 -------------------------------------------------------------------------------------

    async def settled(self, *, synced: bool = False) -> None:
        """Wait until all members voted for every chunk sent (and, `synced`, have it on disk).

        Raises:
            BlockFailed: the block takes no more chunks, and some may be lost.
        """
        self._check()
        await self._reached(self._writer.sent, synced=synced)

    def _count(self, synced: bool) -> int:
        return self._writer.acknowledged_synced if synced else self._writer.acknowledged

    async def _reached(self, count: int, *, synced: bool) -> None:
        if self._count(synced) >= count:
            return
        waiter = _Waiter(count, synced, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            await waiter.done
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def on_vote(self, vote: Vote) -> None:
        """W3: a member voted."""
        before = self._writer
        self._writer = write.on_vote(before, vote)
        if self._writer is before:
            if not write.vote_is_sound(before, vote):
                what = "voted for a chunk that was never sent (I5)"
                self._fail((vote.storage,), f"{vote.storage} {what}")
            return
        acknowledged = self._writer.acknowledged - before.acknowledged
        if not acknowledged and not vote.synced:
            return  # most votes: others are still to come
        for _ in range(acknowledged):
            voted = self._in_flight.popleft()
            self.acknowledged_bytes += voted.chunk.size_bytes
            self._pool.votes.observe(self._pool.clock.now_s - voted.sent_at)
        for waiter in self._waiters:
            if self._count(waiter.synced) >= waiter.goal and not waiter.done.done():
                waiter.done.set_result(None)

    # -- W4 -------------------------------------------------------------------------------------

    def on_nack(self, storage: StorageId, nack: Nack) -> None:
        """W4: a member refused. Being fenced is no member's fault."""
        if nack.generation != self.generation:
            return  # about what was sent before a Grant
        failed = () if nack.reason is Reason.FENCED else (storage,)
        words = _REFUSED.get(nack.reason, nack.reason.value)
        self._fail(failed, f"{storage} refused a chunk: {words}")

    def on_lost(self, storage: StorageId, error: PaxosBlockError) -> None:
        """W4: a member's connection ended."""
        self._fail((storage,), str(error))

    def _look_at_the_clock(self) -> None:
        """W4: the oldest chunk was sent first, so it alone tells whether a disk is too slow, or
        hangs. If a DataNode does, or cannot be reached, `on_lost` says so, and sooner."""
        if not self._in_flight or self._failure is not None:
            return
        patience = self._pool.votes
        waited_s = self._pool.clock.now_s - self._in_flight[0].sent_at
        voted = zip(self.members, self._writer.voted, strict=True)
        late = tuple(storage for storage, count in voted if count <= self._writer.acknowledged)
        if waited_s >= patience.seconds:
            self._fail(late, f"no vote of {', '.join(late)} in {waited_s:.2g} s")
            patience.back_off()
            return
        asked = {storage: self._connections.get(storage) for storage in late}
        count = len(self.members)
        if hung := self._pool.hung(asked, count - len(late), count, waited_s):
            self._fail(hung, f"the disk of {', '.join(hung)} hangs, no vote in {waited_s:.2g} s")

    def _fail(self, failed: tuple[StorageId, ...], reason: str) -> None:
        blamed = () if self._failure is None else self._failure.failed
        new = tuple(storage for storage in failed if storage not in blamed)
        if self._failure is not None:
            reason = self._failure.reason
        self._failure = BlockFailed(self.block, (*blamed, *new), reason)
        self._writer = write.on_failure(self._writer)
        for waiter in self._waiters:
            if not waiter.done.done():
                waiter.done.set_exception(self._failure)
        if self._on_failed is not None and (on_failed := self._on_failed()) is not None:
            on_failed(new)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)  # else each raise would add to the one before

    def give_up(self, why: str) -> BlockFailed:
        """W4: end the generation by no fault of a member; `regrant` or `seal` comes next."""
        self._fail((), why)
        assert self._failure is not None, "it was just given up"
        return self._failure

    # -- W5 -------------------------------------------------------------------------------------

    async def regrant(self, view: BlockView) -> None:
        """W5: go on in the config that `view` shows; what is not acknowledged is sent again.

        The bytes and their names are the same, from the granted length on.

        Raises:
            BlockFailed: a member of it failed already; nothing was sent.
            FencedError: the block belongs to another writer; nothing was sent.
            CorruptionError: chunks are lost that all members had voted for.
        """
        self._check_ours(view.record)
        granted, before = grant(view.record), self._writer
        if granted.generation <= before.generation:
            raise ProtocolError(f"block {self.block}: the NameNode granted no later generation")
        self._check_length(granted.length, "was granted")
        self._writer = write.on_grant(write.on_failure(before), granted)
        self.release()
        self._connections.clear()
        for _ in range(granted.length - before.acknowledged):
            self.acknowledged_bytes += self._in_flight.popleft().chunk.size_bytes
        self.view, self.sent_bytes, self._failure = view, self.acknowledged_bytes, None
        try:
            await self.open()
        except asyncio.CancelledError:
            self._fail((), "its call was cancelled before it was opened again")
            raise
        again = [self._sent(entry.chunk, entry.stored) for entry in self._in_flight]
        self._in_flight = deque(again)

    # -- W6, W7 ---------------------------------------------------------------------------------

    async def close_request(self, following: BlockId = NO_BLOCK) -> FinalizeBlock:
        """W6: wait for the votes; return the request that records the length, for `record`, or for
        CloseFile, after which comes `closed`. A block made ahead may be `following`.

        Raises:
            BlockFailed: the votes did not come; `seal` comes next.
        """
        await self.settled()
        if self._writer.can_close:
            self._writer = write.close(self._writer)
        self.asked_to_close = True
        length = self.sent, stored_bytes(self.sent_bytes, self.sent, self._added_bytes)
        return FinalizeBlock(self.block, self._identity, self.generation, *length, following)

    def closed(self) -> None:
        """W6: what `close_request` returned was recorded with the file's own end."""
        self._writer = write.on_finalized(self._writer, self._writer.sent, ours=True)
        self.release()

    async def record(
        self, request: FinalizeBlock, *, retry_for_s: float | None = None
    ) -> BlockView:
        """W6: have the length recorded; try for `retry_for_s`, None: as long as for every request.

        Raises:
            FencedError: the block belongs to another writer.
            PaxosBlockError: no NameNode could record it in time.
        """
        view = await self._namenodes.call(FINALIZE_BLOCK, request, retry_for_s=retry_for_s)
        self._conclude(view)
        return view

    async def close(self) -> BlockView:
        """W6: `close_request`, then `record`. Raises what these do."""
        return await self.record(await self.close_request())

    async def seal(self, *, retry_for_s: float | None = None) -> Sealed:
        """W7: have the block recovered, take the length decided then; `retry_for_s` as in `record`.

        Raises:
            FencedError: the block belongs to another writer, or another client cut it since.
            CorruptionError: chunks are lost that all members had voted for.
            PaxosBlockError: no NameNode could recover it in time.
        """
        self._writer = write.on_failure(self._writer)
        self.release()
        request = BlockRequest(self.block, self._identity)
        view = await self._namenodes.call(SEAL_BLOCK, request, retry_for_s=retry_for_s)
        chunks = tuple(entry.chunk for entry in self._in_flight)
        kept = view.record.length - self._writer.acknowledged
        self._conclude(view)
        self.acknowledged_bytes += sum(chunk.size_bytes for chunk in chunks[:kept])
        self._in_flight.clear()
        return Sealed(view, chunks[kept:])

    def _conclude(self, view: BlockView) -> None:
        """W6, W7: adopt the recorded length. All members were sent the same bytes, so I5 holds of
        it unless the cluster lost what it had acknowledged."""
        record = view.record
        self._check_ours(record)
        if not record.finalized:
            raise ProtocolError(f"the NameNode finalized block {self.block} but does not say so")
        self._check_length(record.length, "was finalized")
        self._writer = write.on_finalized(self._writer, record.length)
        self.release()

    def _check_ours(self, record: BlockRecord) -> None:
        """Raise FencedError if another writer has the block, or had: to cut it (K8) fences, too."""
        other = record.writer != self._identity
        if other or record.cut_generation > self.generation:
            self._writer = write.on_finalized(self._writer, record.length, ours=False)
            self.release()
            what = "has another writer now" if other else "was cut since"
            raise FencedError(f"block {self.block} {what}", block=self.block)

    def _check_length(self, length: int, how: str) -> None:
        acknowledged, sent = self._writer.acknowledged, self._writer.sent
        if not acknowledged <= length <= sent:
            raise CorruptionError(
                f"block {self.block} {how} with {length} chunks, but "
                f"{acknowledged} are acknowledged and {sent} were sent",
                block=self.block,
            )

    def release(self) -> None:
        """Stop listening to the members; the connections stay open for other blocks."""
        for connection in self._connections.values():
            connection.ignore(self.block)
        self._pool.clock.unwatch(self)


@dataclass(frozen=True, slots=True)
class _Listener:
    """Receives the frames of one member, and passes them on with its name."""

    writer: BlockWriter
    storage: StorageId

    def on_vote(self, header: Header) -> None:
        synced = header.flags & _SYNC != 0
        vote = Vote(header.block, header.generation, header.index, self.storage, synced)
        self.writer.on_vote(vote)

    def on_nack(self, nack: Nack) -> None:
        self.writer.on_nack(self.storage, nack)

    def on_lost(self, error: PaxosBlockError) -> None:
        self.writer.on_lost(self.storage, error)

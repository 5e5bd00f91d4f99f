"""Files being written: blocks one after the other, through failures of DataNodes.

A `BlockWriter` ends with the first failure. The file goes on: the block is sealed with the chunks
that it kept (W7), and the rest is sent again, byte for byte, as the first chunks of the next block.
Between two calls that is done in the background, so that readers of acknowledged bytes do not
depend on when the application writes again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, NamedTuple, Self

from msgspec.structs import replace

from paxosblock.api.limits import MAX_CHUNK_BYTES
from paxosblock.api.namenode import (
    CLOSE_FILE,
    NO_BLOCK,
    TRANSACT,
    BlockView,
    CloseFile,
    FileStatus,
    FinalizeBlock,
    OpenBlock,
)
from paxosblock.api.transaction import Operation
from paxosblock.base.checksum import Buffer
from paxosblock.base.chunk_cipher import ADDED_BYTES
from paxosblock.base.replacement import WriteOptions
from paxosblock.client.session.backoff import Backoff
from paxosblock.client.session.lease_keeper import Fence
from paxosblock.client.session.retried_task import RetriedTask
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.client.writing.block_writer import BlockFailed, BlockWriter
from paxosblock.client.writing.chunks import Chunk, ChunkBuffer, chunk_of
from paxosblock.client.writing.durable import finalized_on_disk
from paxosblock.client.writing.exclusions import Exclusions
from paxosblock.client.writing.failures import Failures
from paxosblock.client.writing.next_block import Ending, NextBlock, is_small
from paxosblock.client.writing.receipt import FlushReceipt, Ledger
from paxosblock.errors import (
    CorruptionError,
    InvalidRequestError,
    NoSpaceError,
    NotFoundError,
    PaxosBlockError,
    UnavailableError,
    in_doubt,
)
from paxosblock.protocol.invariants import invariant
from paxosblock.protocol.types import BlockId, Durability, StorageId, WriterId

TEND_FOR_S: Final = 1.0
"""Seconds for which a background attempt repeats its requests: a call may be waiting for it."""
ABORT_FOR_S: Final = 2.0  # a fail-over takes less, and what is left undone the lease's end does

_log = logging.getLogger(__name__)


class _Left(NamedTuple):
    """The block before the one that is being written: all of it is acknowledged, and its end is
    being recorded."""

    block: BlockWriter
    request: FinalizeBlock
    recording: asyncio.Task[BlockView]


class Shortfall:
    """Counts the members of a file's blocks. `fewest` is `wanted` while there is no block; `why`
    tells why the block that has the fewest got no more, "" when none was short.
    """

    def __init__(self, path: str, wanted: int) -> None:
        self.fewest = wanted
        self.why = ""
        self._path = path
        self._wanted = wanted
        self._latest = wanted

    def note(self, view: BlockView) -> None:
        """Note a block that was opened. A loss is logged once: further ones like it are no news."""
        before, self._latest = self._latest, len(view.members)
        why = view.shortfall or "the answer that told why was lost"
        if self._latest < self.fewest:
            self.fewest, self.why = self._latest, why
        counts = self._path, self._latest, self._wanted
        if self._latest < before:
            _log.warning("'%s': a block gets only %d of %d replicas: %s", *counts, why)
        elif self._latest > before:
            _log.info("'%s': a block gets %d of %d replicas again", *counts)


class AsyncFileWriter:
    """A file that this client writes; made by `AsyncClient.create` and `AsyncClient.append`.

    What was written is safe once `hflush`, `hsync` or `close` has returned. Memory is bounded: at
    most window x chunk size bytes are under way, and less than one chunk waits for more.

    Leaving `async with` by an exception calls `abort`, which drops what was not flushed.
    """

    def __init__(
        self,
        session: SharedSession,
        status: FileStatus,
        writer: WriterId,
        *,
        chunk_size: int,
        window: int,
        previous: BlockId = NO_BLOCK,
        reopens: bool = False,
        first: BlockView | None = None,
        options: WriteOptions | None = None,
        failed: Iterable[StorageId] = (),
    ) -> None:
        """`status` is the NameNode's answer to `writer`; `previous` the file's last block, in which
        it goes on if it `reopens` that; `first` the block that was made with a new one; `failed`
        the storages that failed its writer a moment ago."""
        self.status = status
        self._session = session
        self._writer = writer
        most = MAX_CHUNK_BYTES - ADDED_BYTES if status.encrypted else MAX_CHUNK_BYTES
        self.chunk_size = min(chunk_size, status.block_size, most)
        self._buffer = ChunkBuffer(self.chunk_size)
        self._lock = asyncio.Lock()
        self._block: BlockWriter | None = None
        self._pending: deque[Chunk] = deque()  # not sent in the current block
        self._cut_bytes = self._finished_bytes = status.size  # became chunks; are in other blocks
        self._ledger = Ledger()
        self._exclusions = Exclusions(asyncio.get_running_loop().time)
        self._exclusions.add(failed)
        self._next = NextBlock(
            session, status, writer, window, self._exclusions,
            last=previous, reopens=reopens, first=first,
        )  # fmt: skip
        self._tender = RetriedTask(self._tend, f"'{status.path}'", session.tending)
        self._rolling = NO_BLOCK  # the block to leave: the next chunk begins another one
        self._shortfall = Shortfall(status.path, status.replication)
        self._fence = Fence(status.path)
        self._left: _Left | None = None
        self._retry_for_s = session.config.retry_for_s
        self._failed: Backoff | None = None  # since the first failure without progress
        self._acknowledged_then = -1  # bytes, at that failure
        self._closing = self._closed = False
        self._failures = Failures(
            session, status, writer, options or WriteOptions(),
            exclusions=self._exclusions, fence=self._fence, following=self._next,
        )  # fmt: skip
        session.leases.keep(writer, self._fence.lease_lost, self._open_block_told, self._roll)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<AsyncFileWriter {self.status.path!r} {state} at {self.tell()}>"

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=2)

    @property
    def closed(self) -> bool:
        """True if `close` or `abort` was called."""
        return self._closed

    @property
    def acknowledged(self) -> int:
        """Bytes of the file that no failure can take away."""
        block = self._left.block if self._left else self._block
        return self._finished_bytes + (block.acknowledged_bytes if block else 0)

    @property
    def fewest_replicas(self) -> int:
        """Members of the block that has the fewest; what was asked for while there is no block.

        A file is written with fewer than that when the cluster has no more DataNodes for it; as
        soon as it has, the file goes on in a new block, or its block is rebuilt with them.
        """
        return self._shortfall.fewest

    @property
    def shortfall(self) -> str:
        """Return why the block that has the fewest members got no more; "" when none was short."""
        return self._shortfall.why

    def tell(self) -> int:
        """Length of the file so far in bytes, flushed or not."""
        return self._cut_bytes + len(self._buffer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abort()

    # -- what applications call -----------------------------------------------------------------

    async def write(self, data: Buffer) -> int:
        """Append `data`; return its length. Waits while the window is full.

        Whole chunks of a `bytes` are sent by reference, anything else is copied once.

        Raises:
            FencedError: another writer took the file over; what was not flushed has an unknown
                outcome.
            PaxosBlockError: the cluster cannot go on for now. `data` was taken as far as `tell`
                says, nothing is lost, and a later call tries again.
        """
        async with self._lock:
            self._check_usable()
            await self._push()  # what failed before goes first: else each try would add to it
            for piece in self._buffer.cut(data):
                self._enqueue(piece)
                await self._push()
            return memoryview(data).nbytes

    async def hflush(self) -> FlushReceipt:
        """Wait until all replicas voted for everything written: every reader will see it (W3).

        Raises: as `write`.
        """
        async with self._lock:
            self._check_usable()
            if self._buffer:
                self._enqueue(self._buffer.take())
            await self._reach_all(synced=False)
            return self._receipt(self.status.durability)

    async def flush(self) -> None:
        """`hflush`, under the name that Python's files have for it."""
        await self.hflush()

    async def hsync(self) -> FlushReceipt:
        """Like `hflush`, and everything written is on stable storage at all replicas.

        With durability `memory` the last chunk asks for it; if nothing is buffered, an empty chunk
        does. Blocks that were closed before count once a majority of their members finalized
        them, which implies stable storage. A block that a recovery ended counts at once: the
        recovery's quorum had it on stable storage before its length was decided (D4).

        Raises: as `write`.
        """
        async with self._lock:
            self._check_usable()
            in_memory, block = self.status.durability is Durability.MEMORY, self._block
            if self._pending:
                synced = self._pending[-1].sync
            else:
                synced = block is None or block.acknowledged_synced == block.sent
            if self._buffer or (in_memory and not synced):
                self._enqueue(self._buffer.take(), sync=in_memory)
            await self._reach_all(synced=True)
            while unsynced := self._ledger.unsynced:
                self._ledger.synced(await finalized_on_disk(self._session, unsynced[0]))
            return self._receipt(Durability.DISK)

    async def close(self, *, then: Sequence[Operation] = ()) -> None:
        """Flush, record the length of the last block, and end the lease.

        The file is closed for good when this returns. If it raises, the file is released all the
        same: nothing more is sent, and the NameNode closes it when the lease expires, with at
        least what was acknowledged.

        Args:
            then: what `AsyncClient.transact` takes, but no Truncate inside a chunk; it is done in
                the step that closes the file, or that step is not taken. So a file can get its
                name and its attributes as soon as it is complete:
                `close(then=[Rename("/tmp/f", "/f")])`.

        Raises: as `write`, and as `AsyncClient.transact`.
        """
        async with self._lock:
            if self._closed:
                return
            try:
                self._check_usable()
                await self._close_file(await self._last_ending(), then)
            finally:
                self._release()

    async def abort(self) -> None:
        """Give up: drop what was not flushed, keep what was acknowledged, and close the file.

        The file ends as after its lease, only at once. An error is logged: the lease then ends it.
        """
        async with self._lock:
            if self._closed:
                return
            self._try_for(min(ABORT_FOR_S, self._session.config.retry_for_s))
            try:
                if not self._fence.is_up:
                    await self._recorded()
                    if self._block is not None:
                        await self._block.seal(retry_for_s=self._retry_for_s)
                    await self._close_file(None)
            except PaxosBlockError as error:
                _log.warning("'%s': abandoned, but not closed: %s", self.status.path, error)
            finally:
                self._release()

    @contextlib.asynccontextmanager
    async def _to_be_closed(self, rest: Buffer) -> AsyncIterator[CloseFile]:
        try:
            await self.write(rest)
            async with self._lock:
                self._check_usable()
                last = await self._last_ending()
                yield replace(self._end(last), size=self._cut_bytes)
                self._note_end(last, replace(self.status, open=False, size=self._cut_bytes))
        finally:
            self._release()

    def _check_usable(self) -> None:
        if self._closed:
            raise InvalidRequestError(f"'{self.status.path}': the file is closed")
        self._try_for(self._session.config.retry_for_s)
        self._fence.check()

    def _try_for(self, seconds: float) -> None:
        """Let a call, or an attempt between two calls, that begins now try for so long."""
        self._retry_for_s, self._failed = seconds, None

    def _enqueue(self, piece: Buffer, *, sync: bool = False) -> None:
        self._cut_bytes += len(piece)
        self._pending.append(chunk_of(piece, sync=sync))

    async def _close_file(self, last: Ending | None, then: Sequence[Operation] = ()) -> None:
        """End the lease and the `last` block; the NameNode answers when every one is complete."""
        request = self._end(last)
        if then:  # what says that a file is another's may be about one that these name
            status = await self._closed_with(request, then)
        else:
            call = self._session.namenodes.call(CLOSE_FILE, request, retry_for_s=self._retry_for_s)
            status = await self._fence.guard(call)
        self._note_end(last, status)

    def _end(self, last: Ending | None) -> CloseFile:
        ends = None if last is None else last[1]
        return CloseFile(self.status.file_id, self._writer, ends, self._next.unsent)

    def _note_end(self, last: Ending | None, status: FileStatus) -> None:
        """Note the `status` that the file was closed with, together with its `last` block."""
        self.status = status
        if last is not None:
            block, _ = last
            block.closed()
            self._note_closed(block)
            self._block = None
        if status.size != self.acknowledged:
            what = f"closed with {status.size} bytes, but {self.acknowledged} are acknowledged"
            raise CorruptionError(f"'{status.path}': {what}", path=status.path)

    async def _closed_with(self, request: CloseFile, then: Sequence[Operation]) -> FileStatus:
        # The size is demanded before: a file of another one must not get the name.
        size = self._cut_bytes
        wanted = self._session.transaction(then, close=replace(request, size=size))
        try:
            await self._session.namenodes.call_once(TRANSACT, wanted)
        except NotFoundError as error:
            if error.details.get("file") != self.status.file_id:
                raise  # one that these name
            raise self._fence.deleted() from error
        return replace(self.status, open=False, size=size)

    def _release(self) -> None:
        self._closed = True
        self._tender.stop()
        if self._left is not None:
            self._left.recording.cancel()
            self._left.block.release()
        self._next.forget()
        self._session.leases.drop(self._writer)
        self._pending.clear()
        self._ledger.unsynced.clear()
        if self._block is not None:
            self._block.release()
        self._left = self._block = None

    # -- blocks ---------------------------------------------------------------------------------

    async def _push(self) -> None:
        """Send all pending chunks, in as many blocks as it takes."""
        while self._pending:
            self._fence.check()
            try:
                block = await self._block_with_room(self._pending[0].size_bytes)
                block.send(self._pending[0])
                self._pending.popleft()
                if self._left is not None and self._left.recording.done():
                    await self._recorded()
                if self._left is None:
                    self._next.look_ahead(block, self._block_failed)
            except BlockFailed as failure:
                await self._recover(failure)

    async def _reach_all(self, *, synced: bool) -> None:
        """Send all pending chunks and wait until they are acknowledged."""
        while True:
            await self._push()
            await self._recorded()
            try:
                if self._block is not None:
                    await self._block.settled(synced=synced)
                    self._note_acknowledged(self._block)
                break
            except BlockFailed as failure:
                await self._recover(failure)
        invariant(self.acknowledged == self._cut_bytes, "W3 what is written is acknowledged", self)

    async def _block_with_room(self, size_bytes: int) -> BlockWriter:
        block = self._block
        if block is None or block.block == self._rolling or self._next.is_full(block, size_bytes):
            with in_doubt():
                if block is not None:
                    rolls = block.block == self._rolling
                    await self._leave(block, None if rolls else await self._next.ahead())
                block = self._block or await self._open_block()
        await block.room()
        return block

    async def _open_block(self) -> BlockWriter:
        """K1, W1: a new block whose members all have an empty replica.

        Raises:
            NoSpaceError: too few DataNodes have room.
            UnavailableError: those that were chosen do not take it.
            PaxosBlockError: there is none, or no NameNode could say in time.
        """
        await self._recorded()
        backoff, path = Backoff(self._retry_for_s), self.status.path
        while True:
            try:
                return await self._try_to_open_block()
            except NoSpaceError:
                if backoff.exhausted:
                    raise
                self._exclusions.end_rest()
            except BlockFailed as failure:
                if backoff.exhausted:
                    raise UnavailableError(f"'{path}': {failure.reason}", path=path) from failure
            await backoff.pause()

    async def _try_to_open_block(self) -> BlockWriter:
        self._fence.check()
        self._tender.wake()  # if this call does not live to open the block, the background does
        with self._next.unopened.asking():
            view = await self._fence.guard(
                self._next.ask(self._pending[0].size_bytes, self._retry_for_s)
            )
        block = self._next.writer_of(view, self._block_failed)
        try:
            small = self._closing and is_small(self._pending, view.added_bytes)
            await block.open(small=small)
        except BlockFailed as failure:
            # If the reply is lost, sealing is repeated: it may be the file's last block now.
            self._enter(block)
            if await self._failures.handled(block, failure, self._retry_for_s) is not None:
                self._finished_bytes += block.acknowledged_bytes
                self._block = None
                raise
        else:
            self._enter(block)
        self._next.after = None
        self._shortfall.note(block.view)
        return block

    def _enter(self, block: BlockWriter) -> None:
        """Go on in a block; count from what it had when it was opened: a new one had nothing."""
        self._block = block
        self._next.entered(block)
        self._finished_bytes -= block.acknowledged_bytes

    async def _leave(self, block: BlockWriter, ahead: BlockWriter | None = None) -> None:
        """W6: wait for the votes, and have the length recorded. If a block was made `ahead`, go on
        there meanwhile: it becomes one of the file in the change that ends the one before, so its
        members vote for what it gets, but nothing of it is acknowledged until that is answered.

        Raises BlockFailed as `BlockWriter.close_request` does.
        """
        await self._recorded()
        request = await block.close_request(NO_BLOCK if ahead is None else ahead.block)
        self._left, self._block = self._record(block, request), None
        if ahead is None:
            await self._recorded()
        else:
            self._enter(ahead)
            self._shortfall.note(ahead.view)

    def _record(self, block: BlockWriter, request: FinalizeBlock) -> _Left:
        record = self._fence.guard(block.record(request, retry_for_s=self._retry_for_s))
        recording = asyncio.create_task(record)
        # `_recorded` raises the error; where that is not called, the file was given up.
        recording.add_done_callback(lambda done: done.cancelled() or done.exception())
        return _Left(block, request, recording)

    async def _recorded(self) -> None:
        """Wait until the end of the block that was left is recorded, if there is one. Where no
        NameNode recorded it in time, ask once more.

        Raises:
            FencedError: the file is not the writer's any more.
            PaxosBlockError: no NameNode could record it in time; a later call asks again.
        """
        if self._left is None:
            return
        if self._left.recording.done() and self._left.recording.exception() is not None:
            self._left = self._record(self._left.block, self._left.request)
        await asyncio.wait((self._left.recording,))  # a cancelled call leaves it under way
        self._left.recording.result()
        block, self._left = self._left.block, None
        self._note_closed(block)

    async def _last_ending(self) -> Ending | None:
        """W6 for the last block, whatever happens to its members; None if it is ended already.

        The only chunk of a file goes into the block that was made with the file, if that works.
        """
        self._closing = True
        if self._buffer:
            self._enqueue(self._buffer.take())
        if len(self._pending) == 1:
            whole = await self._next.written_whole(self._pending[0], self._block_failed)
            if whole is not None:
                return whole
        while True:
            await self._reach_all(synced=False)
            if self._block is None:
                return None
            try:
                return self._block, await self._block.close_request()
            except BlockFailed as failure:
                await self._recover(failure)

    async def _recover(self, failure: BlockFailed) -> None:
        """W4: the block is rebuilt (W5), or sealed, and what it did not keep goes on (W7).

        Blocks that fail without a byte of progress are not tried for ever, nor without a pause.
        """
        block = self._block
        if block is None:
            raise failure
        with in_doubt():
            await self._recorded()
            again, progress = self._failed, self.acknowledged > self._acknowledged_then
            if again is None or progress:
                self._failed, again = Backoff(self._retry_for_s), None
                self._acknowledged_then = self.acknowledged
            elif again.exhausted:
                text = f"'{self.status.path}': no block takes chunks: {failure.reason}"
                raise UnavailableError(text, path=self.status.path)
            sealed = await self._failures.handled(block, failure, self._retry_for_s)
        if sealed is None:
            self._shortfall.note(replace(block.view, shortfall=failure.reason))
        else:
            self._pending.extendleft(reversed(sealed.rest))
            self._ledger.sealed(block, sealed.view.record, failure.failed)
            self._finished_bytes += block.acknowledged_bytes
            self._block = None
        if again is not None:
            await again.pause()

    def _note_closed(self, block: BlockWriter) -> None:
        """Note that the block is closed with everything that was sent in it."""
        self._note_acknowledged(block)
        self._finished_bytes += block.acknowledged_bytes
        self._ledger.closed(block)

    # -- between two calls ----------------------------------------------------------------------

    def _block_failed(self, failed: tuple[StorageId, ...]) -> None:
        """W4 of the current block. A call that waits for it acts; if there is none, we do."""
        self._exclusions.add(failed)
        self._tender.wake()

    async def _tend(self) -> bool:
        """Do what a call would do first. True if no failed or unopened block is in readers' way.

        The next call does what else is left undone.

        Raises: as `write`; another attempt may succeed.
        """
        async with self._lock:
            if self._closed or self._fence.is_up or self._session.namenodes.closed:
                return True
            self._try_for(min(TEND_FOR_S, self._session.config.retry_for_s))
            try:
                await self._go_on()
            except PaxosBlockError as error:
                if self._in_the_way:
                    raise
                _log.warning("'%s': %s; left to the next call", self.status.path, error)
            return not self._in_the_way

    @property
    def _in_the_way(self) -> bool:
        """True if readers may not learn the file's length because of its last block."""
        return bool(self._next.unopened) or (
            self._block is not None and self._block.failure is not None
        )

    async def _go_on(self) -> None:
        """End a block that failed, or must be left; send what was not acknowledged."""
        block = self._block
        if block is not None and (block.failure or block.block == self._rolling):
            try:
                if not block.failure and self._failures.grows(block):
                    self._rolling = NO_BLOCK
                    raise block.give_up("it gets another member")
                await self._leave(block)
            except BlockFailed as failure:
                await self._recover(failure)
        await self._push()

    def _open_block_told(self) -> OpenBlock | None:
        """Return the current block if it takes chunks, and so may be followed by another one."""
        block = self._block
        if block is None or block.failure is not None or self._left is not None:
            return None
        return OpenBlock(block.block, self._failures.is_short(block), self._exclusions.excluded())

    def _roll(self, block: BlockId) -> None:
        """Leave the block: the NameNode has better members for a new one (HDFS-6867)."""
        if self._block is not None and self._block.block == block:
            self._rolling = block
            self._tender.wake()

    # -- what is known --------------------------------------------------------------------------

    def _receipt(self, durability: Durability) -> FlushReceipt:
        if self._block is not None:
            self._block.flushed = True
        return self._ledger.receipt(self.acknowledged, durability, self._block)

    def _note_acknowledged(self, block: BlockWriter) -> None:
        if block.sent:
            self._exclusions.forgive(block.members)
            self._ledger.reached(block)


def closing(
    writer: AsyncFileWriter, rest: Buffer
) -> contextlib.AbstractAsyncContextManager[CloseFile]:
    """Write the `rest` of a file, flush, and give the request that closes it, which the body of
    `async with` sends with others in a transaction. The file is released at the end, as by `close`.

    Nothing else may be done with the file meanwhile.

    Raises: as `AsyncFileWriter.write`; CorruptionError if the file was not closed with all that was
        acknowledged.
    """
    return writer._to_be_closed(rest)

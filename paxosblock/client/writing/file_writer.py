"""Files being written: blocks one after the other, through failures of DataNodes.

A `BlockWriter` ends with the first failure. The file goes on: the block is sealed with the chunks
that it kept (W7), and the rest is sent again, byte for byte, as the first chunks of the next block.
Between two calls that is done in the background, so that readers of acknowledged bytes do not
depend on when the application writes again.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections import deque
from typing import Final, Self

from msgspec.structs import replace

from paxosblock.api.namenode import (
    CLOSE_FILE,
    NO_BLOCK,
    BlockView,
    CloseFile,
    FileStatus,
    OpenBlock,
)
from paxosblock.base.checksum import Buffer
from paxosblock.base.replacement import WriteOptions
from paxosblock.client.session.lease_keeper import Fence
from paxosblock.client.session.retried_task import RetriedTask
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.client.writing.block_writer import BlockWriter
from paxosblock.client.writing.chunks import Chunk, ChunkBuffer, chunk_of
from paxosblock.client.writing.durable import finalized_on_disk
from paxosblock.client.writing.ends import BlockFailed
from paxosblock.client.writing.exclusions import Exclusions
from paxosblock.client.writing.failures import Failures
from paxosblock.client.writing.next_block import Ending, NextBlock, is_small
from paxosblock.client.writing.progress import Progress, Shortfall
from paxosblock.client.writing.receipt import FlushReceipt, Ledger
from paxosblock.client.writing.step import Step
from paxosblock.errors import CorruptionError, InvalidRequestError, PaxosBlockError, in_doubt
from paxosblock.protocol.invariants import invariant
from paxosblock.protocol.types import BlockId, Durability, StorageId, WriterId

TEND_FOR_S: Final = 1.0
"""Seconds for which a background attempt repeats its requests: a call may be waiting for it."""
ABORT_FOR_S: Final = 2.0  # a fail-over takes less, and what is left undone the lease's end does

_log = logging.getLogger(__name__)


class AsyncFileWriter:
    """A file that this client writes; made by `AsyncClient.create` and `AsyncClient.append`.

    What was written is safe once `hflush`, `hsync` or `close` has returned. Memory is bounded: at
    most window x chunk size bytes are under way, and less than one chunk waits for more.

    Leaving `async with` by an exception calls `abort`, which drops what was not flushed.
    """

    def __init__(
        self,
        core: SharedSession,
        status: FileStatus,
        writer: WriterId,
        *,
        chunk_size: int,
        window: int,
        previous: BlockId = NO_BLOCK,
        reopens: bool = False,
        first: BlockView | None = None,
        options: WriteOptions | None = None,
    ) -> None:
        """`status` is the NameNode's answer to `writer`; `previous` the file's last block, in which
        it goes on if it `reopens` that; `first` the block that was made with a new one."""
        self.status = status
        self._core = core
        self._writer = writer
        self.chunk_size = min(chunk_size, status.block_size)
        self._buffer = ChunkBuffer(self.chunk_size)
        self._lock = asyncio.Lock()
        self._block: BlockWriter | None = None
        self._pending: deque[Chunk] = deque()  # not sent in the current block
        self._cut_bytes = self._finished_bytes = status.size  # became chunks; are in other blocks
        self._ledger = Ledger()
        self._exclusions = Exclusions(asyncio.get_running_loop().time)
        self._next = NextBlock(
            core, status, writer, window, self._exclusions,
            last=previous, reopens=reopens, first=first,
        )  # fmt: skip
        self._tender = RetriedTask(self._tend, f"'{status.path}'", core.tending)
        self._rolling = NO_BLOCK  # is to be left: the next chunk begins another one
        self._shortfall = Shortfall(status.path, status.replication)
        self._retry_for_s = core.config.retry_for_s
        self._progress = Progress(status.path)
        self._fence = Fence(status.path)
        self._step = Step(self._fence)
        self._closing = self._closed = False
        self._failures = Failures(
            core, status, writer, options or WriteOptions(),
            exclusions=self._exclusions, fence=self._fence, following=self._next,
        )  # fmt: skip
        core.leases.keep(writer, self._fence.lease_lost, self._open_block_told, self._roll)

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
        block = self._step.block or self._block
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
            FencedError: somebody took the file over; what was not flushed has an unknown outcome.
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
            await self._settle(synced=False)
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
            in_memory = self.status.durability is Durability.MEMORY
            if self._buffer or (in_memory and self._has_unsynced_chunks()):
                self._enqueue(self._buffer.take(), sync=in_memory)
            await self._settle(synced=True)
            while unsynced := self._ledger.unsynced:
                self._ledger.synced(await finalized_on_disk(self._core, unsynced[0]))
            return self._receipt(Durability.DISK)

    async def close(self) -> None:
        """Flush, record the length of the last block, and end the lease.

        The file is closed for good when this returns. If it raises, the file is released all the
        same: nothing more is sent, and the NameNode closes it when the lease expires, with at
        least what was acknowledged.

        Raises: as `write`.
        """
        async with self._lock:
            if self._closed:
                return
            try:
                self._check_usable()
                self._closing = True
                if self._buffer:
                    self._enqueue(self._buffer.take())
                await self._close_file(await self._end_whole() or await self._end_last())
            finally:
                self._release()

    async def abort(self) -> None:
        """Give up: drop what was not flushed, keep what was acknowledged, and close the file.

        The file ends as after its lease, only at once. An error is logged: the lease then ends it.
        """
        async with self._lock:
            if self._closed:
                return
            self._begin(min(ABORT_FOR_S, self._core.config.retry_for_s))
            try:
                if not self._fence.is_up:
                    await self._end_step()
                    if self._block is not None:
                        await self._block.seal(retry_for_s=self._retry_for_s)
                    await self._close_file(None)
            except PaxosBlockError as error:
                _log.warning("'%s': abandoned, but not closed: %s", self.status.path, error)
            finally:
                self._release()

    def _check_usable(self) -> None:
        if self._closed:
            raise InvalidRequestError(f"'{self.status.path}': the file is closed")
        self._begin(self._core.config.retry_for_s)
        self._fence.check()

    def _begin(self, retry_for_s: float) -> None:
        """Begin a call, or an attempt between two calls, that tries for this long."""
        self._retry_for_s = retry_for_s
        self._progress.begin(retry_for_s)

    def _enqueue(self, piece: Buffer, *, sync: bool = False) -> None:
        self._cut_bytes += len(piece)
        self._pending.append(chunk_of(piece, sync=sync))

    async def _close_file(self, last: Ending | None) -> None:
        """End the lease and the `last` block; the NameNode answers when every one is complete."""
        block, ends = last or (None, None)
        request = CloseFile(self.status.file_id, self._writer, ends, self._next.unsent)
        call = self._core.namenodes.call(CLOSE_FILE, request, retry_for_s=self._retry_for_s)
        status = self.status = await self._fence.guard(call)
        if block is not None:
            block.ended()
            self._finish(block)
            self._block = None
        if status.size != self.acknowledged:
            what = f"closed with {status.size} bytes, but {self.acknowledged} are acknowledged"
            raise CorruptionError(f"'{status.path}': {what}", path=status.path)

    def _release(self) -> None:
        self._closed = True
        self._tender.stop()
        self._step.forget()
        self._next.forget()
        self._core.leases.drop(self._writer)
        self._pending.clear()
        self._ledger.unsynced.clear()
        block, self._block = self._block, None
        if block is not None:
            block.release()

    # -- blocks ---------------------------------------------------------------------------------

    async def _push(self) -> None:
        """Send all pending chunks, in as many blocks as it takes."""
        while self._pending:
            self._fence.check()
            try:
                with in_doubt():
                    block = await self._block_with_room(self._pending[0].size_bytes)
                    await block.room()
                block.send(self._pending[0])
                self._pending.popleft()
                if self._step.answered:
                    await self._end_step()
                if self._step.block is None:
                    self._next.look_ahead(block, self._block_failed)
            except BlockFailed as failure:
                await self._recover(failure)

    async def _settle(self, *, synced: bool) -> None:
        """Send all pending chunks and wait until they are acknowledged."""
        settled = False
        while not settled:
            await self._push()
            await self._end_step()
            try:
                if self._block is not None:
                    await self._block.settled(synced=synced)
                    self._note(self._block)
                settled = True
            except BlockFailed as failure:
                await self._recover(failure)
        invariant(self.acknowledged == self._cut_bytes, "W3 what is written is acknowledged", self)

    async def _block_with_room(self, size_bytes: int) -> BlockWriter:
        block = self._block
        rolls = block is not None and block.block == self._rolling
        if block is not None and (rolls or self._next.is_full(block, size_bytes)):
            await self._end(block, None if rolls else await self._next.ahead())
        if self._block is None:
            self._block = await self._open_block()
        return self._block

    async def _open_block(self) -> BlockWriter:
        """K1, W1: a new block whose members all have an empty replica."""
        await self._end_step()
        return await self._next.opened(self._try_to_open_block, self._retry_for_s)

    async def _try_to_open_block(self) -> BlockWriter:
        self._fence.check()
        self._wake()  # if this call does not live to open the block, the background does
        with self._next.unopened.asking():
            view = await self._fence.guard(
                self._next.ask(self._pending[0].size_bytes, self._retry_for_s)
            )
        block = self._next.writer_of(view, self._block_failed)
        try:
            await block.open(small=self._closing and is_small(self._pending))
        except BlockFailed as failure:
            # Whoever does not hear that it is sealed seals it again: it may be the last block now.
            self._begin_in(block)
            self._block = block
            if await self._failures.handled(block, failure, self._retry_for_s) is not None:
                self._finished_bytes += block.acknowledged_bytes
                self._block = None
                raise
        else:
            self._begin_in(block)
        self._next.after = None
        self._shortfall.note(block.view)
        return block

    def _begin_in(self, block: BlockWriter) -> None:
        """Count from what the block had when it was opened; a new one had nothing."""
        self._next.begun(block)
        self._finished_bytes -= block.acknowledged_bytes

    async def _end_whole(self) -> Ending | None:
        """W6 for a file of one chunk, in the block made with it; None: it goes as all others."""
        if len(self._pending) != 1:
            return None
        return await self._next.written_whole(self._pending[0], self._block_failed)

    async def _end_last(self) -> Ending | None:
        """W6 for the last block, whatever happens to its members; None if it is ended already."""
        await self._settle(synced=False)
        while self._block is not None:
            try:
                return self._block, await self._block.end()
            except BlockFailed as failure:
                await self._recover(failure)
                await self._settle(synced=False)
        return None

    async def _end(self, block: BlockWriter, ahead: BlockWriter | None = None) -> None:
        """W6: wait for the votes, and record the length: meanwhile go on in the block made `ahead`,
        if there is one. Raises BlockFailed as `BlockWriter.end` does."""
        await self._end_step()
        request = await block.end(NO_BLOCK if ahead is None else ahead.block)
        self._step.begin(block, request, self._retry_for_s)
        self._block = ahead
        if ahead is None:
            await self._end_step()
        else:
            self._begin_in(ahead)
            self._shortfall.note(ahead.view)

    async def _end_step(self) -> None:
        """Wait until the end of the block before is recorded, if there is one."""
        if (block := await self._step.over(self._retry_for_s)) is not None:
            self._finish(block)

    async def _recover(self, failure: BlockFailed) -> None:
        """W4: the block is rebuilt (W5), or sealed, and what it did not keep goes on (W7)."""
        block = self._block
        if block is None:
            raise failure
        with in_doubt():
            await self._end_step()
            pause = self._progress.failed(self.acknowledged, failure.reason)
            sealed = await self._failures.handled(block, failure, self._retry_for_s)
        if sealed is None:
            self._shortfall.note(replace(block.view, shortfall=failure.reason))
        else:
            self._pending.extendleft(reversed(sealed.rest))
            self._ledger.sealed(block, sealed.view.record, failure.failed)
            self._finished_bytes += block.acknowledged_bytes
            self._block = None
        if pause is not None:
            await pause.pause()

    def _finish(self, block: BlockWriter) -> None:
        """Note that the block is closed with everything that was sent in it."""
        self._note(block)
        self._finished_bytes += block.acknowledged_bytes
        self._ledger.closed(block)

    # -- between two calls ----------------------------------------------------------------------

    def _block_failed(self, failed: tuple[StorageId, ...]) -> None:
        """W4 of the current block. A call that waits for it acts; if there is none, we do."""
        self._exclusions.add(failed)
        self._wake()

    def _wake(self) -> None:
        if not self._core.namenodes.closed:
            self._tender.wake()

    async def _tend(self) -> bool:
        """Do what a call would do first. True if no failed or unopened block is in readers' way.

        The next call does what else is left undone.

        Raises: as `write`; another attempt may succeed.
        """
        async with self._lock:
            if self._closed or self._fence.is_up or self._core.namenodes.closed:
                return True
            self._begin(min(TEND_FOR_S, self._core.config.retry_for_s))
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
        """End a block that failed, or is to be left; send what was not acknowledged."""
        block = self._block
        if block is not None and (block.failure or block.block == self._rolling):
            try:
                if not block.failure and self._failures.grows(block):
                    self._rolling = NO_BLOCK
                    raise block.give_up("it gets another member")
                await self._end(block)
            except BlockFailed as failure:
                await self._recover(failure)
        await self._push()

    def _open_block_told(self) -> OpenBlock | None:
        """Return the current block if it takes chunks, and so may be followed by another one."""
        block = self._block
        if block is None or block.failure is not None or self._step.block is not None:
            return None
        return OpenBlock(block.block, self._failures.is_short(block), self._exclusions.excluded())

    def _roll(self, block: BlockId) -> None:
        """Leave the block: the NameNode has better members for a new one (HDFS-6867)."""
        if self._block is not None and self._block.block == block:
            self._rolling = block
            self._wake()

    # -- what is known --------------------------------------------------------------------------

    def _has_unsynced_chunks(self) -> bool:
        if self._pending:
            return not self._pending[-1].sync
        return self._block is not None and self._block.acknowledged_synced < self._block.sent

    def _receipt(self, durability: Durability) -> FlushReceipt:
        if self._block is not None:
            self._block.flushed = True
        return self._ledger.receipt(self.acknowledged, durability, self._block)

    def _note(self, block: BlockWriter) -> None:
        if block.sent:
            self._exclusions.forgive(block.members)
            self._ledger.reached(block)

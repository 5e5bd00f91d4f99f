"""The block in which a file goes on: its last one opened again (K4), or a new one (K1).

A writer that fills its blocks quickly has the next one made while it writes, so that it goes on
there at once (`look_ahead`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from paxosblock.api.namenode import (
    ADD_BLOCK,
    NO_BLOCK,
    REOPEN_BLOCK,
    AddBlock,
    BlockView,
    FileStatus,
    FinalizeBlock,
    ReopenBlock,
)
from paxosblock.base.replacement import Failed
from paxosblock.base.units import MIB
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.client.writing.block_writer import BlockFailed, BlockWriter
from paxosblock.client.writing.chunks import Chunk
from paxosblock.client.writing.exclusions import Exclusions
from paxosblock.errors import NoSpaceError, Outcome, PaxosBlockError
from paxosblock.protocol.types import SMALL_BYTES_MAX, BlockId, StorageId, WriterId

AHEAD_FROM_BYTES: Final = 16 * MIB
"""Smaller blocks are not made ahead: more would be made than are filled."""
AHEAD_BEFORE_S: Final = 0.2
"""The writer asks for the next block this long before the present one is full, but not before a
quarter of it was written; at the latest when it is half full."""
AHEAD_WITHIN_S: Final = 30.0
"""Blocks are not made ahead for a writer that took longer for its block so far: they would wait for
long."""

Ending = tuple[BlockWriter, FinalizeBlock]
"""The last block of a file that will be closed, and what says how it ends (W6)."""
OnFailed = Callable[[tuple[StorageId, ...]], None]

_log = logging.getLogger(__name__)


def is_small(chunks: Sequence[Chunk], added_bytes: int) -> bool:
    """True if these, which are all that is left of a file, are one short chunk (D1), to which
    encryption adds `added_bytes`."""
    return len(chunks) == 1 and chunks[0].size_bytes + added_bytes <= SMALL_BYTES_MAX


class Unopened:
    """True while a block may be the file's last one that the NameNode was asked to add, and that
    has not been opened yet: the file's length is not known.
    """

    def __init__(self) -> None:
        self._maybe = False

    def __bool__(self) -> bool:
        return self._maybe

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Note that the NameNode is asked to add a block."""
        known, self._maybe = self._maybe, True
        try:
            yield
        except PaxosBlockError as error:
            # A NameNode that found no room for it at DataNodes knows that it is not there; one
            # that names its own full disk says nothing about a request before.
            no_room = isinstance(error, NoSpaceError) and not error.of_namenode
            self._maybe = not no_room and (known or error.outcome is Outcome.UNKNOWN)
            raise

    def opened(self) -> None:
        """Note that the block was opened, or failed and must be sealed like any other."""
        self._maybe = False


class NextBlock:
    """Asks for the blocks of a file, one after the other.

    A request without an answer, or whose block was not opened yet, is repeated: the NameNode gives
    the same answer.
    """

    def __init__(
        self,
        session: SharedSession,
        status: FileStatus,
        writer: WriterId,
        window: int,
        exclusions: Exclusions,
        *,
        last: BlockId,
        reopens: bool,
        first: BlockView | None,
    ) -> None:
        """`last` is the file's last block; with `reopens` it is the first one that is asked for.
        `first` was made with a file that has no blocks.
        """
        self.unopened = Unopened()
        self.after: Failed | None = None
        """The block that was sealed before a new one whose members a policy chooses."""
        self._session = session
        self._status = status
        self._writer = writer
        self._window = window
        self._exclusions = exclusions
        self._previous = last
        self._reopens = reopens and last != NO_BLOCK
        self._first = first
        self._begun_s, self._begun_bytes = 0.0, 0
        self._making: asyncio.Task[BlockWriter | None] | None = None

    @property
    def unsent(self) -> BlockId:
        """Return the block that was made with the file if no member has heard of it."""
        return NO_BLOCK if self._first is None else self._first.record.block

    async def ask(self, size_bytes: int, retry_for_s: float) -> BlockView:
        """Return a block with room for a chunk of `size_bytes`; ask for `retry_for_s` seconds.

        Raises:
            PaxosBlockError: there is none, or no NameNode could say in time.
        """
        namenodes, self._first = self._session.namenodes, None
        if self._reopens:
            reopened = await namenodes.call_anew(
                REOPEN_BLOCK, lambda: self._wanted_again(size_bytes), retry_for_s=retry_for_s
            )
            if reopened.view is not None:
                return reopened.view
            _log.info("'%s': in a new block, the last: %s", self._status.path, reopened.why)
            self._reopens = False
        return await namenodes.call_anew(ADD_BLOCK, self._wanted, retry_for_s=retry_for_s)

    async def written_whole(self, chunk: Chunk, on_failed: OnFailed) -> Ending | None:
        """Write the only chunk of a file into the block that was made with the file.

        The block becomes the file's when the file is closed: until then no reader gets the chunk,
        and nothing of it is acknowledged. So if this fails another block takes the chunk.
        `on_failed` is for a `BlockWriter`.

        Returns:
            The block and what ends it (W6), once all voted; None: there is none, or it failed.
        """
        first, self._first = self._first, None
        if first is None:
            return None
        block = self.writer_of(first, on_failed)
        try:
            if is_small([chunk], first.added_bytes):
                await block.write_whole(chunk)
            else:
                await block.open()
                block.send(chunk)
            return block, await block.close_request()
        except BlockFailed as failure:
            _log.info(
                "'%s': not in the block that was made with it: %s", self._status.path, failure
            )
            return None
        finally:
            block.release()  # a member that has voted says no more

    def entered(self, block: BlockWriter) -> None:
        """Note that the block was opened, or failed and must be sealed like any other."""
        self._previous, self._reopens = block.block, False
        self._begun_s, self._begun_bytes = asyncio.get_running_loop().time(), block.sent_bytes
        self.forget()
        self.unopened.opened()

    def is_full(self, block: BlockWriter, size_bytes: int) -> bool:
        """True if the block has no room for a chunk of `size_bytes`, or may be closed already."""
        most = self._session.config.max_chunks_per_block
        fits = block.sent_bytes + size_bytes <= self._status.block_size
        return block.asked_to_close or block.sent >= most or (block.sent > 0 and not fits)

    def writer_of(self, view: BlockView, on_failed: OnFailed) -> BlockWriter:
        """Return the writer of a block that was asked for; it is not open yet."""
        make = BlockWriter.granted if view.record.writer_generation else BlockWriter
        namenodes, writing = self._session.namenodes, self._session.writing
        return make(view, self._writer, namenodes, writing, on_failed=on_failed)

    def look_ahead(self, block: BlockWriter, on_failed: OnFailed) -> None:
        """Have the block after `block` made, if `block` will soon be full.

        `on_failed` is for a `BlockWriter`.
        """
        size, sent = self._status.block_size, block.sent_bytes
        written = sent - self._begun_bytes
        if self._making is not None or size < AHEAD_FROM_BYTES or 4 * written < size:
            return
        took_s = asyncio.get_running_loop().time() - self._begun_s
        # Half a block is less than a quick writer writes while its data are on their way.
        is_soon = 2 * sent >= size or took_s * (size - sent) < AHEAD_BEFORE_S * written
        if is_soon and took_s < AHEAD_WITHIN_S:
            self._making = asyncio.create_task(self._make_ahead(on_failed))

    async def ahead(self) -> BlockWriter | None:
        """Return the block that is made ahead, once it is; None if there is none that works."""
        if self._making is not None:
            await asyncio.wait((self._making,))
        return self._made()

    def _made(self) -> BlockWriter | None:
        making = self._making
        ahead = making.result() if making and making.done() and not making.cancelled() else None
        return None if ahead is None or ahead.failure is not None else ahead

    def forget(self) -> None:
        """Note that the block that was made ahead is begun, or no longer wanted."""
        ahead, making = self._made(), self._making
        self._making = None
        if making is not None:
            making.cancel()
        if ahead is not None and ahead.block != self._previous:
            ahead.release()

    async def _make_ahead(self, on_failed: OnFailed) -> BlockWriter | None:
        """K1, W1; None if it failed. A block that is never begun goes when the file is closed."""
        ask = self._session.namenodes.call_anew
        try:
            view = await ask(ADD_BLOCK, lambda: replace(self._wanted(), ahead=True))
            block = self.writer_of(view, on_failed)
            await block.open()
        except (PaxosBlockError, BlockFailed) as error:
            _log.info("'%s': no block was made ahead: %s", self._status.path, error)
            return None
        return block

    def _wanted_again(self, size_bytes: int) -> ReopenBlock:
        most = self._session.config.max_chunks_per_block
        return ReopenBlock(
            self._status.file_id, self._writer, self._previous, self._window, size_bytes, most,
            self._exclusions.excluded(),
        )  # fmt: skip

    def _wanted(self) -> AddBlock:
        status, excluded = self._status, self._exclusions.excluded()
        return AddBlock(
            status.file_id, self._writer, self._previous, self._window, excluded,
            status.replication, status.durability, host=self._session.config.host, after=self.after,
        )  # fmt: skip

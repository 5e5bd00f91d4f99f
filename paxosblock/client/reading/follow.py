"""`follow`: the bytes of a file while it is being written, without opening it again.

Every byte that is delivered was found by a quorum read (R2) or stands in a finalized block, so
no failure takes it back. While nothing is written, the members of the last block are asked to
answer when they have more (`Watch`); no member is asked in a loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final

from paxosblock.api.file_pages import GET_FILE, FileView, GetFile
from paxosblock.api.namenode import NO_BLOCK, BlockView, FileStatus
from paxosblock.client.reading.block_reader import (
    Extent,
    check_same,
    finalized_extent,
    taken_back,
    unfinalized_extent,
)
from paxosblock.client.reading.file_blocks import Blocks
from paxosblock.client.reading.length import decided, quorum_length
from paxosblock.client.reading.prefetch import Prefetcher
from paxosblock.client.session.backoff import Backoff
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.errors import InvalidRequestError, NotFoundError
from paxosblock.protocol.read import ReadProgress
from paxosblock.protocol.types import BlockId, BlockState

WAIT_MS: Final = 10_000
"""Milliseconds that members may wait for more before they answer that there is none."""
LONGEST_PAUSE_S: Final = 0.2
"""Pause between looks at a file whose last block is finalized and that has no next one yet."""
LONGEST_PAUSE_CLOSED_S: Final = 1.0
"""Pause between looks at a closed file, which may be appended to."""


@dataclass(slots=True)
class Follower:
    """The place of a file's follower: the next byte to deliver is `position`.

    `past_close` says that it goes on where the file is closed.
    """

    session: SharedSession
    path: str
    position: int
    past_close: bool = False
    _file: FileStatus | None = field(default=None, init=False)
    """The file at the first look."""
    _block: BlockId = field(default=NO_BLOCK, init=False)
    """The block up to whose end, as it was then, bytes were delivered last."""

    async def run(self) -> AsyncGenerator[bytes]:
        """Yield all bytes from `position` on, until the file is closed; or, `past_close`, for ever.

        Raises:
            NotFoundError: the file does not exist, or was deleted or replaced meanwhile.
            TruncatedError: it was truncated meanwhile, or lost bytes to a recovery by force.
            UnavailableError: blocks could not be read for the client's `retry_for_s`.
        """
        backoff, paused_s = _backoff(LONGEST_PAUSE_S), LONGEST_PAUSE_S
        while True:
            view = await self._fetch_view()
            before = self.position
            async for data in self._deliver(view.status, await decided(self.session, view)):
                yield data
            if view.next_place is not None:
                continue
            if not view.status.open and not self.past_close:
                return
            longest_s = LONGEST_PAUSE_S if view.status.open else LONGEST_PAUSE_CLOSED_S
            if view.blocks and view.blocks[-1].record.state is BlockState.UNDER_CONSTRUCTION:
                async for data in self._watch(view.status, view.blocks[-1]):
                    yield data
            if self.position > before or longest_s != paused_s:
                backoff, paused_s = _backoff(longest_s), longest_s
            await backoff.pause()

    async def _fetch_view(self) -> FileView:
        """Fetch the page of blocks that begins where we stand."""
        host = self.session.config.host
        request = GetFile(self.path, offset=self.position, host=host, decrypts=True)
        view = await self.session.namenodes.call(GET_FILE, request)
        before = self._file = self._file or view.status
        if before.file_id != view.status.file_id:
            raise NotFoundError(f"'{self.path}': was replaced by another file", path=self.path)
        check_same(before, view.status)
        if self._block != NO_BLOCK and not (view.blocks and self._is_kept(view.blocks[0])):
            raise taken_back(self.path, self.position)
        return view

    def _is_kept(self, block: BlockView) -> bool:
        """I10: True if this block, at our place, is behind what was delivered or still has it."""
        if block.offset >= self.position:
            return True
        held = not block.record.finalized or finalized_extent(block).end >= self.position
        return held and block.record.block == self._block

    async def _watch(self, file: FileStatus, block: BlockView) -> AsyncGenerator[bytes]:
        """Deliver what is added to a block under construction, until its record changes."""
        known = 0
        while True:
            read = await quorum_length(self.session, block, known=known, wait_ms=WAIT_MS)
            if read.progress is not ReadProgress.DONE or read.goal <= known:
                return
            known, extent = read.goal, unfinalized_extent(block, read)
            if extent.block == self._block and extent.end < self.position:
                raise taken_back(self.path, self.position)
            async for data in self._deliver(file, [extent]):
                yield data

    async def _deliver(self, file: FileStatus, extents: list[Extent]) -> AsyncGenerator[bytes]:
        blocks = Blocks(self.session, file, extents, extents[-1].end if extents else 0)
        if self.position >= blocks.size_bytes:
            return
        self._block = extents[-1].block
        ahead_bytes = self.session.config.prefetch_size
        ahead = Prefetcher(blocks, self.position, blocks.size_bytes, ahead_bytes)
        try:
            while self.position < blocks.size_bytes:
                piece = await ahead.next_piece()
                self.position += len(piece)
                yield bytes(piece)
        finally:
            ahead.cancel()


def _backoff(longest_s: float) -> Backoff:
    """Return short pauses without end: a file may be quiet for ever."""
    return Backoff(give_up_s=float("inf"), longest_s=longest_s)


async def wait_longer(session: SharedSession, path: str, size: int, timeout_s: float) -> bool:
    """Wait until a file has more than `size` bytes; False when that takes `timeout_s` or more.

    Even a closed file may get longer, by an append.

    Raises:
        NotFoundError: there is no such file, or it was deleted meanwhile.
    """
    backoff = Backoff(give_up_s=timeout_s, longest_s=LONGEST_PAUSE_S)
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            while True:
                async with contextlib.aclosing(follower(session, path, size).run()) as data:
                    async for _ in data:
                        return True
                await backoff.pause()
    except TimeoutError:
        if not limit.expired():  # an error of ours, which the caller must hear
            raise
        return False


def follower(
    session: SharedSession, path: str, offset: int, *, past_close: bool = False
) -> Follower:
    """Make a follower from byte `offset` on. Raises InvalidRequestError when it is negative."""
    if offset < 0:
        raise InvalidRequestError(f"'{path}': negative offset {offset}")
    return Follower(session, path, offset, past_close)

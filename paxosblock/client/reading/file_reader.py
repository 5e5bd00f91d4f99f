"""Files being read: positions, sizes and pieces over blocks."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import AsyncIterator
from typing import Self

from paxosblock.api.namenode import FileStatus
from paxosblock.base.checksum import Buffer
from paxosblock.client.reading.block_reader import check_same, taken_back
from paxosblock.client.reading.file_blocks import Blocks
from paxosblock.client.reading.length import (
    Consistency,
    ReadableFile,
    length_undecided,
    readable_file,
)
from paxosblock.client.reading.prefetch import REQUEST_BYTES, Prefetcher
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.errors import InvalidRequestError, NotFoundError, UnavailableError

_log = logging.getLogger(__name__)


class AsyncFileReader:
    """A file as it was when it was opened; made by `AsyncClient.open`.

    Its length is linearizable: everything that was flushed before `open` was called is there. What
    is written later is not (see `AsyncClient.follow`). Reading past the end gives `b""`.

    While `undecided` is not "", the length of the last block is not known, and only the first
    `decided_size` bytes are here. They are read as usual, and a read that would go beyond them
    returns what there is up to there. The next one waits for the length, for the client's
    `retry_for_s`, and goes on or raises UnavailableError: `b""` is always the end of the file.

    When the file is truncated, reads go on with its old content as long as that is still there;
    after that they raise TruncatedError. They never return a mixture of two states of the file.

    Reads that are begun side by side run one after the other, each from where the one before it
    ended; only `pread` runs beside others.
    """

    def __init__(
        self, session: SharedSession, path: str, found: ReadableFile, consistency: Consistency
    ) -> None:
        """Read what was `found`; ask for an undecided length as `consistency` says."""
        self.path = path
        self.status: FileStatus = found.status
        self._session = session
        self._consistency = consistency
        self._undecided = found.undecided
        self._blocks = self._blocks_of(found)
        self._position = 0
        self._ahead: Prefetcher | None = None
        self._lock = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._closed = False
        if self._undecided:
            _log.warning("%s", self._too_short())

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        least = "at least " if self._undecided else ""
        size = f"{least}{self.decided_size}"
        return f"<AsyncFileReader {self.path!r} {state} at {self._position} of {size}>"

    @property
    def size(self) -> int:
        """Length of the file in bytes when it was opened.

        Raises:
            UnavailableError: it is not decided (see `undecided`); `await decide()` waits for it.
        """
        if self._undecided:
            raise self._too_short()
        return self.decided_size

    @property
    def undecided(self) -> str:
        """Return why the file's length is not known, "" when it is known."""
        return self._undecided

    @property
    def decided_size(self) -> int:
        """Return how many bytes can be read for sure: `size`, unless the length is `undecided`."""
        return self._blocks.size_bytes

    async def decide(self, offset: int | None = None) -> int:
        """Return the length of the file in bytes; wait for it if it is `undecided`. With an
        `offset`, wait only until it is decided whether the file has that byte.

        Raises:
            UnavailableError: too few replicas of the last block answered for `retry_for_s`.
            NotFoundError: the file was deleted or replaced meanwhile.
        """
        offset = sys.maxsize if offset is None else offset
        if self._undecided and offset >= self.decided_size:
            async with self._looking:
                if self._undecided and offset >= self.decided_size:
                    self._adopt(await readable_file(self._session, self.path, self._consistency))
            if self._undecided and offset >= self.decided_size:
                raise self._too_short()
        return self.decided_size

    @property
    def closed(self) -> bool:
        """True if `close` was called."""
        return self._closed

    async def close(self) -> None:
        """Stop fetching."""
        self._closed = True
        self._forget_ahead()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def tell(self) -> int:
        """Return where the next `read` begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to `offset` from the start, the position or the end; return the new position.

        Raises:
            InvalidRequestError: the position would be negative, or `whence` is none of the three.
            UnavailableError: from the end, which is not decided (see `size`).
        """
        self._check_open()
        match whence:
            case io.SEEK_SET:
                position = offset
            case io.SEEK_CUR:
                position = self._position + offset
            case io.SEEK_END:
                position = self.size + offset
            case _:
                raise InvalidRequestError(
                    f"whence {whence}: write 0 (start), 1 (position) or 2 (end)"
                )
        if position < 0:
            raise InvalidRequestError(f"'{self.path}': negative position {position}")
        self._position = position
        return position

    async def read(self, size: int = -1) -> bytes:
        """Read the next `size` bytes, fewer only at the end or at `decided_size`; with -1 all that
        is left, never less.

        Raises:
            CorruptionError: all replicas of a block are damaged; nothing damaged is returned.
            UnavailableError: no replica could serve it in time, or it is not known whether there is
                more (see `undecided`). The position stays.
            NotFoundError: the file was deleted or replaced.
            TruncatedError: it was truncated after it was opened.
        """
        self._check_open()
        if size:
            await self.decide(self._position if size > 0 else sys.maxsize)
        left = max(0, self.decided_size - self._position)
        into = bytearray(left if size < 0 else min(size, left))
        done = await self.readinto(into)
        return bytes(memoryview(into)[:done])

    async def readinto(self, buffer: Buffer) -> int:
        """Fill `buffer` with the next bytes; return how many, fewer than fit only at the end or
        at `decided_size`.

        Raises: as `read`.
        """
        self._check_open()
        into = memoryview(buffer).cast("B")
        async with self._lock:
            if not into or await self._at_end():
                return 0
            done = await self._sequential().readinto(into)
            self._position += done
            return done

    async def pread(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` on, fewer only at the end; the position stays.

        Raises:
            InvalidRequestError: a negative offset or size.
            Others: as `read`; a range whose end is `undecided` gives nothing.
        """
        self._check_open()
        if offset < 0 or size < 0:
            raise InvalidRequestError(f"'{self.path}': pread({offset}, {size}) is negative")
        if size and self._undecided:
            await self.decide(offset + size - 1)
        into = memoryview(bytearray(max(0, min(size, self.decided_size - offset))))
        if len(into) <= REQUEST_BYTES:
            await self._blocks.fill(offset, into)
        else:
            stop = offset + len(into)
            ahead = self._prefetcher(offset, stop, eager=True)
            try:
                await ahead.readinto(into)
            finally:
                ahead.cancel()
        return bytes(into)

    async def next_piece(self) -> memoryview:
        """Return the next bytes as they were received, without a copy; empty at the end.

        A piece has at most 4 MiB (or one chunk, if that is more) and stays valid while it is held.

        Raises: as `read`.
        """
        self._check_open()
        async with self._lock:
            if await self._at_end():
                return memoryview(b"")
            piece = await self._sequential().next_piece()
            self._position += len(piece)
            return piece

    async def pieces(self) -> AsyncIterator[memoryview]:
        """Yield the rest of the file, piece by piece (see `next_piece`)."""
        while piece := await self.next_piece():
            yield piece

    async def _at_end(self) -> bool:
        """True at the end of the file, which is not the end of what is decided."""
        await self.decide(self._position)
        return self._position >= self.decided_size

    def _adopt(self, found: ReadableFile) -> None:
        """Go on with a later look at the file, which begins with what was decided before."""
        if found.status.file_id != self.status.file_id:
            raise NotFoundError(f"'{self.path}': was replaced by another file", path=self.path)
        check_same(self.status, found.status)
        if found.decided_bytes < self.decided_size:
            raise taken_back(self.path, self.decided_size)
        self._undecided = found.undecided
        self._blocks = self._blocks_of(found)

    def _blocks_of(self, found: ReadableFile) -> Blocks:
        return Blocks(self._session, found.status, found.extents, found.decided_bytes)

    def _too_short(self) -> UnavailableError:
        return length_undecided(self.path, self._undecided, self.decided_size)

    def _sequential(self) -> Prefetcher:
        """Return the prefetcher that stands at our position."""
        ahead = self._ahead
        if ahead is None or ahead.position != self._position or ahead.at_stop:
            self._forget_ahead()
            ahead = self._ahead = self._prefetcher(self._position, self.decided_size)
        return ahead

    def _prefetcher(self, start: int, stop: int, *, eager: bool = False) -> Prefetcher:
        ahead_bytes = self._session.config.prefetch_size
        return Prefetcher(self._blocks, start, stop, ahead_bytes, eager=eager)

    def _forget_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequestError(f"'{self.path}': the file is closed")

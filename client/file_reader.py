"""Files being read: positions, sizes and pieces over blocks."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Self

from paxosblock.client.chunks import Buffer
from paxosblock.client.length import Snapshot
from paxosblock.client.prefetch import REQUEST_BYTES, Blocks, Prefetcher
from paxosblock.client.session import Session
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode_api import FileStatus


class AsyncFileReader:
    """A file as it was when it was opened; made by `AsyncClient.open`.

    Its length is linearizable: everything that was flushed before `open` was called is there. What
    is written later is not (see `AsyncClient.follow`). Reading past the end gives `b""`.

    Reads that are begun side by side are answered one after the other, each from where the one
    before it ended; only `pread` runs beside others.
    """

    def __init__(self, session: Session, path: str, snapshot: Snapshot) -> None:
        self.path = path
        self.status: FileStatus = snapshot.status
        self._blocks = Blocks(session, snapshot.extents)
        self._ahead_bytes = session.config.prefetch_bytes
        self._position = 0
        self._ahead: Prefetcher | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<AsyncFileReader {self.path!r} {state} at {self._position} of {self.size}>"

    @property
    def size(self) -> int:
        """Length of the file in bytes when it was opened."""
        return self._blocks.size_bytes

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
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
        """Where the next `read` begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to `offset` from the start, the position or the end; return the new position.

        Raises:
            InvalidRequestError: the position would be negative, or `whence` is none of the three.
        """
        self._check_open()
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}
        if whence not in bases:
            raise InvalidRequestError(f"whence {whence}: write 0 (start), 1 (position) or 2 (end)")
        position = bases[whence] + offset
        if position < 0:
            raise InvalidRequestError(f"'{self.path}': negative position {position}")
        self._position = position
        return position

    async def read(self, size: int = -1) -> bytes:
        """The next `size` bytes, fewer only at the end; with -1 all that is left.

        Raises:
            CorruptionError: all replicas of a block are damaged; nothing damaged is returned.
            UnavailableError: no replica could serve it in time.
        """
        self._check_open()
        left = max(0, self.size - self._position)
        into = bytearray(left if size < 0 else min(size, left))
        done = await self.readinto(into)
        return bytes(memoryview(into)[:done])

    async def readinto(self, buffer: Buffer) -> int:
        """Fill `buffer` with the next bytes; return how many, fewer than fit only at the end.

        Raises: as `read`.
        """
        self._check_open()
        into = memoryview(buffer).cast("B")
        async with self._lock:
            if not into or self._position >= self.size:
                return 0
            done = await self._sequential().readinto(into)
            self._position += done
            return done

    async def pread(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` on, fewer only at the end; the position stays.

        Raises:
            InvalidRequestError: a negative offset or size.
            Others: as `read`.
        """
        self._check_open()
        if offset < 0 or size < 0:
            raise InvalidRequestError(f"'{self.path}': pread({offset}, {size}) is negative")
        into = memoryview(bytearray(max(0, min(size, self.size - offset))))
        if len(into) <= REQUEST_BYTES:
            await self._blocks.fill(offset, into)
        else:
            stop = offset + len(into)
            ahead = Prefetcher(self._blocks, offset, stop, self._ahead_bytes, eager=True)
            try:
                await ahead.readinto(into)
            finally:
                ahead.cancel()
        return bytes(into)

    async def next_piece(self) -> memoryview:
        """The next bytes as they were received, without a copy; empty at the end.

        A piece has at most 2 MiB (or one chunk, if that is more) and stays valid while it is held.

        Raises: as `read`.
        """
        self._check_open()
        async with self._lock:
            if self._position >= self.size:
                return memoryview(b"")
            piece = await self._sequential().next_piece()
            self._position += len(piece)
            return piece

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        """The rest of the file, piece by piece (see `next_piece`)."""
        while piece := await self.next_piece():
            yield piece

    def _sequential(self) -> Prefetcher:
        """The prefetcher that stands at our position."""
        if self._ahead is None or self._ahead.position != self._position:
            self._forget_ahead()
            self._ahead = Prefetcher(self._blocks, self._position, self.size, self._ahead_bytes)
        return self._ahead

    def _forget_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequestError(f"'{self.path}': the file is closed")

"""The blocks that the bytes of a file are in, as far as a reader asks for them.

A reader holds the file's id and its length as it was when it was opened, some pages of its blocks,
and always the last block. It asks for other pages by that id. They cannot contradict what it holds:
in the file with this id no byte below that length changes, nor the place of one, as long as the
file is there and is not truncated. Blocks are finalized before another one follows them, only the
last one is opened again, which keeps its bytes, and concat moves blocks of other files behind them.
The status in each page shows that a file was truncated, and a block's record that it was cut.
"""

from __future__ import annotations

import asyncio
import bisect
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final

from paxosblock.api.namenode import FileStatus
from paxosblock.client.reading.block_reader import BlockReader, Extent, page_of
from paxosblock.client.reading.length import ReadableFile, decided
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.errors import ProtocolError

PAGES_KEPT: Final = 8
"""Pages of a file of many blocks, besides the first page and the last block."""
READERS_KEPT: Final = 64
"""Each knows which replica of its block has checked what it read, and takes little memory."""


class _Page:
    """Extents in order, maybe with gaps between them; those without a byte are left out."""

    def __init__(self, extents: Sequence[Extent]) -> None:
        self._extents = [extent for extent in extents if extent.size_bytes]
        self._ends = [extent.end for extent in self._extents]

    def at(self, offset: int) -> Extent | None:
        """Return the extent that holds byte `offset` of the file, None when it is none of these."""
        index = bisect.bisect_right(self._ends, offset)
        if index == len(self._ends) or self._extents[index].offset > offset:
            return None
        return self._extents[index]


class Blocks:
    """The blocks of the first `size_bytes` bytes of a file; finds the one that holds an offset."""

    def __init__(
        self, session: SharedSession, file: FileStatus, extents: Sequence[Extent], size_bytes: int
    ) -> None:
        """`extents` are those that are known; the last one of them reaches up to `size_bytes`, or
        what is not known is finalized.
        """
        self.size_bytes = size_bytes
        self.chunk_bytes = session.config.chunk_size
        """Size of the chunks of a block that nothing was read of, as far as it is known."""
        self._session = session
        self._file = file
        self._known = _Page(extents)
        self._pages: deque[_Page] = deque(maxlen=PAGES_KEPT)
        self._readers: dict[int, BlockReader] = {}
        self._fetching = asyncio.Lock()

    def known(self, offset: int) -> BlockReader | None:
        """Return the reader of the block with byte `offset`, None when its page is not here."""
        for page in (self._known, *self._pages):
            extent = page.at(offset)
            if extent is not None:
                return self._reader(extent)
        return None

    async def at(self, offset: int) -> BlockReader:
        """Return the reader of the block that holds byte `offset` of the file.

        Raises:
            NotFoundError: the page is not here, and the file was deleted or joined to another.
            TruncatedError: the page is not here, and the file was truncated.
            UnavailableError: no NameNode answered within the client's `retry_for_s`.
        """
        reader = self.known(offset)
        if reader is None:
            async with self._fetching:  # those that wait want the same page, as a rule
                reader = self.known(offset) or await self._fetch(offset)
        return reader

    async def fill(self, offset: int, into: memoryview) -> None:
        """Fill `into` from byte `offset` of the file on; all of it lies in the file."""
        done = 0
        while done < len(into):
            reader = await self.at(offset + done)
            extent = reader.extent
            size = min(len(into) - done, extent.end - offset - done)
            await reader.fetch(offset + done - extent.offset, into[done : done + size])
            done += size

    async def _fetch(self, offset: int) -> BlockReader:
        assert offset < self.size_bytes, "only bytes that the file has are looked for"
        view = await page_of(self._session, self._file, offset=offset)
        self._pages.append(_Page(await decided(self._session, view)))
        reader = self.known(offset)
        if reader is None:
            raise ProtocolError(f"'{self._file.path}': no finalized block holds byte {offset}")
        return reader

    def _reader(self, extent: Extent) -> BlockReader:
        reader = self._readers.get(extent.block)
        if reader is None:
            # They cost little to make again: keep those that are in use.
            if len(self._readers) > READERS_KEPT:
                self._readers.clear()
            reader = self._readers[extent.block] = BlockReader(self._session, extent, self._file)
        return reader


async def all_extents(
    session: SharedSession, found: ReadableFile, offset: int = 0
) -> AsyncIterator[Extent]:
    """Yield the blocks of a file `found` whole, in order; those before `offset` may be missing.

    Raises:
        NotFoundError: the file was deleted or joined to another while its pages were asked for.
        TruncatedError: it was truncated meanwhile.
    """
    assert not found.undecided, "it was found whole"
    if not found.extents:
        return
    *page, tail = found.extents
    following = found.next_place
    if following is not None and page and offset >= page[-1].end:
        view = await page_of(session, found.status, offset=offset)
        page, following = await decided(session, view), view.next_place
    while True:
        for extent in page:
            if extent.block == tail.block or extent.end > tail.offset:
                yield tail  # what was added since is behind it
                return
            yield extent
        if following is None:
            yield tail
            return
        view = await page_of(session, found.status, place=following)
        page, following = await decided(session, view), view.next_place

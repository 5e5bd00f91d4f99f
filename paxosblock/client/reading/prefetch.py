"""Reading ahead: several requests under way, their bytes in order."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from paxosblock.base.units import MIB
from paxosblock.client.reading.file_blocks import Blocks
from paxosblock.net.streams.buffers import BufferPool

REQUEST_BYTES: Final = 4 * MIB
"""About how much one request asks for."""
MOST_BUFFERS: Final = 6


@dataclass(slots=True)
class _PrefetchBuffer:
    """A buffer that is being filled, or was."""

    buffer: memoryview
    task: asyncio.Task[None]
    used: int = 0


class Prefetcher:
    """The bytes [start, stop) of a file in order.

    At most `ahead_bytes`, but at least one request, are under way or wait to be used. It begins
    with one chunk and looks twice as far ahead after each piece that was used up, so that a reader
    of a few bytes fetches few; `eager` begins with all of it.
    """

    def __init__(
        self, blocks: Blocks, start: int, stop: int, ahead_bytes: int, *, eager: bool = False
    ) -> None:
        self.position = start
        self._blocks = blocks
        self._planned = start
        self._stop = stop
        self._most_bytes = max(1, ahead_bytes)
        self._ahead_bytes = self._most_bytes if eager else 1
        self._pieces: deque[_PrefetchBuffer] = deque()
        self._buffers = BufferPool(MOST_BUFFERS)

    @property
    def at_stop(self) -> bool:
        """True when it has given all of its range."""
        return self.position >= self._stop

    async def readinto(self, into: memoryview) -> int:
        """Copy the next bytes; at least one unless this is the end."""
        done = 0
        while done < len(into):
            piece = await self._front()
            if piece is None:
                break
            taken = piece.buffer[piece.used : piece.used + len(into) - done]
            into[done : done + len(taken)] = taken
            done += len(taken)
            self._advance(piece, len(taken))
        return done

    async def next_piece(self) -> memoryview:
        """Give the next bytes away as they lie in the buffer; empty at the end."""
        piece = await self._front()
        if piece is None:
            return memoryview(b"")
        taken = piece.buffer[piece.used :]
        self._advance(piece, len(taken))
        return taken

    def cancel(self) -> None:
        """Stop fetching."""
        for piece in self._pieces:
            piece.task.cancel()
        self._pieces.clear()

    async def _front(self) -> _PrefetchBuffer | None:
        self._plan()
        if not self._pieces:
            assert self.at_stop, "what is not fetched yet is no end"
            return None
        piece = self._pieces[0]
        if not piece.task.done():
            await asyncio.wait([piece.task])
        error = piece.task.exception()
        if error is not None:
            # What is asked for next is fetched again.
            self.cancel()
            self._planned = self.position
            raise error
        return piece

    def _plan(self) -> None:
        reader = self._blocks.known(self._planned)
        # What the system has in memory would only leave the processor's cache until it is used.
        reach = 1 if reader is not None and reader.at_once else self._ahead_bytes
        while self._planned < min(self._stop, self.position + reach):
            stop = self._end_of_request(self._planned)
            buffer = self._buffers.take(stop - self._planned)
            task = asyncio.create_task(self._blocks.fill(self._planned, buffer))
            task.add_done_callback(_ignore_error)  # a call that reads so far raises it
            self._pieces.append(_PrefetchBuffer(buffer, task))
            self._planned = stop

    def _end_of_request(self, start: int) -> int:
        """Return the end of a request: that of a chunk, as far as can be known, or of its block."""
        reader = self._blocks.known(start)
        chunk = self._blocks.chunk_bytes if reader is None else reader.chunk_bytes
        stride = max(1, min(REQUEST_BYTES, self._ahead_bytes) // chunk) * chunk
        if reader is None:  # this request fetches the page, too
            return min(start + stride, self._stop)
        extent, into = reader.extent, start - reader.extent.offset
        return min(extent.offset + (into // stride + 1) * stride, extent.end, self._stop)

    def _advance(self, piece: _PrefetchBuffer, size: int) -> None:
        piece.used += size
        self.position += size
        if piece.used == len(piece.buffer):
            self._pieces.popleft()
            self._ahead_bytes = min(max(self._ahead_bytes, len(piece.buffer)) * 2, self._most_bytes)
            self._plan()


def _ignore_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()

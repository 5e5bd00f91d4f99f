"""Gives a range of a file out, piece by piece as the DataNodes send it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from paxosblock.client.reading.file_reader import AsyncFileReader


async def pieces_of(reader: AsyncFileReader, start: int, length: int) -> AsyncIterator[memoryview]:
    """Yield `length` bytes from `start` on, which the file must have.

    Raises: as `AsyncFileReader.read`, in the middle, too.
    """
    reader.seek(start)
    left = length
    while left:
        piece = (await reader.next_piece())[:left]
        assert piece, "the file was so long when it was opened"
        left -= len(piece)
        yield piece

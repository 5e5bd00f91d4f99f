"""Checksums of pieces of chunks that were checked lately: a part is served without the rest.

A chunk has one checksum, so reading a few bytes of it means reading all. But once it was read and
found good, checksums of its pieces can check these from then on. They belong to the name of the
chunk, not to a file: any file with a chunk of that name has the same bytes.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from typing import Final, NamedTuple

from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.base.units import KIB
from paxosblock.protocol.types import BlockId, ChunkName

PIECE_BYTES: Final = 16 * KIB
WORTH_BYTES: Final = 4 * PIECE_BYTES
"""A chunk that is shorter is read whole."""
MOST_PIECES: Final = 512 * 1024
"""So many are remembered: those of 8 GiB of chunks take some megabytes."""


class Around(NamedTuple):
    """Whole pieces, where in the chunk they are, and the checksum of each."""

    span: range
    sums: array[int]

    def are_good(self, data: memoryview) -> bool:
        """True if `data`, the bytes in the span, are what they were."""
        starts = range(0, len(self.span), PIECE_BYTES)
        return all(
            crc32c(data[at : at + PIECE_BYTES]) == crc
            for at, crc in zip(starts, self.sums, strict=True)
        )


class CheckedPieces:
    """The pieces of the chunks that were read last in part."""

    def __init__(self) -> None:
        self._sums: OrderedDict[tuple[BlockId, ChunkName], array[int]] = OrderedDict()
        self._count = 0

    def remember(self, block: BlockId, name: ChunkName, data: Buffer) -> None:
        """Remember the pieces of `data`, the user data of a chunk that was just checked."""
        key = block, name
        if name.size_bytes < WORTH_BYTES or key in self._sums:
            return
        view = memoryview(data)
        assert len(view) == name.size_bytes, "all of the chunk"
        starts = range(0, len(view), PIECE_BYTES)
        self._sums[key] = array("I", [crc32c(view[at : at + PIECE_BYTES]) for at in starts])
        self._count += len(starts)
        while self._count > MOST_PIECES:
            self._count -= len(self._sums.popitem(last=False)[1])

    def around(self, block: BlockId, name: ChunkName, wanted: range) -> Around | None:
        """Return the pieces that cover the bytes `wanted`; None if they are not known, or make up
        most of the chunk, or these are not bytes of it.
        """
        key = block, name
        sums = self._sums.get(key)
        is_part = 0 < 2 * len(wanted) <= name.size_bytes and wanted.stop <= name.size_bytes
        if sums is None or not is_part:
            return None
        self._sums.move_to_end(key)
        first, stop = wanted.start // PIECE_BYTES, (wanted.stop - 1) // PIECE_BYTES + 1
        span = range(first * PIECE_BYTES, min(stop * PIECE_BYTES, name.size_bytes))
        return Around(span, sums[first:stop])

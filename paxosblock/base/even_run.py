"""Runs of short chunks that are equally long, as a log of small appends has them.

A step of Python for each chunk takes several times as long as the checksum of its bytes. Here a run
is checked with a few calls for many chunks: CRC32C is linear, so that the expected checksums of the
single chunks give the expected checksum of all together.
"""

from __future__ import annotations

import functools
import struct
from typing import Final, NamedTuple

from paxosblock.base.checksum import crc32c
from paxosblock.base.units import KIB
from paxosblock.protocol.chunk_log import ENTRY_BYTES

AT_LEAST: Final = 16
"""Fewer chunks are not worth it."""
SHORT_BYTES: Final = 8 * KIB
"""The checksum of a chunk that is longer costs more than the step for it."""
TOGETHER_BYTES: Final = 256 * KIB
"""Bytes to check at a time, as many as stay in the processor's cache."""
_CRC_BYTES: Final = 4
_CRC_AT: Final = ENTRY_BYTES - _CRC_BYTES
_END = struct.Struct("<Q")
_LAST_CRC = struct.Struct("<I")


class EvenRun(NamedTuple):
    """The first `chunks` of a run, each of `size_bytes` of user data; none if it is not even.

    `names` are those of the run, as `ChunkLog.entries` returns them.
    """

    chunks: int
    size_bytes: int
    names: bytes

    @classmethod
    def of(cls, names: bytes, offset: int) -> EvenRun:
        """Return all chunks but the last one if they are short and equally long, else none.

        `names` are whole entries; the run begins at `offset` of its block.
        """
        count = len(names) // ENTRY_BYTES - 1
        if count >= AT_LEAST:
            size = _END.unpack_from(names)[0] - offset
            middle = count // 2  # most that are not even are found out here
            is_even = (
                _CRC_BYTES <= size <= SHORT_BYTES
                and _END.unpack_from(names, middle * ENTRY_BYTES)[0] == offset + (middle + 1) * size
                and _ends_format(count).unpack_from(names)
                == (*range(offset + size, offset + count * size + 1, size),)
            )
            if is_even:
                return cls(count, size, names)
        return cls(0, 0, names)

    def is_good(self, data: memoryview, header_bytes: int = 0, mark: int = 0) -> bool:
        """True if `data` begins with what the names say.

        In front of the user data of each chunk there are `header_bytes`. `mark` is what the CRC32C
        of both together differs by, bit by bit, from that of the user data alone.
        """
        stride = header_bytes + self.size_bytes
        most = TOGETHER_BYTES // stride
        spread = bytearray(most * stride)
        for first in range(0, self.chunks, most):
            stop = min(first + most, self.chunks)
            names = self.names[first * ENTRY_BYTES : stop * ENTRY_BYTES]
            joined = _joined(names, stride, spread) ^ _rest(stop - first, stride, mark)
            if crc32c(data[first * stride : stop * stride]) != joined:
                return False
        return True


@functools.lru_cache(16)
def _ends_format(count: int) -> struct.Struct:
    """Return what reads where each of so many chunks ends."""
    return struct.Struct("<" + f"Q{_CRC_BYTES}x" * count)


def _joined(names: bytes, stride: int, spread: bytearray) -> int:
    """Return the CRC32C of pieces of `stride` bytes, side by side, but for `_rest`.

    To put zeros behind bytes does to their CRC32C what any other bytes of that length do, apart
    from adding their own. So a checksum counts at the end of all pieces as it does when it stands
    where the next piece begins, and zeros follow. `spread` has room for all; between its checksums
    there is nothing but zeros.
    """
    size = (len(names) // ENTRY_BYTES - 1) * stride
    for byte in range(_CRC_BYTES):
        spread[byte:size:stride] = names[_CRC_AT + byte : -ENTRY_BYTES : ENTRY_BYTES]
    last: int = _LAST_CRC.unpack_from(names, len(names) - _CRC_BYTES)[0]
    return crc32c(memoryview(spread)[:size]) ^ last


@functools.lru_cache(1024)
def _rest(count: int, stride: int, mark: int) -> int:
    """Return what `_joined` lacks: it depends on no checksum, so that pieces of zeros tell it."""
    name = bytes(_CRC_AT) + _LAST_CRC.pack(crc32c(bytes(stride)) ^ mark)
    return _joined(name * count, stride, bytearray(count * stride)) ^ crc32c(bytes(count * stride))

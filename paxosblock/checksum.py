"""CRC32C of chunks: the name of a chunk's bytes in every vote.

The `crc32c` package runs at memory speed and takes any buffer without a copy; see
docs/dependencies.md for what was considered instead.
"""

from __future__ import annotations

from typing import Final, Protocol

import crc32c as _crc32c

Buffer = bytes | bytearray | memoryview
"""Types in which bytes come in."""


class _Checksum(Protocol):
    def __call__(self, data: Buffer, value: int = 0, /) -> int: ...


crc32c: Final[_Checksum] = _crc32c.crc32c
"""CRC32C (Castagnoli) of `data`, an unsigned 32-bit integer; 0 for no bytes.

`value` is the CRC of the bytes before `data`, to checksum a buffer in pieces.
"""

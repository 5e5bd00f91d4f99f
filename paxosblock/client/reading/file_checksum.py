"""The checksum of a file as HDFS tells it: the MD5 of the MD5s of its blocks' CRCs."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import AsyncIterator, Iterable
from typing import Final

import msgspec

from paxosblock.base.checksum import Buffer, crc32c

CRC_BYTES: Final = 512
"""Bytes that one CRC is of: HDFS's `dfs.bytes-per-checksum`."""
_LEAST_BYTES: Final = 32
"""HDFS takes the MD5 of the whole buffer that it has put the MD5s of the blocks into. That begins
with so many bytes, zero where nothing was put, and doubles when it is full."""


class FileChecksum(msgspec.Struct, frozen=True):
    """A checksum and how it was made; files with the same bytes and ends of blocks have the same.

    `text` is `hdfs dfs -checksum`'s: in hexadecimal, after the bytes of each CRC and the CRCs of
    each block.
    """

    algorithm: str
    text: str


class _BlockSum:
    """The MD5 of the CRCs of a block."""

    def __init__(self) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._rest = b""

    def add(self, data: Buffer) -> None:
        """Take the next bytes."""
        view = memoryview(self._rest + bytes(data) if self._rest else data)
        whole = len(view) - len(view) % CRC_BYTES
        sums = [crc32c(view[at : at + CRC_BYTES]) for at in range(0, whole, CRC_BYTES)]
        self._md5.update(struct.pack(f">{len(sums)}I", *sums))
        self._rest = bytes(view[whole:])

    def digest(self) -> bytes:
        """Return the MD5 of the block, once all of it was taken."""
        if self._rest:
            self._md5.update(struct.pack(">I", crc32c(self._rest)))
        return self._md5.digest()


async def file_checksum(
    pieces: AsyncIterator[memoryview], ends: Iterable[int], block_size: int
) -> FileChecksum:
    """Return the checksum of the bytes of a file whose blocks end at `ends`."""
    left = iter(ends)
    begin, place, end = 0, 0, next(left, None)
    block, digests = _BlockSum(), b""
    async for piece in pieces:
        rest = piece
        while rest:
            here = rest if end is None else rest[: end - place]
            block.add(here)
            place, rest = place + len(here), rest[len(here) :]
            if place == end:
                digests += block.digest()
                block, begin, end = _BlockSum(), place, next(left, None)
    if place > begin:  # the file has grown since it was opened
        digests += block.digest()
    return _made(digests, block_size)


def _made(digests: bytes, block_size: int) -> FileChecksum:
    size = _LEAST_BYTES
    while size < len(digests):
        size *= 2
    md5 = hashlib.md5(digests.ljust(size, b"\0"), usedforsecurity=False).hexdigest()
    blocks = len(digests) // hashlib.md5(usedforsecurity=False).digest_size
    if not blocks:
        return FileChecksum("MD5-of-0MD5-of-0CRC32", f"{0:08x}{0:016x}{md5}")
    crcs = block_size // CRC_BYTES if blocks > 1 else 0
    return FileChecksum(
        f"MD5-of-{crcs}MD5-of-{CRC_BYTES}CRC32C", f"{CRC_BYTES:08x}{crcs:016x}{md5}"
    )

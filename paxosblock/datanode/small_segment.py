"""A segment of the log of small replicas as bytes (FORMAT.md 8): writing, reading, torn or damaged.

A segment gets its name when its header is durable, and is only ever appended to. What a crash left
at its end is told from damage by three things: whether the process that wrote it lived in this boot
of the machine, for then the system has all it was given; a later record, which says up to where the
segment had been durable; and the next segment, which says where this one ended.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from paxosblock.checksum import Buffer, crc32c
from paxosblock.errors import CorruptionError
from paxosblock.formats import FROM_A_SNAPSHOT, refuse_later_magic
from paxosblock.protocol.types import BlockId

MAGIC: Final = b"PXL1"
SALT_BYTES: Final = 8
_SEGMENT: Final = struct.Struct("<4s8s64s")
_RECORD: Final = struct.Struct("<8sB3xIQQI")
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _SEGMENT.size + _CRC.size
RECORD_BYTES: Final = _RECORD.size + _CRC.size


class Kind(enum.IntEnum):
    """The things that a record says of its block."""

    PREVIOUS = 0
    """Nothing: that the segment before had so many bytes (u64). The first of each segment."""
    CREATED = 1
    """It is a replica that is being written. The payload is its metadata."""
    CHUNK = 2
    """The payload is its one chunk: the frame from the wire."""
    FINALIZED = 3
    """It is finalized. The payload: segment and offset of its chunk's record, its metadata."""
    GONE = 4
    """It is no more here: deleted, or in files of its own."""
    MARK = 5
    """Nothing. It tells what is durable, as every record does."""


class Position(NamedTuple):
    """The place of a record."""

    segment: int
    offset: int


class Record(NamedTuple):
    """A record of a segment; `payload` is None if those bytes are not what was written."""

    kind: Kind
    block: BlockId
    offset: int
    payload: memoryview | None
    size: int
    """Bytes of the payload."""

    @property
    def end(self) -> int:
        return self.offset + RECORD_BYTES + self.size


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The beginning of a segment: whose bytes follow."""

    salt: bytes
    boot: str

    def encode(self) -> bytes:
        packed = _SEGMENT.pack(MAGIC, self.salt, self.boot.encode()[:64])
        return packed + _CRC.pack(crc32c(packed))


def decode_header(name: str, data: Buffer) -> SegmentHeader:
    """Return the header of the segment `name` that begins with `data`.

    Raises:
        ConfigError: a later version wrote it.
        CorruptionError: it is damaged.
    """
    view = memoryview(data)
    packed = view[: _SEGMENT.size]
    if len(view) < HEADER_BYTES or _CRC.unpack_from(view, _SEGMENT.size)[0] != crc32c(packed):
        raise damaged(name, 0)
    magic, salt, boot = _SEGMENT.unpack(packed)
    refuse_later_magic(name, magic, MAGIC, FROM_A_SNAPSHOT)
    if magic != MAGIC:
        raise damaged(name, 0)
    return SegmentHeader(salt, boot.rstrip(b"\0").decode("utf-8", "replace"))


def encode_record(salt: bytes, kind: Kind, block: BlockId, payload: Buffer, durable: int) -> bytes:
    """Return the record; `durable` is the offset up to which the segment is on stable storage."""
    packed = _RECORD.pack(salt, kind, len(payload), block, durable, crc32c(payload))
    return b"".join((packed, _CRC.pack(crc32c(packed)), payload))


def read_records(name: str, data: bytes, *, end: int | None, same_boot: bool) -> Iterator[Record]:
    """Yield the records of the segment `name`.

    Args:
        end: where it ended, as the next segment says; None: it is the last one.
        same_boot: the machine did not crash since it was written.

    Raises:
        CorruptionError: it is damaged, and nobody knows of which block.
    """
    salt, offset = decode_header(name, data).salt, HEADER_BYTES
    view = memoryview(data)
    stop = len(data) if end is None else end
    while offset < stop:
        found = _head(data, offset, salt)
        if found is None or offset + RECORD_BYTES + found[1] > stop:
            if end is None and not _was_durable(data, offset, salt, same_boot=same_boot):
                return
            found = _mended(data, offset, salt)
            if found is None or offset + RECORD_BYTES + found[1] > stop:
                raise damaged(name, offset)
        kind, size, block, _, crc = found
        payload: memoryview | None = view[offset + RECORD_BYTES : offset + RECORD_BYTES + size]
        # Old chunks are checked when they are read: there may be very many.
        if (kind is not Kind.CHUNK or end is None) and crc32c(payload or b"") != crc:
            if end is None and not _was_durable(data, offset, salt, same_boot=same_boot):
                return
            payload = None
        yield Record(kind, block, offset, payload, size)
        offset += RECORD_BYTES + size


def record_size(data: bytes, salt: bytes) -> tuple[int, int]:
    """Return size and checksum of the payload whose record begins with `data`; (0, 1), which no
    payload has, if that is damaged."""
    found = _head(data, 0, salt)
    return (0, 1) if found is None else (found[1], found[4])


def _head(data: bytes, offset: int, salt: bytes) -> tuple[Kind, int, BlockId, int, int] | None:
    """Return kind, size, block, durable and checksum of the record at `offset`, if one is there."""
    end = offset + _RECORD.size
    if end + _CRC.size > len(data) or data[offset : offset + SALT_BYTES] != salt:
        return None
    if _CRC.unpack_from(data, end)[0] != crc32c(memoryview(data)[offset:end]):
        return None
    _, kind, size, block, durable, crc = _RECORD.unpack_from(data, offset)
    return Kind(kind), size, BlockId(block), durable, crc


def _mended(data: bytes, offset: int, salt: bytes) -> tuple[Kind, int, BlockId, int, int] | None:
    """Return what the head at `offset` said if one bit of it has flipped.

    There is no second way to read it: heads whose checksums are right differ in six bits or more
    (CRC32C, below 5,244 bits). Bytes of another use have another salt.
    """
    head = bytearray(data[offset : offset + RECORD_BYTES])
    for bit in range(8 * len(head)):
        head[bit // 8] ^= 1 << bit % 8
        found = _head(bytes(head), 0, salt)
        if found is not None:
            return found
        head[bit // 8] ^= 1 << bit % 8
    return None


def _was_durable(data: bytes, bad: int, salt: bytes, *, same_boot: bool) -> bool:
    """True if the record at `bad` was there as a whole once, so that no crash has torn it."""
    found = _head(data, bad, salt)
    if same_boot:  # only the last write may be cut short, by the end of the process in it
        cut = len(data) - bad < RECORD_BYTES or (
            found is not None and bad + RECORD_BYTES + found[1] > len(data)
        )
        return not cut
    offset = data.find(salt, bad + 1)
    while offset >= 0:
        later = _head(data, offset, salt)
        if later is not None and later[3] > bad:
            return True
        offset = data.find(salt, offset + 1)
    return False


def damaged(name: str, offset: int) -> CorruptionError:
    """Return the error for a log of which nobody knows what it has promised."""
    return CorruptionError(
        f"{name} is damaged at offset {offset}: it is not known what its replicas have promised"
    )

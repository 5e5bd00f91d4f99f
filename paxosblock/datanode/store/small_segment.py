"""A segment of the log of small replicas as bytes (FORMAT.md 8): writing, reading, torn or damaged.

A segment gets its name when its header is durable, and is only ever appended to. Four things tell
damage from what a crash left at its end: the boot of the machine in which its process lived, for in
this boot the system still has all it was given; a later record, which says up to where the segment
was durable; the mark beside the log, which says the same; and the next segment, which says where
this one ended.
"""

from __future__ import annotations

import enum
import re
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.base.formats import FROM_A_SNAPSHOT, refuse_later_magic
from paxosblock.errors import CorruptionError
from paxosblock.host.disk import FileHandle
from paxosblock.host.durable_mark import MarkFormat
from paxosblock.protocol.types import BlockId

MAGIC: Final = b"PXL1"
SALT_BYTES: Final = 8
_SEGMENT: Final = struct.Struct("<4s8s64s")
_RECORD: Final = struct.Struct("<8sB3xIQQI")
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _SEGMENT.size + _CRC.size
RECORD_BYTES: Final = _RECORD.size + _CRC.size
MARK: Final = "durable"
"""The file that says how far the log is durable: segment and offset, the highest block so far."""
MARK_FORMAT: Final = MarkFormat(
    b"PXLMARK1", struct.Struct("<8sQQQ"), struct.Struct("<I"), FROM_A_SNAPSHOT
)
_NAME: Final = re.compile(r"log_([1-9][0-9]{0,17})")


class SmallSegment:
    """A file of the log. Once it is removed, it is closed as soon as no caller reads it."""

    __slots__ = ("end", "handle", "readers", "salt", "same_boot", "synced")

    def __init__(
        self, handle: FileHandle, salt: bytes, end: int, *, same_boot: bool = True
    ) -> None:
        self.handle = handle
        self.salt = salt
        self.same_boot = same_boot
        """False if the machine crashed since it was written."""
        self.end = end
        self.synced = end
        """The first so many bytes are on stable storage."""
        self.readers = 0


def segment_name(number: int) -> str:
    """Return the name of the file of a segment."""
    return f"log_{number}"


def segment_numbers(names: list[str]) -> list[int]:
    """Return the numbers of the segments among the names of files, in order."""
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


class RecordKind(enum.IntEnum):
    """The things that a record says of its block."""

    PREVIOUS = 0
    """Of no block: the segment before had so many bytes (u64). The first of each segment."""
    CREATED = 1
    """The replica is being written. The payload is its metadata."""
    CHUNK = 2
    """The payload is its one chunk: the frame from the wire."""
    FINALIZED = 3
    """The replica is finalized. The payload: segment and offset of its chunk's record, its
    metadata."""
    GONE = 4
    """The replica is no longer here: it is deleted, or in files of its own."""
    MARK = 5
    """Of no block: it says what is durable, as every record does."""


class RecordPosition(NamedTuple):
    """The place of a record."""

    segment: int
    offset: int


class SmallRecord(NamedTuple):
    """A record of a segment; `payload` is None if those bytes are not what was written."""

    kind: RecordKind
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
    """The beginning of a segment."""

    salt: bytes
    boot: str

    def encode(self) -> bytes:
        packed = _SEGMENT.pack(MAGIC, self.salt, self.boot.encode()[:64])
        return packed + _CRC.pack(crc32c(packed))


def decode_header(name: str, data: Buffer) -> SegmentHeader:
    """Return the header of the segment `name` that begins with `data`.

    If it is damaged, its first record in `data` has the salt, too; the boot is then not known.

    Raises:
        ConfigError: a later version wrote it.
        CorruptionError: it is damaged, and so is its first record.
    """
    view = memoryview(data)
    packed = view[: _SEGMENT.size]
    if len(view) < HEADER_BYTES or _CRC.unpack_from(view, _SEGMENT.size)[0] != crc32c(packed):
        salt = bytes(view[HEADER_BYTES : HEADER_BYTES + SALT_BYTES])
        if _head(bytes(view[: HEADER_BYTES + RECORD_BYTES]), HEADER_BYTES, salt) is None:
            raise damaged(name, 0)
        return SegmentHeader(salt, "")
    magic, salt, boot = _SEGMENT.unpack(packed)
    refuse_later_magic(name, magic, MAGIC, FROM_A_SNAPSHOT)
    if magic != MAGIC:
        raise damaged(name, 0)
    return SegmentHeader(salt, boot.rstrip(b"\0").decode("utf-8", "replace"))


def is_of(header: SegmentHeader, boot: str) -> bool:
    """True if the segment is, or may be, of this boot: then less is taken for torn by a crash."""
    return header.boot in ("", boot)


def encode_record(
    salt: bytes, kind: RecordKind, block: BlockId, payload: Buffer, durable: int
) -> bytes:
    """Return the record; `durable` is the offset up to which the segment is on stable storage."""
    packed = _RECORD.pack(salt, kind, len(payload), block, durable, crc32c(payload))
    return b"".join((packed, _CRC.pack(crc32c(packed)), payload))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The facts about a segment that are told elsewhere."""

    salt: bytes
    end: int | None
    """The offset at which it ended, as the next segment says; None if it is the last one."""
    same_boot: bool = True
    """True if the machine did not crash since it was written."""
    durable: int = 0
    """It was on stable storage up to this offset, as the mark says."""


def read_records(
    name: str, data: bytes, bounds: Bounds, lost: Callable[[int], None] | None = None
) -> Iterator[SmallRecord]:
    """Yield the records of the segment `name`.

    `lost` gets each offset from which on records cannot be read; then those behind them follow.

    Raises:
        CorruptionError: there are such records, and no `lost`.
    """
    salt, end, offset = bounds.salt, bounds.end, HEADER_BYTES
    view = memoryview(data)
    stop = len(data) if end is None else end
    while offset < max(stop, 0 if end is not None else bounds.durable):
        found = _head(data, offset, salt)
        if found is None or offset + RECORD_BYTES + found[1] > stop:
            if end is None and not _was_durable(data, offset, bounds):
                return
            found = _mended(data, offset, salt)
            if found is None or offset + RECORD_BYTES + found[1] > stop:
                if lost is None:
                    raise damaged(name, offset)
                lost(offset)
                offset = _next_head(data, offset, salt)
                continue
        kind, size, block, _, crc = found
        payload: memoryview | None = view[offset + RECORD_BYTES : offset + RECORD_BYTES + size]
        # Chunks of old segments are checked when they are read: there may be very many.
        if (kind is not RecordKind.CHUNK or end is None) and crc32c(payload or b"") != crc:
            if end is None and not _was_durable(data, offset, bounds):
                return
            # Without its end it could not be told what the segment before has lost.
            payload = _mended_payload(payload, crc) if kind is RecordKind.PREVIOUS else None
        yield SmallRecord(kind, block, offset, payload, size)
        offset += RECORD_BYTES + size


def record_size(data: bytes, salt: bytes) -> tuple[int, int]:
    """Return size and checksum of the payload whose record begins with `data`; if more than one bit
    of that is damaged, (0, 1), which no payload has."""
    found = _head(data, 0, salt) or _mended(data, 0, salt)
    return (0, 1) if found is None else (found[1], found[4])


def _head(
    data: bytes, offset: int, salt: bytes
) -> tuple[RecordKind, int, BlockId, int, int] | None:
    """Return kind, size, block, durable and checksum of the record at `offset`, if one is there."""
    end = offset + _RECORD.size
    if end + _CRC.size > len(data) or data[offset : offset + SALT_BYTES] != salt:
        return None
    if _CRC.unpack_from(data, end)[0] != crc32c(memoryview(data)[offset:end]):
        return None
    _, kind, size, block, durable, crc = _RECORD.unpack_from(data, offset)
    return RecordKind(kind), size, BlockId(block), durable, crc


def _mended(
    data: bytes, offset: int, salt: bytes
) -> tuple[RecordKind, int, BlockId, int, int] | None:
    """Return what the head at `offset` said before one bit of it flipped; None if more is damaged.

    Only one head is possible: heads whose checksums are right differ in six bits or more (CRC32C,
    below 5,244 bits). Bytes that were no head of this segment have another salt.
    """
    for head in _flipped(data[offset : offset + RECORD_BYTES]):
        found = _head(head, 0, salt)
        if found is not None:
            return found
    return None


def _mended_payload(payload: memoryview | None, crc: int) -> memoryview | None:
    """Return a short payload as it was before one bit of it flipped; None if more is damaged."""
    for data in _flipped(payload or b""):
        if crc32c(data) == crc:
            return memoryview(data)
    return None


def _flipped(data: bytes | memoryview) -> Iterator[bytes]:
    """Yield `data` with one bit flipped, each bit in turn."""
    changed = bytearray(data)
    for bit in range(8 * len(changed)):
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)
        changed[bit // 8] ^= 1 << bit % 8


def _next_head(data: bytes, bad: int, salt: bytes) -> int:
    """Return the offset of the first sound head behind `bad`; if there is none, the end of all."""
    offset = data.find(salt, bad + 1)
    while offset >= 0 and _head(data, offset, salt) is None:
        offset = data.find(salt, offset + 1)
    return offset if offset >= 0 else sys.maxsize


def _was_durable(data: bytes, bad: int, bounds: Bounds) -> bool:
    """True if the whole record at `bad` was on the disk once, so that no crash has torn it."""
    salt = bounds.salt
    if bad < bounds.durable:
        return True
    found = _head(data, bad, salt)
    if bounds.same_boot:  # only the last write may be cut short, by the end of the process in it
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
    """Return the error for a log whose replicas' promises are not known."""
    return CorruptionError(
        f"{name} is damaged at offset {offset}: it is not known what its replicas have promised"
    )

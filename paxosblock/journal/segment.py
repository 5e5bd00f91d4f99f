"""A segment of a log as bytes: encoding, reading, torn or damaged.

    segment = header, record, record, ...                  all integers little-endian
    header  = magic 8 bytes, number u64, salt 8 bytes, crc32c of these u32,
              number of the segment before u64, boot id 64 bytes, crc32c of all these u32
    record  = salt 8 bytes, kind u8, 3 zeros, payload length u32, key u64, durable u64,
              crc32c of the payload u32,
              crc32c of the record so far u32, payload

A segment gets its name when its header is durable, and is only ever appended to. `durable` is the
offset up to which the segment was on stable storage when the record was written. Four things tell
damage from what a crash left at the end of the log: a later record's `durable`; the mark beside the
log (`durable_mark.py`), which says the same; the next segment, which says where this one ended; and
the boot of the machine in which its process lived, for in this boot the system still has all it was
given. A record before one of these was whole once: it is damaged. Otherwise it was still being
written, and no caller was told that it is there, so it may be left out.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from paxosblock.base.checksum import crc32c
from paxosblock.base.formats import OTHER_VERSION, refuse_later_magic
from paxosblock.errors import ConfigError, CorruptionError

SALT_BYTES: Final = 8
"""The salt is random for each segment, so that no payload can pass for a record of this segment."""
_FIRST: Final = struct.Struct("<8sQ8s")
_REST: Final = struct.Struct("<Q64s")
CRC: Final = struct.Struct("<I")
_FIRST_END: Final = _FIRST.size + CRC.size
HEADER_BYTES: Final = _FIRST_END + _REST.size + CRC.size
RECORD: Final = struct.Struct("<8sB3xIQQI")
RECORD_BYTES: Final = RECORD.size + CRC.size
"""Bytes that a record takes beside its payload."""

PREVIOUS: Final = 0
"""The kind of the first record of each segment but the oldest one: the segment before, whose number
is the key, has so many bytes (u64), and they are durable."""
MARK: Final = 1
"""The kind of a record that only says what is durable, as every record does."""
FIRST_OWN_KIND: Final = 2
"""The kinds from this one on are the owner's."""


@dataclass(frozen=True, slots=True)
class LogFormat:
    """The bytes and words in which one log differs from another one."""

    magic: bytes
    """Of a segment; its last byte is the format."""
    mark_magic: bytes
    way_back: str
    """As in `refuse_later_magic`."""
    is_earlier: Callable[[bytes], bool]
    """True for the beginning of a segment that an earlier version wrote, in another layout."""
    checked_when_read: int | None = None
    """The kind of records whose payload is not checked in a segment that takes no more of them."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The beginning of a segment."""

    number: int
    """0: it is not known."""
    salt: bytes
    previous: int | None
    """The number of the segment before, 0: there was none. None: it is not known."""
    boot: str | None
    """The boot of the machine; None: it is not known."""

    def encode(self, magic: bytes) -> bytes:
        """Return its bytes."""
        first = _FIRST.pack(magic, self.number, self.salt)
        head = first + CRC.pack(crc32c(first))
        head += _REST.pack(self.previous or 0, (self.boot or "").encode()[:64])
        return head + CRC.pack(crc32c(head))


class LogRecord(NamedTuple):
    """A record of a segment; `payload` is None if those bytes are not what was written."""

    kind: int
    key: int
    offset: int
    payload: memoryview | None
    size: int
    """Bytes of the payload."""

    @property
    def end(self) -> int:
        return self.offset + RECORD_BYTES + self.size


class _Head(NamedTuple):
    kind: int
    size: int
    key: int
    durable: int
    crc: int


def decode_header(name: str, data: bytes, form: LogFormat) -> SegmentHeader:
    """Return the header of the segment `name` that begins with `data`.

    If it is damaged, its first record in `data` has the salt, too; the rest is then not known.

    Raises:
        ConfigError: another version wrote it.
        CorruptionError: it is damaged, and so is its first record.
    """
    first = data[: _FIRST.size]
    if len(data) < _FIRST_END or data[_FIRST.size : _FIRST_END] != CRC.pack(crc32c(first)):
        if form.is_earlier(data):
            raise ConfigError(f"{name} {OTHER_VERSION}")
        salt = data[HEADER_BYTES : HEADER_BYTES + SALT_BYTES]
        if _head(data[: HEADER_BYTES + RECORD_BYTES], HEADER_BYTES, salt) is None:
            raise damaged(name, 0)
        return SegmentHeader(0, salt, None, None)
    magic, number, salt = _FIRST.unpack(first)
    refuse_later_magic(name, magic, form.magic, form.way_back)
    if magic != form.magic:
        raise ConfigError(f"{name} {OTHER_VERSION}")
    end = _FIRST_END + _REST.size
    if len(data) < HEADER_BYTES or data[end:HEADER_BYTES] != CRC.pack(crc32c(data[:end])):
        return SegmentHeader(number, salt, None, None)
    previous, boot = _REST.unpack_from(data, _FIRST_END)
    return SegmentHeader(number, salt, previous, boot.rstrip(b"\0").decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """The facts about a segment that are told elsewhere."""

    salt: bytes
    end: int | None
    """The offset at which it ended, as the next segment says; None if it is the last one."""
    same_boot: bool = True
    """True if the machine did not crash since it was written."""
    durable: int = 0
    """It was on stable storage up to this offset, as the mark says."""
    checked_when_read: int | None = None
    """As in `LogFormat`."""


def read_records(
    name: str, data: bytes, bounds: SegmentBounds, lost: Callable[[int], None] | None = None
) -> Iterator[LogRecord]:
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
        if found is None or offset + RECORD_BYTES + found.size > stop:
            if end is None and not _was_durable(data, offset, bounds):
                return
            found = _mended(data, offset, salt)
            if found is None or offset + RECORD_BYTES + found.size > stop:
                if lost is None:
                    raise damaged(name, offset)
                lost(offset)
                offset = _next_head(data, offset, salt)
                continue
        kind, size, key, _, crc = found
        payload: memoryview | None = view[offset + RECORD_BYTES : offset + RECORD_BYTES + size]
        is_checked = kind != bounds.checked_when_read or end is None
        if is_checked and crc32c(payload or b"") != crc:
            if end is None and not _was_durable(data, offset, bounds):
                return
            # Without its end it could not be told what the segment before has lost.
            payload = _mended_payload(payload, crc) if kind == PREVIOUS else None
        yield LogRecord(kind, key, offset, payload, size)
        offset += RECORD_BYTES + size


def record_size(data: bytes, salt: bytes) -> tuple[int, int]:
    """Return size and checksum of the payload whose record begins with `data`; if more than one bit
    of that is damaged, (0, 1), which no payload has."""
    found = _head(data, 0, salt) or _mended(data, 0, salt)
    return (0, 1) if found is None else (found.size, found.crc)


def _head(data: bytes, offset: int, salt: bytes) -> _Head | None:
    """Return the head of the record at `offset`, if one is there."""
    end = offset + RECORD.size
    if end + CRC.size > len(data) or data[offset : offset + SALT_BYTES] != salt:
        return None
    if CRC.unpack_from(data, end)[0] != crc32c(memoryview(data)[offset:end]):
        return None
    return _Head(*RECORD.unpack_from(data, offset)[1:])


def _mended(data: bytes, offset: int, salt: bytes) -> _Head | None:
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


def _was_durable(data: bytes, bad: int, bounds: SegmentBounds) -> bool:
    """True if the whole record at `bad` was on the disk once, so that no crash has torn it."""
    salt = bounds.salt
    if bad < bounds.durable:
        return True
    found = _head(data, bad, salt)
    if bounds.same_boot:  # only the last write may be cut short, by the end of the process in it
        cut = len(data) - bad < RECORD_BYTES or (
            found is not None and bad + RECORD_BYTES + found.size > len(data)
        )
        return not cut
    offset = data.find(salt, bad + 1)
    while offset >= 0:
        later = _head(data, offset, salt)
        if later is not None and later.durable > bad:
            return True
        offset = data.find(salt, offset + 1)
    return False


def damaged(name: str, offset: int) -> CorruptionError:
    """Return the error for a segment that cannot be read from `offset` on."""
    return CorruptionError(f"{name} is damaged at offset {offset}", file=name, offset=offset)

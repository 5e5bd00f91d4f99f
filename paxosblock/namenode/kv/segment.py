"""One segment of the journal as bytes: encoding, reading, and telling torn from damaged.

    segment = header, batch, batch, ...         all integers big-endian
    header  = "PBKJRNL2", first index u64, salt 8 bytes, crc32c of these u32
    batch   = salt 8 bytes, durable u64, first index u64, body length u32, body crc32c u32,
              crc32c of the header so far u32, body
    body    = (length u32, payload) per entry; indexes count up from the first

`durable` is the offset up to which the writer knew this segment to be on stable storage when it
wrote the batch. So a batch that does not match its checksum, and lies before the `durable` of a
later batch, was whole once: it is damaged. Otherwise it was still being written when the power
went: no answer said that it is there, so it may be cut off.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from paxosblock.base.checksum import crc32c
from paxosblock.base.formats import refuse_later_magic
from paxosblock.errors import ConfigError, CorruptionError

_MAGIC = b"PBKJRNL2"
_HEADER = struct.Struct(">8sQ8s")
_BATCH = struct.Struct(">8sQQII")
_U32 = struct.Struct(">I")

OTHER_VERSION = (
    "was written by another version of paxosblock, and this one cannot read it: copy the files of"
    " the cluster with that version into a new cluster"
)

SALT_BYTES = 8
"""The salt is random per segment, so that no payload can pass for a batch of this segment."""

HEADER_BYTES = _HEADER.size + _U32.size
BATCH_HEADER_BYTES = _BATCH.size + _U32.size

ALONE_BYTES = BATCH_HEADER_BYTES + _U32.size
"""Bytes that an entry takes beside its payload when it has a batch of its own."""


def encode_header(first_index: int, salt: bytes) -> bytes:
    """Return the beginning of a segment whose first entry will be `first_index`."""
    header = _HEADER.pack(_MAGIC, first_index, salt)
    return header + _U32.pack(crc32c(header))


def encode_batch(salt: bytes, durable: int, first_index: int, entries: Sequence[bytes]) -> bytes:
    """Return the batch of these entries; without entries it is a bare durable mark."""
    body = b"".join([part for entry in entries for part in (_U32.pack(len(entry)), entry)])
    header = _BATCH.pack(salt, durable, first_index, len(body), crc32c(body))
    return b"".join((header, _U32.pack(crc32c(header)), body))


@dataclass(frozen=True, slots=True)
class Segment:
    """The content of a segment: `entries[i]` has index `first_index + i`.

    The last whole batch ends at `size_bytes`; any bytes after that are a torn tail.
    """

    first_index: int
    entries: list[memoryview]
    size_bytes: int

    @property
    def next_index(self) -> int:
        return self.first_index + len(self.entries)


def read_segment(name: str, data: bytes) -> Segment:
    """Read a segment; `name` is for messages.

    Raises:
        ConfigError: another version wrote it.
        CorruptionError: bytes that had been durable are damaged; it names file and offset.
    """
    first_index, salt = check_header(name, data)
    entries: list[memoryview] = []
    offset = HEADER_BYTES
    while offset < len(data):
        batch = _read_batch(data, offset, salt)
        if batch is None:
            _check_torn(name, data, offset, salt)
            break
        index, body, end = batch
        if index != first_index + len(entries):
            raise _damaged(name, offset, f"entry {index} follows {first_index + len(entries) - 1}")
        entries += _split(name, offset, body)
        offset = end
    return Segment(first_index, entries, offset)


def check_header(name: str, data: bytes) -> tuple[int, bytes]:
    """Return index and salt of the segment that begins with `data`. Raises as `read_segment`."""
    # A segment gets its name once its header is durable, so a short header is damage.
    header = data[: _HEADER.size]
    if len(data) < HEADER_BYTES or data[_HEADER.size : HEADER_BYTES] != _U32.pack(crc32c(header)):
        raise _damaged(name, 0, "the header does not match its checksum")
    magic, first_index, salt = _HEADER.unpack(header)
    refuse_later_magic(name, magic, _MAGIC)
    if magic != _MAGIC:
        raise ConfigError(f"{name} {OTHER_VERSION}")
    return first_index, salt


def _read_batch(data: bytes, offset: int, salt: bytes) -> tuple[int, memoryview, int] | None:
    """Return (first index, body, end) of the batch at `offset`; None if a checksum is wrong."""
    header = _read_batch_header(data, offset, salt)
    if header is None:
        return None
    _durable, index, size, checksum = header
    start = offset + BATCH_HEADER_BYTES
    body = memoryview(data)[start : start + size]
    return None if len(body) != size or crc32c(body) != checksum else (index, body, start + size)


def _read_batch_header(data: bytes, offset: int, salt: bytes) -> tuple[int, int, int, int] | None:
    """Return (durable, first index, body length, body checksum), or None."""
    header = data[offset : offset + _BATCH.size]
    stored = data[offset + _BATCH.size : offset + BATCH_HEADER_BYTES]
    if len(header) < _BATCH.size or stored != _U32.pack(crc32c(header)):
        return None
    found, durable, index, size, checksum = _BATCH.unpack(header)
    return (durable, index, size, checksum) if found == salt else None


def _check_torn(name: str, data: bytes, bad: int, salt: bytes) -> None:
    """Raise if a later batch says that the bytes at `bad` had been durable."""
    offset = data.find(salt, bad + 1)
    while offset >= 0:
        header = _read_batch_header(data, offset, salt)
        if header is not None and header[0] > bad:
            raise _damaged(name, bad, f"the batch there had been durable up to {header[0]}")
        offset = data.find(salt, offset + 1)


def _split(name: str, offset: int, body: memoryview) -> list[memoryview]:
    entries = []
    position = 0
    while position < len(body):
        if len(body) - position < _U32.size:
            raise _damaged(name, offset, "an entry is cut short")
        (size,) = _U32.unpack_from(body, position)
        position += _U32.size
        if size > len(body) - position:
            raise _damaged(name, offset, "an entry is cut short")
        entries.append(body[position : position + size])
        position += size
    return entries


def _damaged(name: str, offset: int, why: str) -> CorruptionError:
    return CorruptionError(
        f"{name}: damaged at offset {offset}: {why}",
        file=name,
        offset=offset,
    )

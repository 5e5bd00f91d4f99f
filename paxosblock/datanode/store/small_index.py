"""The index of a segment of the log: it sums up the records, so that a start need not read them
(FORMAT.md 8).

It is written once the segment takes no more records, and follows from them alone: an index that is
missing, damaged, or made of other bytes than the segment has is made again. Memory holds the same
row of bytes for each replica: there may be millions, and few are asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import astuple

from paxosblock.base.checksum import crc32c
from paxosblock.base.encoding import msgpack_decoder
from paxosblock.datanode.store.meta import Metadata, decode_metadata
from paxosblock.datanode.store.small_records import RecordKind, SmallRecord
from paxosblock.errors import ConfigError, CorruptionError
from paxosblock.journal.record_log import RecordPosition
from paxosblock.journal.segment import RECORD_BYTES, SALT_BYTES
from paxosblock.net.wire import HEADER_BYTES
from paxosblock.protocol.chunk_log import ENTRY_BYTES, ChunkLog, read_entries
from paxosblock.protocol.invariants import InvariantError
from paxosblock.protocol.types import BlockId, Registers

MAGIC: Final = b"PXI1"
NOWHERE: Final = RecordPosition(0, 0)
PLACE: Final = struct.Struct("<QQ")
"""Segment and offset of the chunk's record: the payload of a FINALIZED begins with it."""
_HEAD: Final = struct.Struct("<4s8sQ")
_CRC: Final = struct.Struct("<I")


class RowRegisters(Registers, frozen=True, gc=False, array_like=True):
    """The registers without their names."""


class Sizes(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The beginning of a row, which is all that a start looks at."""

    live_bytes: int
    """Bytes of the replica's records, those that count."""
    frame_bytes: int
    """Bytes of its chunk's frame."""


class Row(Sizes, frozen=True, gc=False, array_like=True):
    """A small replica: the place of its records and, once it is finalized, its registers and table
    of chunks. A finalized one without registers is dead: its metadata cannot be read.
    """

    said: RecordPosition
    """Its last record with metadata."""
    chunk: RecordPosition = NOWHERE
    finalized: bool = False
    registers: RowRegisters | None = None
    chunks: bytes = b""

    def encode(self) -> bytes:
        """Return the row as bytes."""
        return _ENCODER.encode(self)

    def its_registers(self) -> Registers | None:
        """Return the registers as the protocol has them."""
        return None if self.registers is None else Registers(*astuple(self.registers))


_ENCODER: Final = msgspec.msgpack.Encoder()
_ROW: Final = msgpack_decoder(Row)
_SIZES: Final = msgpack_decoder(Sizes)


def decode_row(data: bytes) -> Row:
    """Return the row that `Row.encode` made bytes of."""
    return _ROW.decode(data)


def decode_sizes(data: bytes) -> Sizes:
    """Return the beginning of that row."""
    return _SIZES.decode(data)


def created_row(said: RecordPosition, chunk: RecordPosition, size_bytes: int) -> Row:
    """Return the row of a replica whose CREATED record has a payload of `size_bytes`."""
    return Row(RECORD_BYTES + size_bytes, 0, said, chunk)


def finalized_row(
    said: RecordPosition, chunk: RecordPosition, size_bytes: int, metadata: Metadata | None
) -> Row:
    """Return the row of a replica whose FINALIZED record has a payload of `size_bytes`.

    `metadata` is None if it cannot be read.
    """
    live_bytes = RECORD_BYTES + size_bytes
    if metadata is None:
        return Row(live_bytes, 0, said, chunk, finalized=True)
    registers, chunks = RowRegisters(*astuple(metadata.registers)), metadata.chunks
    frame_bytes = 0
    for end, _ in read_entries(chunks[-ENTRY_BYTES:]):
        frame_bytes = end + HEADER_BYTES * (len(chunks) // ENTRY_BYTES)
        live_bytes += RECORD_BYTES + frame_bytes
    return Row(live_bytes, frame_bytes, said, chunk, True, registers, chunks)


def read_finalized(at: RecordPosition, record: SmallRecord) -> Row:
    """Return the row of the FINALIZED record at this place."""
    if record.payload is None:
        return finalized_row(at, NOWHERE, record.size, None)
    place = RecordPosition(*PLACE.unpack_from(record.payload))
    metadata: Metadata | None = None
    try:
        metadata = decode_metadata(bytes(record.payload[PLACE.size :]), record.block)
        metadata.replica(ChunkLog.from_bytes(metadata.chunks)).check()
    except (CorruptionError, ConfigError, InvariantError, ValueError):  # its checksum is right
        metadata = None
    return finalized_row(at, place, record.size, metadata)


class Other(NamedTuple):
    """A record that has to be looked at once more."""

    kind: RecordKind
    block: BlockId
    offset: int
    size_bytes: int


class Index(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Everything that the records of a segment say. Its fields are applied in order: the blocks in
    `gone` are forgotten, the rows in `finalized` replace earlier ones, then `others` are replayed.
    """

    gone: list[BlockId]
    finalized: dict[BlockId, bytes]
    others: list[Other]

    def encode(self, salt: bytes, end: int) -> bytes:
        """Return the bytes of the file, for the segment with this `salt` that ends at `end`."""
        data = _HEAD.pack(MAGIC, salt, end) + _ENCODER.encode(self)
        return data + _CRC.pack(crc32c(data))


_INDEX: Final = msgpack_decoder(Index)


def decode_index(data: bytes, salt: bytes, end: int) -> Index | None:
    """Return the index in the bytes of a file; None unless it belongs to this very segment."""
    assert len(salt) == SALT_BYTES
    body_end = len(data) - _CRC.size
    if body_end < _HEAD.size or _HEAD.unpack_from(data) != (MAGIC, salt, end):
        return None
    if _CRC.unpack_from(data, body_end)[0] != crc32c(memoryview(data)[:body_end]):
        return None
    return _INDEX.decode(memoryview(data)[_HEAD.size : body_end])


def make_index(segment: int, records: Iterable[SmallRecord]) -> Index:
    """Return the index of `segment`, which has these records."""
    gone: dict[BlockId, None] = {}
    rows: dict[BlockId, bytes] = {}
    others: dict[BlockId, list[Other]] = {}
    for record in records:
        block = record.block
        match record.kind:
            case RecordKind.GONE:
                gone[block] = None
                rows.pop(block, None)
                others.pop(block, None)
            case RecordKind.FINALIZED if (
                row := read_finalized(RecordPosition(segment, record.offset), record)
            ).registers is not None:
                rows[block] = row.encode()
                others.pop(block, None)
            case RecordKind.CREATED | RecordKind.CHUNK | RecordKind.FINALIZED:
                other = Other(record.kind, block, record.offset, record.size)
                others.setdefault(block, []).append(other)
    left = sorted((one for each in others.values() for one in each), key=lambda one: one.offset)
    return Index(list(gone), rows, left)

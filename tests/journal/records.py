"""Bytes of segments, as the log writes them."""

from __future__ import annotations

from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.journal.segment import (
    CRC,
    FIRST_OWN_KIND,
    RECORD,
    RECORD_BYTES,
    SegmentBounds,
    read_records,
)

SALT = slice(16, 24)
"""The place of the salt in the header of a segment."""


def encode_record(salt: bytes, kind: int, key: int, payload: Buffer, durable: int) -> bytes:
    """The record; `durable` is the offset up to which the segment is on stable storage."""
    packed = RECORD.pack(salt, kind, len(payload), key, durable, crc32c(payload))
    return packed + CRC.pack(crc32c(packed)) + bytes(payload)


def payloads(data: bytes) -> list[range]:
    """The places of the payloads of the owner's records in a segment."""
    records = read_records("it", data, SegmentBounds(data[SALT], None, same_boot=False))
    return [
        range(each.offset + RECORD_BYTES, each.end)
        for each in records
        if each.kind >= FIRST_OWN_KIND
    ]

"""Bytes of segments, as the log writes them."""

from __future__ import annotations

from pathlib import Path

from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.host.disk import Disk, OsDisk
from paxosblock.journal.segment import (
    CRC,
    FIRST_OWN_KIND,
    RECORD,
    RECORD_BYTES,
    SegmentBounds,
    read_records,
)
from paxosblock.namenode.kv.journal import Journal

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


def begun_journal(folder: Path, segment_bytes: int, disk: Disk | None = None) -> Journal:
    """The catalog's journal in `folder`, which goes on after what is there."""
    journal = Journal(disk or OsDisk(), folder, segment_bytes)
    for _ in journal.replay():
        pass
    journal.begin()
    return journal


def entries_in(folder: Path, disk: Disk | None = None) -> list[tuple[int, bytes]]:
    """Every entry that a start finds in the catalog's journal, and its index."""
    journal = Journal(disk or OsDisk(), folder, 1)
    try:
        return [(index, bytes(payload)) for index, payload in journal.replay()]
    finally:
        journal.log.close()

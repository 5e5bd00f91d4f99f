"""An entry of the replicated log, and its record in the journal.

    record = kind u8, index u64, term u64, payload        all integers big-endian

A record whose index is not the next one *cuts*: the entries from that index on are void. So a tail
is dropped by an append, too, and the journal is only ever written at its end.
"""

from __future__ import annotations

import enum
import struct

import msgspec

from paxosblock.errors import CorruptionError

_RECORD = struct.Struct(">BQQ")
_BASE = 255

RECORD_BYTES = _RECORD.size
"""Bytes that a record takes beside the payload."""


class EntryKind(enum.IntEnum):
    """The kind of an entry's payload."""

    NOOP = 0
    """No payload: a leader begins its term with such an entry, as only its own entries count."""
    EDIT = 1
    """An edit as `kv.codec` encodes it."""
    MEMBERS = 2
    """Another list of members, as `roster.encode_list` encodes it."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """One entry; its index is its place in the log."""

    term: int
    kind: EntryKind
    payload: bytes


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of the journal; a record without an entry is a base: the log begins after it."""

    index: int
    term: int
    entry: Entry | None


def encode_entry(index: int, entry: Entry) -> bytes:
    """Return the record of `entry` at `index`."""
    return _RECORD.pack(entry.kind, index, entry.term) + entry.payload


def encode_base(index: int, term: int) -> bytes:
    """Return the record of a base: a snapshot that ends with this entry replaced all entries."""
    return _RECORD.pack(_BASE, index, term)


def place_of(data: memoryview) -> tuple[int, int] | None:
    """Return index and term of the entry in a record, without reading it; None for a base, and for
    what is no record."""
    if len(data) < _RECORD.size or data[0] == _BASE:
        return None
    _, index, term = _RECORD.unpack_from(data)
    return index, term


def decode_record(data: memoryview) -> Record:
    """Read a record.

    Raises:
        CorruptionError: the bytes are not a record.
    """
    if len(data) < _RECORD.size:
        raise CorruptionError("a record of the replicated log is cut short")
    kind, index, term = _RECORD.unpack_from(data)
    if kind == _BASE:
        return Record(index, term, None)
    try:
        entry = Entry(term, EntryKind(kind), bytes(data[_RECORD.size :]))
    except ValueError as error:
        raise CorruptionError(f"not a record of the replicated log: kind {kind}") from error
    return Record(index, term, entry)

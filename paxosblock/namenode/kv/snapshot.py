"""Snapshots: the whole map in one file, as versions before RocksDB wrote it; they are only read.

    snapshot = [of a member], header, slice, slice, ...        all integers big-endian
    member   = "PBKRSNP2", index u64, term u64, crc32c of these u32
    header   = "PBKSNAP1", revision u64, number of keys u64, crc32c of these u32
    slice    = length u32, crc32c u32, msgpack of [[key, [value, revision]], ...]

A slice's checksum continues that of the slice before it, so slices cannot change places unnoticed.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paxosblock.base.checksum import crc32c
from paxosblock.base.formats import OTHER_VERSION, refuse_later_magic
from paxosblock.errors import ConfigError, CorruptionError
from paxosblock.host.disk import Disk, read_file
from paxosblock.namenode.kv.codec import Items, decode_items
from paxosblock.namenode.kv.files import numbered, numbers

_KIND = "snapshot"
_MAGIC = b"PBKSNAP1"
_MAGIC_OF_A_MEMBER, _EARLIER = b"PBKRSNP2", b"PBKRSNP1"
_HEADER = struct.Struct(">8sQQ")
_CRC = struct.Struct(">I")
_HEADER_BYTES = _HEADER.size + _CRC.size
_SLICE = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The map after log entry `revision`, in order of the keys.

    `term` is that of the entry.
    """

    revision: int
    items: Items
    term: int = 0


NOTHING = Snapshot(0, [])


def load_snapshot(disk: Disk, folder: Path) -> Snapshot:
    """Return the newest snapshot in the folder; an empty one if there is none.

    Raises:
        ConfigError: another version wrote it.
        CorruptionError: it does not match its checksums. An older snapshot cannot replace it, as
            the journal that would follow it is gone.
    """
    found = numbers(disk.names(folder), _KIND)
    if not found:
        return NOTHING
    path = numbered(folder, _KIND, found[-1])
    snapshot = decode_snapshot(str(path), read_file(disk, path))
    if snapshot.revision != found[-1]:
        raise CorruptionError(f"{path}: is the snapshot of entry {snapshot.revision}")
    return snapshot


def remove_older(disk: Disk, folder: Path, revision: int) -> None:
    """Remove snapshots before `revision`."""
    for found in numbers(disk.names(folder), _KIND):
        if found < revision:
            disk.remove(numbered(folder, _KIND, found))


def decode_snapshot(name: str, whole: bytes | memoryview) -> Snapshot:
    """Read a snapshot file; `name` is for messages.

    Raises:
        ConfigError: another version wrote it.
        CorruptionError: the snapshot is damaged; the error names file and offset.
    """
    data = memoryview(whole)
    if data[: len(_EARLIER)] == _EARLIER:
        raise ConfigError(f"{name} {OTHER_VERSION}")
    index, term, offset = -1, 0, 0
    if data[: len(_MAGIC) - 1] == _MAGIC_OF_A_MEMBER[:-1]:
        index, term = _read_header(name, data, 0, _MAGIC_OF_A_MEMBER)
        offset = _HEADER_BYTES
    revision, count = _read_header(name, data, offset, _MAGIC)
    if index not in (-1, revision):
        raise CorruptionError(f"{name}: its parts belong to entries {index} and {revision}")
    checksum = crc32c(data[offset : offset + _HEADER.size])
    offset += _HEADER_BYTES
    items: Items = []
    while offset < len(data):
        body, end = _read_slice(name, data, offset, checksum)
        checksum = crc32c(body, checksum)
        items += decode_items(body)
        offset = end
    if len(items) != count:
        raise _damaged(name, offset)
    return Snapshot(revision, items, term)


def _read_header(name: str, data: memoryview, offset: int, known: bytes) -> tuple[int, int]:
    """Return the two numbers of a header."""
    header, end = data[offset : offset + _HEADER.size], offset + _HEADER_BYTES
    if len(data) < end or data[end - _CRC.size : end] != _CRC.pack(crc32c(header)):
        raise _damaged(name, offset)
    magic, first, second = _HEADER.unpack(header)
    refuse_later_magic(name, magic, known)
    if magic != known:
        raise CorruptionError(f"{name}: not a snapshot")
    return first, second


def _read_slice(name: str, data: memoryview, offset: int, checksum: int) -> tuple[memoryview, int]:
    with suppress(struct.error):
        size, stored = _SLICE.unpack_from(data, offset)
        start = offset + _SLICE.size
        body = data[start : start + size]
        if len(body) == size and crc32c(body, checksum) == stored:
            return body, start + size
    raise _damaged(name, offset)


def _damaged(name: str, offset: int) -> CorruptionError:
    return CorruptionError(
        f"{name}: damaged at offset {offset}",
        file=name,
        offset=offset,
    )

"""Snapshots: the whole map in one file, written by tables in memory and by earlier versions.

    snapshot = [of a member], header, slice, slice, ...        all integers big-endian
    member   = "PBKRSNP2", index u64, term u64, crc32c of these u32
    header   = "PBKSNAP1", revision u64, number of keys u64, crc32c of these u32
    slice    = length u32, crc32c u32, msgpack of [[key, [value, revision]], ...]

A slice's checksum continues that of the slice before it, so slices cannot change places unnoticed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paxosblock.checksum import crc32c
from paxosblock.disk import Disk, read_file
from paxosblock.errors import ConfigError, CorruptionError
from paxosblock.formats import refuse_later_magic
from paxosblock.namenode.kv.codec import Items, decode_items, encode_items
from paxosblock.namenode.kv.files import numbered, numbers, publish
from paxosblock.namenode.kv.interface import Item
from paxosblock.namenode.kv.segment import OTHER_VERSION
from paxosblock.units import KIB

_KIND = "snapshot"
_MAGIC = b"PBKSNAP1"
_MAGIC_OF_A_MEMBER, _EARLIER = b"PBKRSNP2", b"PBKRSNP1"
_HEADER = struct.Struct(">8sQQ")
_CRC = struct.Struct(">I")
_HEADER_BYTES = _HEADER.size + _CRC.size
_SLICE = struct.Struct(">II")

SLICE_BYTES = 16 * KIB
"""A slice is complete when its keys and values reach this. Encoding a slice holds the interpreter
for well under a millisecond; writing it lets the event loop run."""


class WholeMap(Sized, Iterable[Item], Protocol):
    """Keys with their values, in order, and their number."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The map after log entry `revision`, in order of the keys; `items` may be read only once.

    `term` is that of the entry; 0 with a single NameNode.
    """

    revision: int
    items: WholeMap
    term: int = 0


NOTHING = Snapshot(0, ())


def snapshot_path(folder: Path, revision: int) -> Path:
    """Return the path of the snapshot after entry `revision`."""
    return numbered(folder, _KIND, revision)


def write_snapshot(disk: Disk, folder: Path, snapshot: Snapshot) -> None:
    """Write the snapshot durably; blocks, so call it in a thread."""
    publish(disk, snapshot_path(folder, snapshot.revision), encode_snapshot(snapshot))


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
    path = snapshot_path(folder, found[-1])
    snapshot = decode_snapshot(str(path), read_file(disk, path))
    if snapshot.revision != found[-1]:
        raise CorruptionError(f"{path}: is the snapshot of entry {snapshot.revision}")
    return snapshot


def remove_older(disk: Disk, folder: Path, revision: int) -> None:
    """Remove snapshots before `revision`."""
    for found in numbers(disk.names(folder), _KIND):
        if found < revision:
            disk.remove(snapshot_path(folder, found))


def encode_snapshot(snapshot: Snapshot) -> Iterator[bytes]:
    """Yield the file's headers and slices."""
    if snapshot.term:
        member = _HEADER.pack(_MAGIC_OF_A_MEMBER, snapshot.revision, snapshot.term)
        yield member + _CRC.pack(crc32c(member))
    header = _HEADER.pack(_MAGIC, snapshot.revision, len(snapshot.items))
    checksum = crc32c(header)
    yield header + _CRC.pack(checksum)
    for items in _slices(snapshot):
        data = encode_items(items)
        checksum = crc32c(data, checksum)
        yield _SLICE.pack(len(data), checksum) + data


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


def _slices(snapshot: Snapshot) -> Iterator[Items]:
    items: Items = []
    size = 0
    for item in snapshot.items:
        items.append(item)
        key, value = item
        size += len(key) + len(value.value)
        if size >= SLICE_BYTES:
            yield items
            items, size = [], 0
    if items:
        yield items


def _damaged(name: str, offset: int) -> CorruptionError:
    return CorruptionError(
        f"{name}: damaged at offset {offset}",
        file=name,
        offset=offset,
    )

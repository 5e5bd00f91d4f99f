"""Snapshots: the whole map in one file, written aside and then named.

    snapshot = header, slice, slice, ...        all integers big-endian
    header   = "PBKSNAP1", revision u64, number of keys u64, crc32c of these u32
    slice    = length u32, crc32c u32, msgpack of [[key, [value, revision]], ...]

A slice's checksum goes on from the one before it, so slices cannot change places unnoticed.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paxosblock.checksum import crc32c
from paxosblock.disk import Disk, read_file
from paxosblock.errors import CorruptionError
from paxosblock.formats import refuse_later_magic
from paxosblock.namenode.kv.codec import Items, decode_items, encode_items
from paxosblock.namenode.kv.files import numbered, numbers, publish
from paxosblock.namenode.kv.interface import Item
from paxosblock.units import KIB

_KIND = "snapshot"
_MAGIC = b"PBKSNAP1"
_HEADER = struct.Struct(">8sQQ")
_CRC = struct.Struct(">I")
_SLICE = struct.Struct(">II")

SLICE_BYTES = 16 * KIB
"""A slice is complete when its keys and values reach this. Encoding one holds the interpreter for
well under a millisecond; writing it lets the event loop run."""


FREED_TOGETHER = 1000
"""Items; so many take some 50 microseconds."""

PAUSE_S = 0.001
"""After each slice, in a thread. The loop lets go of the interpreter in every system call; a writer
that took it each time would make a turn in which 64 clients are answered three times as long."""


class WholeMap(Sized, Iterable[Item], Protocol):
    """Keys with their values, in order, and how many there are."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The map after log entry `revision`, in order of the keys; `items` may be read but once."""

    revision: int
    items: WholeMap


NOTHING = Snapshot(0, ())


class Pace:
    """The pace at which a thread writes a snapshot beside the event loop."""

    def __init__(self, pause_s: float = PAUSE_S) -> None:
        """Wait for `pause_s` after each piece."""
        self._pause_s = pause_s
        self._hurried = threading.Event()

    def hurry(self) -> None:
        """Wait no more: somebody waits for the end."""
        self._hurried.set()

    def of(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces, one after the other."""
        for piece in pieces:
            yield piece
            self._hurried.wait(self._pause_s)


def write_snapshot(disk: Disk, folder: Path, snapshot: Snapshot) -> None:
    """Write the snapshot durably; blocks, so call it in a thread."""
    publish(disk, numbered(folder, _KIND, snapshot.revision), encode_snapshot(snapshot))


def load_snapshot(disk: Disk, folder: Path) -> Snapshot:
    """Return the newest snapshot in the folder; an empty one when there is none.

    Raises:
        ConfigError: a later version wrote it.
        CorruptionError: it does not match its checksums. An older one is no substitute: the
            journal that would follow it is gone.
    """
    found = numbers(disk.names(folder), _KIND)
    if not found:
        return NOTHING
    path = numbered(folder, _KIND, found[-1])
    snapshot = decode_snapshot(str(path), read_file(disk, path))
    if snapshot.revision != found[-1]:
        raise CorruptionError(f"{path}: is the snapshot of entry {snapshot.revision}")
    return snapshot


def let_go(snapshot: Snapshot) -> None:
    """Free what was decoded, in a thread, so that others get the interpreter in between."""
    items = snapshot.items
    while isinstance(items, list) and items:
        del items[-FREED_TOGETHER:]


def remove_older(disk: Disk, folder: Path, revision: int) -> None:
    """Remove snapshots before `revision`."""
    for found in numbers(disk.names(folder), _KIND):
        if found < revision:
            disk.remove(numbered(folder, _KIND, found))


def encode_snapshot(snapshot: Snapshot) -> Iterator[bytes]:
    """Yield the file's header and slices."""
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
        ConfigError: a later version wrote it.
        CorruptionError: damaged; says which file and offset.
    """
    data = memoryview(whole)
    header, offset = data[: _HEADER.size], _HEADER.size + _CRC.size
    checksum = crc32c(header)
    if len(data) < offset or data[_HEADER.size : offset] != _CRC.pack(checksum):
        raise _damaged(name, 0)
    magic, revision, count = _HEADER.unpack(header)
    refuse_later_magic(name, magic, _MAGIC)
    if magic != _MAGIC:
        raise CorruptionError(f"{name}: not a snapshot")
    items: Items = []
    while offset < len(data):
        body, end = _read_slice(name, data, offset, checksum)
        checksum = crc32c(body, checksum)
        items += decode_items(body)
        offset = end
    if len(items) != count:
        raise _damaged(name, offset)
    return Snapshot(revision, items)


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

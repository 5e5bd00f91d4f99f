"""A table in memory, for simulations: its flush is a snapshot, one file with the whole map.

It writes through the `Disk` seam, so that a simulated disk can fail or lose power at every step.
The file is `db-<the entry that it is after>`, so that the product takes it for a table, too:
crc32c u32, then msgpack of the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec
from sortedcontainers import SortedDict

from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.errors import CorruptionError
from paxosblock.host.disk import Disk, read_file
from paxosblock.namenode.kv.files import draft_of, numbered, numbers, publish
from paxosblock.namenode.kv.interface import ABSENT, Item, Versioned, prefix_range
from paxosblock.namenode.kv.rocks_table import NAME
from paxosblock.namenode.kv.state_machine import StateMachine
from paxosblock.namenode.kv.table import (
    SLICE_KEYS,
    Changes,
    CheckpointCopy,
    Flush,
    OnDamage,
    Tables,
    as_it_is,
)

_CRC_BYTES = 4


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The map after log entry `revision` of `term`, in order of the keys."""

    revision: int
    items: list[tuple[bytes, Versioned]]
    term: int = 0


NOTHING = Snapshot(0, [])


def snapshot_path(folder: Path, revision: int) -> Path:
    """The snapshot after entry `revision`."""
    return numbered(folder, NAME, revision)


def encode_snapshot(snapshot: Snapshot) -> list[bytes]:
    """The pieces of the file."""
    data = msgspec.msgpack.encode(snapshot)
    return [crc32c(data).to_bytes(_CRC_BYTES, "big"), data]


def decode_snapshot(name: str, whole: bytes | bytearray) -> Snapshot:
    """Read a file; `name` is for messages.

    Raises:
        CorruptionError: it is damaged.
    """
    data = memoryview(whole)[_CRC_BYTES:]
    if crc32c(data).to_bytes(_CRC_BYTES, "big") != whole[:_CRC_BYTES]:
        raise CorruptionError(f"{name}: damaged", file=name)
    return msgspec.msgpack.decode(data, type=Snapshot)


def load_snapshot(disk: Disk, folder: Path) -> Snapshot:
    """The newest snapshot in the folder; an empty one if there is none. Raises as
    `decode_snapshot`."""
    found = numbers(disk.names(folder), NAME)
    if not found:
        return NOTHING
    path = snapshot_path(folder, found[-1])
    return decode_snapshot(str(path), read_file(disk, path))


def remove_older(disk: Disk, folder: Path, revision: int) -> None:
    """Remove snapshots before `revision`."""
    for found in numbers(disk.names(folder), NAME):
        if found < revision:
            disk.remove(snapshot_path(folder, found))


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a table, and how files are written there."""

    disk: Disk
    folder: Path


class MemoryCheckpoint:
    """The bytes of a snapshot file."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Encode the snapshot."""
        self._data = b"".join(encode_snapshot(snapshot))

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def read(self, size_bytes: int, offset: int) -> bytes:
        return self._data[offset : offset + size_bytes]

    def close(self) -> None:
        """Do nothing, as no room on the disk is taken."""


class MemoryTable:
    """The map as a sorted dict."""

    def __init__(self, snapshot: Snapshot = NOTHING, place: Place | None = None) -> None:
        """Start from a `snapshot`. A table without a `place` is never flushed."""
        self._revision, self._term = snapshot.revision, snapshot.term
        self._items = SortedDict(snapshot.items)
        self.place = place
        self.on_damage: OnDamage = as_it_is

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def term(self) -> int:
        return self._term

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: bytes) -> Versioned:
        found: Versioned = self._items.get(key, ABSENT)
        return found

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[Item]:
        if end and end <= start:
            return iter(())
        found = self._items.irange(start, end or None, (True, False), reverse)
        return ((key, self._items[key]) for key in found)

    def read_some(self, start: bytes, keys: int) -> bytes | None:
        found = [key for key, _ in islice(self.scan(start, b""), keys + 1)]
        return found[keys] if len(found) > keys else None

    def count(self, first: bytes) -> int:
        start, end = prefix_range(first)
        last = self._items.bisect_left(end) if end else len(self._items)
        return int(last - self._items.bisect_left(start))

    def moment(self) -> MemoryMoment:
        return MemoryMoment(MemoryTable(self.snapshot()))

    def values(self) -> MemoryMoment:
        return self.moment()

    def write(self, index: int, changes: Changes, term: int = 0) -> None:
        for _ in _change(self._items, changes):
            pass
        self._revision, self._term = index, term

    def write_in_slices(self, index: int, changes: Changes, term: int = 0) -> Iterator[None]:
        """Change a copy of the map, which becomes the map at the end."""
        before, changed = self._revision, self._items.copy()
        for number, _ in enumerate(_change(changed, changes), 1):
            if number % SLICE_KEYS == 0:
                yield
        assert self._revision == before < index, "entries are applied one after the other"
        self._items, self._revision, self._term = changed, index, term

    def flush(self) -> Flush:
        assert self.place is not None, "only a table with a folder is flushed"
        place, snapshot = self.place, self.snapshot()

        def write() -> None:
            path = snapshot_path(place.folder, snapshot.revision)
            publish(place.disk, path, encode_snapshot(snapshot))
            remove_older(place.disk, place.folder, snapshot.revision)

        return Flush(snapshot.revision, write)

    def checkpoint(self) -> CheckpointCopy:
        snapshot = self.snapshot()
        return CheckpointCopy(snapshot.revision, lambda: MemoryCheckpoint(snapshot))

    def snapshot(self) -> Snapshot:
        """The map as it is now, which later entries do not change."""
        return Snapshot(self._revision, list(self._items.items()), self._term)

    def close(self) -> int:
        """Do nothing, as no file is open, and tell of no file."""
        return 0

    def discard(self) -> None:
        if self.place is not None:
            remove_older(self.place.disk, self.place.folder, self._revision + 1)


class MemoryMoment(StateMachine):
    """A copy of the map."""

    def release(self) -> None:
        """Do nothing: the copy goes with the last one that reads it."""


class MemoryReceiver:
    """Takes the stream of a checkpoint, and keeps it in memory until it is checked."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """Begin with no bytes."""
        self._place = Place(disk, folder)
        self._draft = draft_of(folder / "incoming")
        self._data = bytearray()
        self._snapshot = NOTHING

    def write(self, data: Buffer) -> None:
        self._data += data

    def check(self) -> int:
        self._snapshot = decode_snapshot("a received snapshot", self._data)
        disk = self._place.disk
        file = disk.create(self._draft)
        try:
            disk.write(file, self._data, 0)
            disk.sync(file)
        finally:
            disk.close(file)
        return self._snapshot.revision

    def install(self) -> MemoryTable:
        disk, folder = self._place.disk, self._place.folder
        disk.rename(self._draft, snapshot_path(folder, self._snapshot.revision))
        disk.sync_folder(folder)
        return MemoryTable(self._snapshot, self._place)

    def discard(self) -> None:
        if self._draft.name in self._place.disk.names(self._place.folder):
            self._place.disk.remove(self._draft)


def open_memory(disk: Disk, folder: Path) -> MemoryTable:
    """Read the newest snapshot, and remove older ones that a crash has left; see `OpenTable`."""
    snapshot = load_snapshot(disk, folder)
    remove_older(disk, folder, snapshot.revision)
    return MemoryTable(snapshot, Place(disk, folder))


MEMORY = Tables(open_memory, MemoryReceiver)


def _change(items: SortedDict, changes: Changes) -> Iterator[None]:
    """Make one change with each step."""
    for key, found in changes.items():
        if found.exists:
            items[key] = found
        else:
            items.pop(key, None)
        yield

"""A table in memory, whose flush is a snapshot: one file with the whole map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paxosblock.checksum import Buffer
from paxosblock.disk import Disk
from paxosblock.namenode.kv.files import draft_of
from paxosblock.namenode.kv.interface import Item, Versioned, prefix_range
from paxosblock.namenode.kv.ordered_map import OrderedMap
from paxosblock.namenode.kv.snapshot import (
    NOTHING,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
    load_snapshot,
    remove_older,
    snapshot_path,
    write_snapshot,
)
from paxosblock.namenode.kv.table import SLICE_KEYS, Changes, Copy, Flush, Tables


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
    """The map in pieces (`OrderedMap`), of which a snapshot is taken at once."""

    def __init__(self, snapshot: Snapshot = NOTHING, place: Place | None = None) -> None:
        """Start from a `snapshot`. A table without a `place` is never flushed."""
        self._revision, self._term = snapshot.revision, snapshot.term
        self._items = OrderedMap(snapshot.items)
        self.place = place

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def term(self) -> int:
        return self._term

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: bytes) -> Versioned:
        return self._items.get(key)

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[Item]:
        items = self._items
        return ((key, items.get(key)) for key in items.keys(start, end, reverse))

    def count(self, first: bytes) -> int:
        return self._items.count(*prefix_range(first))

    def write(self, index: int, changes: Changes, term: int = 0) -> None:
        for _ in _change(self._items, changes):
            pass
        self._revision, self._term = index, term

    def write_in_slices(self, index: int, changes: Changes, term: int = 0) -> Iterator[None]:
        """Change a fork of the map, which becomes the map at the end."""
        before, changed = self._revision, self._items.fork()
        for number, _ in enumerate(_change(changed, changes), 1):
            if number % SLICE_KEYS == 0:
                yield
        assert self._revision == before < index, "entries are applied one after the other"
        self._items, self._revision, self._term = changed, index, term

    def flush(self) -> Flush:
        assert self.place is not None, "only a table with a folder is flushed"
        place, snapshot = self.place, self.snapshot()

        def write() -> None:
            write_snapshot(place.disk, place.folder, snapshot)
            remove_older(place.disk, place.folder, snapshot.revision)

        return Flush(snapshot.revision, write)

    def checkpoint(self) -> Copy:
        snapshot = self.snapshot()
        return Copy(snapshot.revision, lambda: MemoryCheckpoint(snapshot))

    def snapshot(self) -> Snapshot:
        """Return the map as it is now, which later entries do not change; quick (`freeze`)."""
        return Snapshot(self._revision, self._items.freeze(), self._term)

    def close(self) -> None:
        """Do nothing, as no file is open."""

    def discard(self) -> None:
        if self.place is not None:
            remove_older(self.place.disk, self.place.folder, self._revision + 1)


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
        self._snapshot = decode_snapshot("a received snapshot", memoryview(self._data))
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


def _change(items: OrderedMap, changes: Changes) -> Iterator[None]:
    """Make one change with each step."""
    for key, found in changes.items():
        if found.exists:
            items.put(key, found)
        else:
            items.remove(key)
        yield

"""A table in memory, whose flush is a snapshot: one file with the whole map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paxosblock.disk import Disk
from paxosblock.namenode.kv.interface import Item, Versioned, prefix_range
from paxosblock.namenode.kv.ordered_map import OrderedMap
from paxosblock.namenode.kv.snapshot import (
    NOTHING,
    Snapshot,
    load_snapshot,
    remove_older,
    write_snapshot,
)
from paxosblock.namenode.kv.table import SLICE_KEYS, Changes, Flush


@dataclass(frozen=True, slots=True)
class _Place:
    disk: Disk
    folder: Path


class MemoryTable:
    """The map in pieces (`OrderedMap`), of which a snapshot is taken at once."""

    def __init__(self, snapshot: Snapshot = NOTHING, place: _Place | None = None) -> None:
        """Start from a `snapshot`. Without a `place` it is never flushed."""
        self._revision = snapshot.revision
        self._items = OrderedMap(snapshot.items)
        self._place = place

    @property
    def revision(self) -> int:
        return self._revision

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: bytes) -> Versioned:
        return self._items.get(key)

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[Item]:
        items = self._items
        return ((key, items.get(key)) for key in items.keys(start, end, reverse))

    def count(self, first: bytes) -> int:
        return self._items.count(*prefix_range(first))

    def write(self, index: int, changes: Changes) -> None:
        for _ in _change(self._items, changes):
            pass
        self._revision = index

    def write_in_slices(self, index: int, changes: Changes) -> Iterator[None]:
        """Change a fork of the map, which takes its place at the end."""
        before, changed = self._revision, self._items.fork()
        for number, _ in enumerate(_change(changed, changes), 1):
            if number % SLICE_KEYS == 0:
                yield
        assert self._revision == before < index, "entries are applied one after the other"
        self._items, self._revision = changed, index

    def flush(self) -> Flush:
        assert self._place is not None, "it has no folder"
        place, snapshot = self._place, self.snapshot()

        def write() -> None:
            write_snapshot(place.disk, place.folder, snapshot)
            remove_older(place.disk, place.folder, snapshot.revision)

        return Flush(snapshot.revision, write)

    def snapshot(self) -> Snapshot:
        """Return the map as it is now, which later entries do not change; quick (`freeze`)."""
        return Snapshot(self._revision, self._items.freeze())

    def dissolve(self) -> Iterator[None]:
        """Let go of the map, a little with each step; nobody uses this table any more."""
        return self._items.dissolve()

    def close(self) -> None:
        """Nothing is open."""


def open_memory(disk: Disk, folder: Path) -> MemoryTable:
    """Read the newest snapshot, and remove older ones that a crash has left; see `OpenTable`."""
    snapshot = load_snapshot(disk, folder)
    remove_older(disk, folder, snapshot.revision)
    return MemoryTable(snapshot, _Place(disk, folder))


def _change(items: OrderedMap, changes: Changes) -> Iterator[None]:
    """Make the changes, one with each step."""
    for key, found in changes.items():
        if found.exists:
            items.put(key, found)
        else:
            items.remove(key)
        yield

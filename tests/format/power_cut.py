"""A disk in memory that takes down what is done to it, and every state a power cut could leave.

What is durable is only what was synced: a file's bytes by `sync`, a name, or that it is gone, by
`sync_folder` of its own folder. Of everything else any part may be there: each write whole, torn in
the middle or missing, each truncation and each change of a name done or not, in any combination. A
file that changes its folder is in one of them until one is synced, and then that one says nothing
of the other: synced where it was and not where it is, it may be lost.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paxosblock.datanode.disk import FileHandle, Room
from paxosblock.errors import StorageError
from paxosblock.net.wire import Buffer


@dataclass(frozen=True, slots=True)
class Wrote:
    """Bytes were handed over; `inode` is a file whatever its name."""

    inode: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """A file was truncated."""

    inode: int
    size: int


@dataclass(frozen=True, slots=True)
class Synced:
    """A file's bytes are durable."""

    inode: int


@dataclass(frozen=True, slots=True)
class Named:
    """`source` (None: nothing, it is a new file) is called `target` (None: removed)."""

    source: Path | None
    target: Path | None
    inode: int

    def synced(self, folder: Path) -> tuple[Named | None, Named | None]:
        """What of it is durable once `folder` is synced, and what is still pending."""
        leaves = self.source is not None and self.source.parent == folder
        comes = self.target is not None and self.target.parent == folder
        if not leaves and not comes:
            return None, self
        gone, there = Named(self.source, None, self.inode), Named(None, self.target, self.inode)
        if comes and not leaves and self.source is not None:
            return there, gone
        if leaves and not comes and self.target is not None:
            return gone, there
        return self, None


@dataclass(frozen=True, slots=True)
class FolderSynced:
    """All changes of names in a folder are durable."""

    folder: Path


@dataclass(frozen=True, slots=True)
class Note:
    """Something the test wants to remember at this point."""

    what: object


Change = Wrote | Cut
Entry = Change | Synced | Named | FolderSynced | Note
Files = dict[Path, bytes]


@dataclass
class RecordingDisk:
    """A `Disk` whose `journal` tells everything that was done."""

    journal: list[Entry] = field(default_factory=list)
    inodes: dict[int, bytearray] = field(default_factory=dict)
    names_now: dict[Path, int] = field(default_factory=dict)
    handles: dict[int, int] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    start: tuple[tuple[Path, int, bytes], ...] = ()

    @classmethod
    def holding(cls, files: Files) -> RecordingDisk:
        """A disk on which `files` are durable."""
        disk = cls()
        for path, data in files.items():
            inode = next(disk.numbers)
            disk.inodes[inode], disk.names_now[path] = bytearray(data), inode
            disk.start += ((path, inode, data),)
        return disk

    def files(self) -> Files:
        """Everything that is on it now."""
        return {path: bytes(self.inodes[inode]) for path, inode in self.names_now.items()}

    def make_folder(self, folder: Path) -> None:
        """Folders are there."""

    def names(self, folder: Path) -> list[str]:
        return [path.name for path in self.names_now if path.parent == folder]

    def create(self, path: Path) -> FileHandle:
        inode = next(self.numbers)
        self.inodes[inode], self.names_now[path] = bytearray(), inode
        self.journal.append(Named(None, path, inode))
        return self._handle(inode)

    def open(self, path: Path) -> FileHandle:
        if path not in self.names_now:
            raise StorageError(f"cannot open {path}")
        return self._handle(self.names_now[path])

    def _handle(self, inode: int) -> FileHandle:
        handle = next(self.numbers)
        self.handles[handle] = inode
        return FileHandle(handle)

    def close(self, file: FileHandle) -> None:
        del self.handles[file]

    def size(self, file: FileHandle) -> int:
        return len(self.inodes[self.handles[file]])

    def write(self, file: FileHandle, data: Buffer, offset: int) -> None:
        wrote = Wrote(self.handles[file], offset, bytes(data))
        self.journal.append(wrote)
        _apply(self.inodes[wrote.inode], wrote)

    def read(self, file: FileHandle, size_bytes: int, offset: int) -> bytes:
        return bytes(self.inodes[self.handles[file]][offset : offset + size_bytes])

    def read_cached(self, file: FileHandle, into: memoryview, offset: int) -> bool:
        data = self.read(file, len(into), offset)
        if len(data) < len(into):
            return False
        into[:] = data
        return True

    def truncate(self, file: FileHandle, size_bytes: int) -> None:
        cut = Cut(self.handles[file], size_bytes)
        self.journal.append(cut)
        _apply(self.inodes[cut.inode], cut)

    def sync(self, file: FileHandle) -> None:
        self.journal.append(Synced(self.handles[file]))

    def rename(self, source: Path, target: Path) -> None:
        inode = self.names_now.pop(source)
        self.names_now[target] = inode
        self.journal.append(Named(source, target, inode))

    def remove(self, path: Path) -> None:
        if path not in self.names_now:
            raise StorageError(f"cannot remove {path}")
        self.journal.append(Named(path, None, self.names_now.pop(path)))

    def sync_folder(self, folder: Path) -> None:
        self.journal.append(FolderSynced(folder))

    def lock(self, path: Path) -> FileHandle:
        return self._handle(0)

    def room(self, folder: Path) -> Room:
        return Room(1 << 40, 1 << 40)


def _apply(data: bytearray, change: Change, *, torn: bool = False) -> None:
    match change:
        case Cut():
            del data[change.size :]
        case Wrote():
            written = change.data[: len(change.data) // 2] if torn else change.data
            missing = change.offset - len(data)
            if missing > 0:
                data += bytes(missing)
            data[change.offset : change.offset + len(written)] = written


@dataclass
class _Cache:
    """What is durable after some entries, and what is pending."""

    inodes: dict[int, bytes] = field(default_factory=dict)
    changes: dict[int, list[Change]] = field(default_factory=dict)
    names: dict[Path, int] = field(default_factory=dict)
    renames: list[Named] = field(default_factory=list)

    def take(self, entry: Entry) -> None:
        match entry:
            case Wrote() | Cut():
                self.changes.setdefault(entry.inode, []).append(entry)
            case Synced():
                data = bytearray(self.inodes.get(entry.inode, b""))
                for change in self.changes.pop(entry.inode, []):
                    _apply(data, change)
                self.inodes[entry.inode] = bytes(data)
            case Named():
                self.renames.append(entry)
            case FolderSynced():
                fates = [rename.synced(entry.folder) for rename in self.renames]
                for durable, _ in fates:
                    if durable is not None:
                        _rename(self.names, durable)
                self.renames = [pending for _, pending in fates if pending is not None]
            case Note():
                pass


def _rename(names: dict[Path, int], change: Named) -> None:
    if change.source is not None and names.get(change.source) == change.inode:
        del names[change.source]
    if change.target is not None:
        names[change.target] = change.inode


DONE, MISSING, TORN = range(3)


def states_after(
    disk: RecordingDisk, count: int, *, at_most: int, seed: int = 0
) -> Iterator[Files]:
    """What may be on the disk when the power fails after `count` entries of its journal.

    All of it when there are not more than `at_most` states, else so many at random, of which one is
    "nothing but what was synced" and one "all of it".
    """
    cache = _Cache()
    cache.inodes = {inode: data for _, inode, data in disk.start}
    cache.names = {path: inode for path, inode, _ in disk.start}
    for entry in disk.journal[:count]:
        cache.take(entry)
    changes = [change for pending in cache.changes.values() for change in pending]
    choices = [range(3) if isinstance(change, Wrote) else range(2) for change in changes]
    choices += [range(2)] * len(cache.renames)
    for fates in _choose(choices, at_most, seed + count):
        yield _state(cache, fates[: len(changes)], fates[len(changes) :])


def _choose(choices: list[range], at_most: int, seed: int) -> Iterator[tuple[int, ...]]:
    total = 1
    for options in choices:
        total *= len(options)
    if total <= at_most:
        yield from itertools.product(*choices)
        return
    chance = random.Random(seed)
    yield (DONE,) * len(choices)
    yield (MISSING,) * len(choices)
    for _ in range(at_most - 2):
        yield tuple(chance.choice(options) for options in choices)


def _state(cache: _Cache, changes: tuple[int, ...], renames: tuple[int, ...]) -> Files:
    names = dict(cache.names)
    for rename, fate in zip(cache.renames, renames, strict=True):
        if fate == DONE:
            _rename(names, rename)
    inodes = {inode: bytearray(data) for inode, data in cache.inodes.items()}
    pending = [change for list_ in cache.changes.values() for change in list_]
    for change, fate in zip(pending, changes, strict=True):
        if fate != MISSING:
            _apply(inodes.setdefault(change.inode, bytearray()), change, torn=fate == TORN)
    return {path: bytes(inodes.get(inode, b"")) for path, inode in names.items()}

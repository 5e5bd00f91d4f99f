"""A disk in memory that loses, tears and garbles what was not synced when the power goes."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from paxosblock.errors import NoSpaceError
from paxosblock.namenode.kv.disk import FileHandle


@dataclass(slots=True)
class Inode:
    """A file: `data[:synced]` survives, unless it was overwritten since: then `before` may."""

    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    before: bytes = b""


@dataclass(slots=True)
class SimulatedDisk:
    """`Disk` of one process; after `power_cut` the next process gets another one."""

    names_now: dict[str, Inode] = field(default_factory=dict)
    names_durable: dict[str, Inode] = field(default_factory=dict)
    pending: list[tuple[str | None, str | None, Inode]] = field(default_factory=list)
    handles: list[Inode] = field(default_factory=list)
    fuse: int = -1
    """When it reaches 0 the power goes, before or after the operation."""
    burn: Callable[[], None] = lambda: None
    burns_before: bool = False
    dead: bool = False
    full: bool = False
    """No file can be made, and of what is appended only half finds room."""
    capacity_bytes: int | None = None
    """So much fits on it, if there is a limit; a file without bytes takes no room."""
    bytes_lost: int = 0

    def die(self) -> None:
        """Refuse everything from now on."""
        self.dead = True

    def power_cut(self, rng: random.Random) -> SimulatedDisk:
        """Return the disk as the next process finds it."""
        self.dead = True
        names = dict(self.names_durable)
        for target, source, inode in self.pending[: rng.randint(0, len(self.pending))]:
            if source is not None:
                names.pop(source, None)
            if target is not None:
                names[target] = inode
        left = {name: self._left(rng, inode) for name, inode in sorted(names.items())}
        return SimulatedDisk(
            dict(left), dict(left), bytes_lost=self.bytes_lost, capacity_bytes=self.capacity_bytes
        )

    def _left(self, rng: random.Random, inode: Inode) -> Inode:
        if inode.before:
            mixed = rng.choice((0, rng.randint(0, len(inode.data)), len(inode.data)))
            data = inode.data[:mixed] + inode.before[mixed:]
            return Inode(data, len(data))
        whole = rng.random() < 0.5  # it all arrived, but perhaps not as it was
        size = len(inode.data) if whole else rng.randint(inode.synced, len(inode.data))
        data = inode.data[:size]
        self.bytes_lost += len(inode.data) - size
        if size > inode.synced and rng.random() < 0.5:
            data[rng.randrange(inode.synced, size)] ^= 1 << rng.randrange(8)
        return Inode(data, len(data))

    def _change(self) -> None:
        self._read()
        self.fuse -= 1
        if self.fuse == 0 and self.burns_before:
            self.burn()
            self._read()

    def _changed(self) -> None:
        if self.fuse == 0 and not self.burns_before:
            self.burn()
            self._read()

    def _read(self) -> None:
        if self.dead:
            raise OSError(errno.EIO, "the power is gone")

    def make_folder(self, folder: Path) -> None:
        self._read()

    def names(self, folder: Path) -> list[str]:
        self._read()
        return list(self.names_now)

    def read(self, path: Path) -> bytes:
        self._read()
        if path.name not in self.names_now:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return bytes(self.names_now[path.name].data)

    def create(self, path: Path) -> FileHandle:
        self._change()
        if self.full:
            raise NoSpaceError("no room")
        inode = Inode()
        self._name(path.name, None, inode)
        self.handles.append(inode)
        self._changed()
        return FileHandle(len(self.handles) - 1)

    def append(self, file: FileHandle, data: bytes) -> None:
        self._change()
        fits = len(data) // 2 if self.full else self._fitting(len(data))
        self.handles[file].data += data[:fits]
        self._changed()
        if fits < len(data) or self.full:
            raise NoSpaceError("no room")

    def used_bytes(self) -> int:
        """What the files take."""
        return sum(len(inode.data) for inode in self.names_now.values())

    def _fitting(self, size: int) -> int:
        if self.capacity_bytes is None:
            return size
        return min(size, max(0, self.capacity_bytes - self.used_bytes()))

    def free_bytes(self, folder: Path) -> int:
        self._read()
        return 0 if self.full else self._fitting(1 << 40)

    def open(self, path: Path) -> FileHandle:
        self._read()
        self.handles.append(self.names_now[path.name])
        return FileHandle(len(self.handles) - 1)

    def overwrite(self, file: FileHandle, data: bytes) -> None:
        self._change()
        inode = self.handles[file]
        inode.before = inode.before or bytes(inode.data)
        inode.data[: len(data)] = data
        self._changed()

    def sync(self, file: FileHandle) -> None:
        self._change()
        inode = self.handles[file]
        inode.synced, inode.before = len(inode.data), b""
        self._changed()

    def close(self, file: FileHandle) -> None:
        """Nothing is lost or saved by it."""

    def cut(self, path: Path, size_bytes: int) -> None:
        self._change()
        inode = self.names_now[path.name]
        del inode.data[size_bytes:]
        inode.synced = size_bytes
        self._changed()

    def rename(self, source: Path, target: Path) -> None:
        self._change()
        self._name(target.name, source.name, self.names_now[source.name])
        self._changed()

    def remove(self, path: Path) -> None:
        self._change()
        self._name(None, path.name, self.names_now[path.name])
        self._changed()

    def sync_folder(self, folder: Path) -> None:
        self._change()
        self.names_durable, self.pending = dict(self.names_now), []
        self._changed()

    def lock(self, path: Path) -> FileHandle:
        self._read()
        return FileHandle(-1)

    def _name(self, target: str | None, source: str | None, inode: Inode) -> None:
        self.pending.append((target, source, inode))
        if source is not None:
            self.names_now.pop(source, None)
        if target is not None:
            self.names_now[target] = inode

"""A disk in memory: it obeys a fault plan, and tells what a power cut could leave."""

from __future__ import annotations

import enum
import errno
import itertools
import os
import random
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from paxosblock.base.checksum import Buffer
from paxosblock.errors import ConfigError, NoSpaceError, StorageError
from paxosblock.host.disk import FileHandle, Room
from paxosblock.host.kernel_syncs import KernelSyncs
from tests.disks.faults import Fault, FaultPlan
from tests.disks.power_cut import Cut, File, Files, Moment, Named, Names, Pending, Wrote

ROOMY = 1 << 40
REMOVED = Path("removed")


class Burns(enum.Enum):
    """The moment at which the power goes, before, during or after the operation that it hits."""

    BEFORE = "before"
    HALFWAY = "halfway"
    """Half of what a write was given is in the file; nothing else has happened."""
    AFTER = "after"


class _Changing:
    """One change of a disk; True when the power goes in the middle of it. A generator would take
    three times as long, and a life makes forty thousand changes."""

    __slots__ = ("_burns", "_disk", "_divisible")

    def __init__(self, disk: SimulatedDisk, *, divisible: bool) -> None:
        """Half of it may be done only if it is `divisible`."""
        self._disk, self._divisible = disk, divisible
        self._burns: Burns | None = None

    def __enter__(self) -> bool:
        disk = self._disk
        disk._mutex.acquire()
        try:
            self._burns = disk._begin_change(divisible=self._divisible)
        except BaseException:
            disk._mutex.release()
            raise
        return self._burns is Burns.HALFWAY

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        try:
            if failed is None:
                self._disk._end_change(self._burns)
        finally:
            self._disk._mutex.release()


class SimulatedDisk:
    """A `Disk` of one machine. Its folders are there; any thread may use it."""

    def __init__(
        self,
        files: Mapping[Path, bytes] | None = None,
        *,
        capacity_bytes: int | None = None,
        records: bool = False,
    ) -> None:
        """`files` are durable. So much fits on it as `capacity_bytes`; a file without bytes takes
        no room. With `records`, `history` has the moment after each operation."""
        self.names_now = Names({path: File(data) for path, data in (files or {}).items()})
        self.names_durable = dict(self.names_now)
        self.pending = Pending()
        self.capacity_bytes = capacity_bytes
        self.full = False
        """No file can be made, and of what is written only half finds room."""
        self.remembers = True
        """The system has all files in memory."""
        self.refusals = 0
        """Number of times that there was no room."""
        self.plan = FaultPlan()
        self.met: list[str] = []
        """Calls that met a fault, oldest first."""
        self.synced: list[Path] = []
        """Files, in the order in which they were synced."""
        self.operations = 0
        """Changes so far."""
        self.dead = False
        self.bytes_lost = 0
        self.history: list[Moment] = []
        self._records = records
        self._fuse = 0
        self._burns = Burns.AFTER
        self._burn: Callable[[], None] = self.die
        self._handles: dict[int, File] = {}
        self._locks: dict[int, Path] = {}
        self._numbers = itertools.count(3)
        self._mutex = threading.RLock()

    @classmethod
    def when_killed_at(cls, moment: Moment, *, records: bool = True) -> SimulatedDisk:
        """Return it as the next process finds it when one was killed at `moment`: all that was
        handed to the system is there, and a later power cut may take what no process synced.
        """
        disk, files = cls(records=records), {}
        for file, (durable, changes) in moment.contents.items():
            files[file] = File(durable)
            for change in changes:
                files[file].change(change)
        disk.names_durable = {path: files[file] for path, file in moment.names.items()}
        disk.names_now = Names(disk.names_durable)
        for each in moment.renames:
            disk._rename(Named(each.source, each.target, files[each.file]))
        return disk

    # -- what a test does to it -----------------------------------------------------------------

    def breaks(self, *faults: Fault) -> None:
        """From the next call on these are its faults. What was met before is forgotten."""
        self.met = []
        self.plan.tell(*faults)

    def mend(self) -> None:
        """From the next call on all goes well, and what is late ends at once."""
        self.plan.tell()

    def light(
        self, fuse: int, burns: Burns = Burns.AFTER, burn: Callable[[], None] | None = None
    ) -> None:
        """The power goes with so many more changes; 0: it does not. `burn` says what that does."""
        self._fuse, self._burns, self._burn = fuse, burns, burn or self.die

    def die(self) -> None:
        """Refuse everything from now on."""
        self.dead = True

    def power_cut(self, rng: random.Random) -> SimulatedDisk:
        """Return the disk as the next process finds it."""
        self.dead = True
        left = self.moment().one_of_many(rng)
        again = SimulatedDisk(left, capacity_bytes=self.capacity_bytes)
        lost = (
            max(0, len(file.data) - len(left.get(path, b"")))
            for path, file in self.names_now.items()
        )
        again.bytes_lost = self.bytes_lost + sum(lost)
        return again

    def next_process(self) -> SimulatedDisk:
        """Return it, when only a process ended: all that was handed to the system is there."""
        if self.dead:
            self.dead = False
            self.light(0)
        self._handles.clear()
        self._locks.clear()
        return self

    def after_the_end(self, rng: random.Random, *, power_cut: bool) -> SimulatedDisk:
        """Return it as the next process finds it when one was killed in the middle of whatever it
        did, or the power went; no step in the middle of which that was comes any further."""
        if power_cut:
            return self.power_cut(rng)
        return SimulatedDisk(self.files()) if self.dead else self.next_process()

    def moment(self, note: object = None) -> Moment:
        """Return what a power cut could leave now."""
        with self._mutex:
            files = [*self.names_durable.values(), *(rename.file for rename in self.pending)]
            contents = {file: (file.durable, tuple(file.changes)) for file in files}
            return Moment(dict(self.names_durable), tuple(self.pending), contents, note)

    def note(self, what: object) -> None:
        """Write `what` down in the history."""
        self.history.append(self.moment(what))

    def files(self) -> Files:
        """Everything that is on it now."""
        return {path: bytes(file.data) for path, file in self.names_now.items()}

    def used_bytes(self) -> int:
        """Return how many bytes the files take."""
        return sum([len(file.data) for file in self.names_now.values()])

    # -- `Disk` ---------------------------------------------------------------------------------

    def make_folder(self, folder: Path) -> None:
        self._check()

    def names(self, folder: Path) -> list[str]:
        self._check()
        return self.names_now.within(str(folder))

    def create(self, path: Path) -> FileHandle:
        self._meet("open", path)
        with self._changing():
            if not self.full:
                file = File()
                self._rename(Named(None, path, file))
        if self.full:
            raise self._no_room()
        return self._handle(file)

    def open(self, path: Path) -> FileHandle:
        self._meet("open", path)
        self._check()
        return self._handle(self._file(path))

    def open_to_read(self, path: Path) -> FileHandle:
        return self.open(path)

    def close(self, file: FileHandle) -> None:
        self._handles.pop(file, None)
        self._locks.pop(file, None)

    def size(self, file: FileHandle) -> int:
        self._check()
        return len(self._handles[file].data)

    def size_of(self, path: Path) -> int:
        self._meet("open", path)
        self._check()
        return len(self._file(path).data)

    def write(self, file: FileHandle, data: Buffer, offset: int) -> None:
        inode = self._handles[file]
        failing = self._meet("write", inode)
        with self._changing(divisible=True) as halfway:
            fits = self._fitting(len(data), offset - len(inode.data))
            if halfway or failing or self.full:
                fits = len(data) // 2
            if fits:
                # A room is kept by writing the same bytes again and again: not copied each time.
                given = data if isinstance(data, bytes) else memoryview(data)
                inode.change(Wrote(offset, bytes(given[:fits])))
        if failing is not None:
            raise _failure(failing, "write")
        if fits < len(data) or self.full:
            raise self._no_room()

    def read(self, file: FileHandle, size_bytes: int, offset: int) -> bytes:
        inode = self._handles[file]
        self._meet("read", inode)
        self._check()
        return bytes(inode.data[offset : offset + size_bytes])

    def read_stored(self, file: FileHandle, size_bytes: int, offset: int) -> bytes:
        return self.read(file, size_bytes, offset)

    def read_into(self, file: FileHandle, into: memoryview, offset: int) -> int:
        data = self.read(file, len(into), offset)
        into[: len(data)] = data
        return len(data)

    def read_cached(self, file: FileHandle, into: memoryview, offset: int) -> bool:
        data = self._handles[file].data[offset : offset + len(into)]
        if len(data) < len(into) or not self.remembers:
            return False
        into[:] = data
        return True

    def truncate(self, file: FileHandle, size_bytes: int) -> None:
        inode = self._handles[file]
        self._meet("truncate", inode)
        with self._changing():
            inode.change(Cut(size_bytes))

    def sync(self, file: FileHandle) -> None:
        self.begin_sync(file)()

    def begin_sync(self, file: int) -> Callable[[], None]:
        """Begin a sync, and return what ends it: what is written between the two may be lost."""
        inode = self._handles[file]
        changed = inode.changed

        def end() -> None:
            self._meet("sync", inode)
            with self._changing():
                inode.settle_first(changed)
                self.synced.append(self._path(inode))

        return end

    def write_out(self, file: FileHandle) -> None:
        """A power cut may take all of it."""
        self._meet("sync", self._handles[file])
        self._check()

    def kernel_syncs(self) -> KernelSyncs | None:
        """No kernel knows its files; `simulated_syncs.py` stands for one that does."""
        return None

    def rename(self, source: Path, target: Path) -> None:
        self._meet("rename", source)
        with self._changing():
            self._rename(Named(source, target, self._file(source)))

    def remove(self, path: Path) -> None:
        self._meet("remove", path)
        with self._changing():
            self._rename(Named(path, None, self._file(path)))

    def link(self, source: Path, target: Path) -> None:
        self._meet("link", source)
        self._check()
        if target in self.names_now:
            raise StorageError(f"cannot link {source} to {target}: {os.strerror(errno.EEXIST)}")
        file = self._file(source)  # to try it with one that is not there is no change
        with self._changing():
            self._rename(Named(None, target, file))

    def link_count(self, file: FileHandle) -> int:
        self._check()
        return sum(one is self._handles[file] for one in self.names_now.values())

    def remove_folder(self, folder: Path) -> None:
        """A folder without files is none here."""
        self._check()
        if self.names(folder):
            raise StorageError(f"cannot remove {folder}: {os.strerror(errno.ENOTEMPTY)}")

    def sync_folder(self, folder: Path) -> None:
        self._meet("sync", folder)
        with self._changing():
            self.pending.sync(str(folder), self.names_durable)

    def lock(self, path: Path) -> FileHandle:
        self._meet("open", path)
        self._check()
        if path in self._locks.values():
            raise ConfigError(f"{path.parent} is in use by another process")
        number = FileHandle(next(self._numbers))
        self._locks[number] = path
        return number

    def room(self, folder: Path) -> Room:
        self._check()
        capacity = ROOMY if self.capacity_bytes is None else self.capacity_bytes
        return Room(capacity, 0 if self.full else max(0, capacity - self.used_bytes()))

    # -- inside ---------------------------------------------------------------------------------

    def _changing(self, *, divisible: bool = False) -> _Changing:
        """Return one change, to be made in a `with`."""
        return _Changing(self, divisible=divisible)

    def _begin_change(self, *, divisible: bool) -> Burns | None:
        """Return when the power goes, if it does with this change."""
        self._check()
        self.operations += 1
        self._fuse -= 1
        burns = self._burns if self._fuse == 0 else None
        if burns is Burns.BEFORE or (burns is Burns.HALFWAY and not divisible):
            self._burn()
            self._check()
        return burns

    def _end_change(self, burns: Burns | None) -> None:
        if burns is not None:
            self._burn()
            self._check()
        if self._records:
            self.history.append(self.moment())

    def _check(self) -> None:
        if self.dead:
            raise StorageError("the power is gone")

    def _meet(self, call: str, what: Path | File) -> Fault | None:
        """Meet a fault of the plan; the result lets a part of a write happen before it fails."""
        if self.plan.idle:  # as most of the time, and a life makes a hundred thousand calls
            return None
        fault = self.plan.meet(
            call, lambda: str(what if isinstance(what, Path) else self._path(what))
        )
        if fault is None:
            return None
        self.met.append(call)
        self.plan.wait(fault)
        if not fault.error:
            return None
        if not (fault.partly and call == "write"):
            raise _failure(fault, call)
        return fault

    def _no_room(self) -> NoSpaceError:
        self.refusals += 1
        return NoSpaceError("No space left on device")

    def _fitting(self, size: int, gap: int) -> int:
        """Return how much of a write of `size` bytes, begun `gap` after the file's end, fits."""
        if self.capacity_bytes is None:
            return size
        lacking = size + gap - max(0, self.capacity_bytes - self.used_bytes())
        return max(0, size - max(0, lacking))

    def _rename(self, change: Named) -> None:
        self.pending.add(change)
        change.happen(self.names_now)

    def _handle(self, file: File) -> FileHandle:
        number = FileHandle(next(self._numbers))
        self._handles[number] = file
        return number

    def _file(self, path: Path) -> File:
        if path not in self.names_now:
            gone = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            raise StorageError.of(f"cannot open {path}", gone) from gone
        return self.names_now[path]

    def _path(self, file: File) -> Path:
        path = file.path
        if path is not None and self.names_now.get(path) is file:
            return path
        names = tuple(self.names_now.items())  # another thread may change them
        return next((path for path, one in names if one is file), REMOVED)


def _failure(fault: Fault, call: str) -> NoSpaceError | StorageError:
    code = getattr(errno, fault.error)
    no_room = code == errno.ENOSPC and call in ("open", "write")
    error = (NoSpaceError if no_room else StorageError)(f"cannot {call}: {os.strerror(code)}")
    error.__cause__ = OSError(code, os.strerror(code))
    return error

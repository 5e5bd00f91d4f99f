"""Every state that a power cut can leave of the store's files, opened again.

`PowerCutDisk` keeps files in memory and records each operation. What a power cut leaves after the
first n operations: what was synced, and of what was not any part. Each appended piece is there,
torn or missing; each creation, renaming and removal of a name happened or did not.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest

from paxosblock.errors import CorruptionError, NoSpaceError
from paxosblock.namenode.kv import mark
from paxosblock.namenode.kv.codec import encode_transaction
from paxosblock.namenode.kv.disk import FileHandle
from paxosblock.namenode.kv.interface import Transaction, Versioned
from paxosblock.namenode.kv.snapshot import Pace
from paxosblock.namenode.kv.storage import Limits, Storage, open_storage

FOLDER = Path("/kv")
LIMITS = Limits(segment_bytes=160, snapshot_bytes=300)
Files = dict[str, bytes]
Model = dict[bytes, Versioned]


@dataclass(slots=True)
class Inode:
    """A file's bytes: `data[:synced]` is durable; `pieces` are the lengths appended since, and
    `versions` what it held before each time that it was written over since."""

    data: bytes = b""
    synced: int = 0
    pieces: list[int] = field(default_factory=list)
    versions: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class PowerCutDisk:
    """A `Disk` in memory. From operation `fuse` on, every change fails with EIO half done."""

    names_now: dict[str, Inode] = field(default_factory=dict)
    names_durable: dict[str, Inode] = field(default_factory=dict)
    pending: list[tuple[str, str | None, Inode]] = field(default_factory=list)
    handles: list[Inode] = field(default_factory=list)
    operations: int = 0
    fuse: int = 1 << 60
    locked: bool = False
    full: bool = False
    """Of what is appended only half finds room."""

    @classmethod
    def holding(cls, files: Files) -> PowerCutDisk:
        inodes = {name: Inode(data, len(data)) for name, data in files.items()}
        return cls(dict(inodes), dict(inodes))

    def _operate(self) -> bool:
        """Count a change; False when it is to fail."""
        self.operations += 1
        return self.operations < self.fuse

    def _check(self) -> None:
        if not self._operate():
            raise OSError(errno.EIO, "input/output error")

    def make_folder(self, folder: Path) -> None:
        assert folder == FOLDER

    def names(self, folder: Path) -> list[str]:
        return list(self.names_now)

    def read(self, path: Path) -> bytes:
        return self.names_now[path.name].data

    def create(self, path: Path) -> FileHandle:
        self._check()
        inode = Inode()
        self._rename(path.name, None, inode)
        self.handles.append(inode)
        return FileHandle(len(self.handles) - 1)

    def append(self, file: FileHandle, data: bytes) -> None:
        inode = self.handles[file]
        whole = self._operate()
        written = data if whole and not self.full else data[: len(data) // 2]
        inode.data += written
        inode.pieces.append(len(written))
        if whole and self.full:
            raise NoSpaceError("no room")
        if not whole:
            raise OSError(errno.ENOSPC, "no space left on device")

    def open(self, path: Path) -> FileHandle:
        self.handles.append(self.names_now[path.name])
        return FileHandle(len(self.handles) - 1)

    def overwrite(self, file: FileHandle, data: bytes) -> None:
        self._check()
        inode = self.handles[file]
        inode.versions.append(inode.data)
        inode.data = data + inode.data[len(data) :]

    def free_bytes(self, folder: Path) -> int:
        return 0 if self.full else 1 << 40

    def sync(self, file: FileHandle) -> None:
        self._check()
        inode = self.handles[file]
        inode.synced, inode.pieces, inode.versions = len(inode.data), [], []

    def close(self, file: FileHandle) -> None:
        self.locked = self.locked and file != -1

    def cut(self, path: Path, size_bytes: int) -> None:
        self._check()
        inode = self.names_now[path.name]
        inode.data, inode.synced, inode.pieces = inode.data[:size_bytes], size_bytes, []

    def rename(self, source: Path, target: Path) -> None:
        self._check()
        self._rename(target.name, source.name, self.names_now[source.name])

    def remove(self, path: Path) -> None:
        self._check()
        self.pending.append(("", path.name, self.names_now.pop(path.name)))

    def sync_folder(self, folder: Path) -> None:
        self._check()
        self.names_durable, self.pending = dict(self.names_now), []

    def lock(self, path: Path) -> FileHandle:
        assert not self.locked, "a crash or a close came before"
        self.locked = True
        return FileHandle(-1)

    def _rename(self, target: str, source: str | None, inode: Inode) -> None:
        self.pending.append((target, source, inode))
        self.names_now.pop(source or "", None)
        self.names_now[target] = inode

    def after_kill(self) -> Files:
        """What is left when only the process dies: everything it handed to the kernel."""
        return {name: inode.data for name, inode in self.names_now.items()}

    def after_power_cut(self, survived: tuple[bool, ...], contents: dict[int, bytes]) -> Files:
        """`survived[i]`: the i-th pending change of a name; `contents`: by id of the inode."""
        names = dict(self.names_durable)
        for (target, source, inode), happened in zip(self.pending, survived, strict=True):
            if happened:
                names.pop(source or "", None)
                if target:
                    names[target] = inode
        return {name: contents.get(id(inode), inode.data) for name, inode in names.items()}

    def unsynced(self) -> list[Inode]:
        inodes = [*self.names_now.values(), *self.names_durable.values()]
        inodes += [inode for _, _, inode in self.pending]
        each = {id(inode): inode for inode in inodes}.values()
        return [inode for inode in each if inode.pieces or inode.versions]

    def power_cuts(self, chance: random.Random) -> Iterator[Files]:
        """Yield what may be left: every subset of names; torn pieces at bytes of every kind."""
        for survived in product((False, True), repeat=len(self.pending)):
            yield self.after_power_cut(survived, {})
            for inode in self.unsynced():
                for content in torn(inode, chance):
                    yield self.after_power_cut(survived, {id(inode): content})


def torn(inode: Inode, chance: random.Random) -> Iterator[bytes]:
    """Yield the contents a file may have: the durable part, then any part of each piece; or
    what it held before it was written over, and mixtures."""
    for version in inode.versions:
        yield version
        mixed = chance.randrange(len(version))
        yield inode.data[:mixed] + version[mixed:]
        yield version[:mixed] + inode.data[mixed:]
    durable, tail = inode.data[: inode.synced], inode.data[inode.synced :]
    for size in range(len(tail)):
        rest = len(tail) - size
        yield durable + tail[:size]
        yield durable + tail[:size] + bytes(rest)
        yield durable + tail[:size] + chance.randbytes(rest)
        yield durable + bytes(size) + tail[size:]
    for subset in product((False, True), repeat=min(len(inode.pieces), 6)):
        content, offset = durable, 0
        for piece, kept in zip(inode.pieces, subset, strict=False):
            content += tail[offset : offset + piece] if kept else bytes(piece)
            offset += piece
        yield content


class Workload:
    """Batches of puts through a `Storage`, beside a model of what must be there after each entry.

    Restarts and snapshots come often, so that each of their steps is cut, too.
    """

    def __init__(self, disk: PowerCutDisk) -> None:
        self.disk = disk
        self.models: list[Model] = [{}]  # models[i]: the map after entry i
        self.acknowledged = 0

    def run(self) -> None:
        for round_number in range(3):
            storage = open_storage(self.disk, FOLDER, LIMITS)
            try:
                for batch in range(5):
                    if batch == round_number:
                        self._find_no_room(storage)
                    self._commit(storage, round_number, batch)
                    self._snapshot_if_due(storage)
            finally:
                if round_number != 1:  # the second round ends like a killed process
                    storage.close()
                self.disk.locked = False

    def _commit(self, storage: Storage, round_number: int, batch: int) -> None:
        payloads = []
        for entry in range(1 + batch % 2):
            key = b"k%d" % ((batch + entry) % 3)
            value = b"%d/%d/%d" % (round_number, batch, entry)
            payloads.append(encode_transaction(Transaction(puts=((key, value),))))
            index = len(self.models)
            self.models.append({**self.models[-1], key: Versioned(value, index)})
        storage.append(payloads)
        self.acknowledged = len(self.models) - 1
        self._adopt(storage)

    def _find_no_room(self, storage: Storage) -> None:
        """What is refused leaves nothing behind that a later start could take for an entry."""
        payload = encode_transaction(Transaction(puts=((b"refused", bytes(50)),)))
        self.disk.full = True
        try:
            with pytest.raises(NoSpaceError):
                storage.append([payload])
        finally:
            self.disk.full = False

    def _adopt(self, storage: Storage) -> None:
        """Apply to the machine what was appended, as the engine does."""
        while storage.machine.revision < self.acknowledged:
            index = storage.machine.revision + 1
            changed = self.models[index].items() - self.models[index - 1].items()
            puts = tuple((key, versioned.value) for key, versioned in changed)
            storage.machine.apply(index, Transaction(puts=puts))

    @staticmethod
    def _snapshot_if_due(storage: Storage) -> None:
        if not storage.snapshot_due:
            return
        storage.begin_snapshot()
        snapshot = storage.machine.snapshot()
        storage.write_snapshot(snapshot, Pace(0))
        storage.forget(snapshot.revision)

    def check(self, files: Files) -> None:
        """Open what is left; all that was acknowledged is there, nothing invented, and it goes on.

        Entries that were under way when the power went may be there, in order.
        """
        disk = PowerCutDisk.holding(files)
        revision = self._found(disk)
        assert self.acknowledged <= revision < len(self.models)
        again = open_storage(disk, FOLDER, LIMITS)
        again.append([encode_transaction(Transaction(puts=((b"new", b""),)))])
        again.close()
        last = open_storage(disk, FOLDER, LIMITS).machine
        expected = {**self.models[revision], b"new": Versioned(b"", revision + 1)}
        assert dict(last.scan(b"", b"")) == expected

    def _found(self, disk: PowerCutDisk) -> int:
        storage = open_storage(disk, FOLDER, LIMITS)
        machine = storage.machine
        assert dict(machine.scan(b"", b"")) == self.models[machine.revision]
        disk.locked = False
        return machine.revision


def run_until(operation: int) -> tuple[Workload, bool]:
    """Run the workload until its disk fails at `operation`; tell whether it came to that."""
    workload = Workload(PowerCutDisk(fuse=operation))
    try:
        workload.run()
    except OSError:
        return workload, True
    return workload, workload.disk.operations >= operation


def every_operation() -> Iterator[Workload]:
    operation = 1
    while True:
        workload, reached = run_until(operation)
        if not reached:
            return
        yield workload
        operation += 1


def test_the_workload_passes_through_restarts_snapshots_and_several_segments() -> None:
    workload, failed = run_until(1 << 60)
    assert not failed
    assert workload.acknowledged == 21
    assert workload.disk.operations > 100
    kinds = {name.split("-")[0] for name in workload.disk.names_now}
    assert kinds == {"journal", "snapshot", "durable"}


def test_whichever_operation_the_power_cut_hits_nothing_acknowledged_is_lost() -> None:
    chance = random.Random(1)
    states = 0
    for workload in every_operation():
        # Many a cut leaves what another one does.
        left = dict.fromkeys(frozenset(cut.items()) for cut in workload.disk.power_cuts(chance))
        for files in left:
            workload.check(dict(files))
        states += len(left)
    assert states > 10_000


def test_whichever_operation_the_process_dies_at_nothing_acknowledged_is_lost() -> None:
    for workload in every_operation():
        workload.check(workload.disk.after_kill())


def test_a_power_cut_during_the_repair_after_a_power_cut_loses_nothing() -> None:
    chance = random.Random(2)
    repairs = 0
    for workload in every_operation():
        (files,) = chance.sample(list(workload.disk.power_cuts(chance)), 1)
        for disk in interrupted_repairs(files):
            for left in chance.sample(list(disk.power_cuts(chance)), 1):
                workload.check(left)
                repairs += 1
    assert repairs > 500


def interrupted_repairs(files: Files) -> Iterator[PowerCutDisk]:
    """Yield the disk after opening `files` failed at its first, second, ... operation."""
    operation = 1
    while True:
        disk = PowerCutDisk.holding(files)
        disk.fuse = operation
        try:
            open_storage(disk, FOLDER, LIMITS)
        except OSError:
            yield disk
        else:
            return
        operation += 1


def test_what_a_restart_has_shown_survives_a_power_cut_right_after_it() -> None:
    """A process that died between write and sync leaves entries that are readable, not durable."""
    chance = random.Random(3)
    more = 0
    for workload in every_operation():
        disk = workload.disk
        disk.fuse = 1 << 60
        revision = open_storage(disk, FOLDER, LIMITS).machine.revision
        more += revision > workload.acknowledged
        workload.acknowledged = revision
        for files in chance.sample(list(disk.power_cuts(chance)), 1):
            workload.check(files)
    assert more > 10


def test_a_flipped_bit_in_what_a_later_write_proved_durable_is_refused() -> None:
    workload, _ = run_until(1 << 60)
    files = workload.disk.after_kill()
    refused = 0
    for name, data in files.items():
        for bit in range(0, len(data) * 8, 7):
            broken = bytearray(data)
            broken[bit // 8] ^= 1 << bit % 8
            refused += is_refused({**files, name: bytes(broken)}, name, workload)
    # A durable mark that does not check is one that was being written.
    promised = [data for name, data in files.items() if name != mark.NAME]
    total = sum(len(range(0, len(data) * 8, 7)) for data in promised)
    last_mark = 36 * 8 // 7 + 1  # the mark of the clean close itself may pass for a torn tail
    assert refused >= total - last_mark


def is_refused(files: Files, name: str, workload: Workload) -> bool:
    """Tell whether the damage is refused by name; if it is not, nothing may be missing."""
    try:
        workload.check(files)
    except CorruptionError as error:
        message = str(error)
    else:
        return False
    return name in message and "\n" not in message


@pytest.mark.parametrize("position", ["first", "last"])
def test_a_missing_segment_is_refused(position: str) -> None:
    disk = PowerCutDisk()
    for _ in range(3):
        storage = open_storage(disk, FOLDER, Limits(1, 1 << 30))
        storage.append([encode_transaction(Transaction(puts=((b"k", b"v"),)))])
        storage.close()
    files = disk.after_kill()
    segments = sorted(name for name in files if name.startswith("journal"))
    missing = {"first": segments[0], "last": segments[1]}[position]
    del files[missing]
    with pytest.raises(CorruptionError, match="are missing"):
        open_storage(PowerCutDisk.holding(files), FOLDER, Limits())


def test_damage_behind_a_segment_s_last_entry_is_not_called_missing_entries() -> None:
    disk = PowerCutDisk()
    for _ in range(2):
        storage = open_storage(disk, FOLDER, Limits(1, 1 << 30))
        storage.append([encode_transaction(Transaction(puts=((b"k", b"v"),)))])
        storage.close()
    files = disk.after_kill()
    first = min(name for name in files if name.startswith("journal"))
    files[first] += b"\1\2\3"
    told = rf"{first}: damaged at offset \d+: 3 bytes behind its last entry do not check"
    with pytest.raises(CorruptionError, match=told):
        open_storage(PowerCutDisk.holding(files), FOLDER, Limits())

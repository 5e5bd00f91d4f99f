"""Every state that a power cut can leave of the store's files, opened again.

The power goes at each operation, in the middle of it if it is a write. What is left: what was
synced, and of what was not any part. Each piece that was written is there, torn or missing; each
creation, renaming and removal of a name happened or did not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from paxosblock.errors import CorruptionError, NoSpaceError, StorageError
from paxosblock.host.disk import Room
from paxosblock.namenode.kv.interface import Edit, Versioned
from paxosblock.namenode.raft.member_folder import Limits
from tests.disks.power_cut import Files
from tests.disks.simulated import Burns, SimulatedDisk
from tests.journal.records import payloads
from tests.raft.alone import LoneFolder
from tests.shares import IN_SHARES, share

FOLDER = Path("/member")
LIMITS = Limits(segment_bytes=320, flush_bytes=400)
Model = dict[bytes, Versioned]


class Spareless(SimulatedDisk):
    """Keeps no room for votes: a MiB of zeros in each of thousands of states would take minutes."""

    def room(self, folder: Path) -> Room:
        return Room(0, super().room(folder).free_bytes)


class Workload:
    """Batches of puts through a `LoneFolder`, beside a model of what must be there after each.

    Restarts and snapshots come often, so that each of their steps is cut, too.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.models: list[Model] = [{}]  # models[i]: the map after entry i
        self.acknowledged = 0

    def run(self) -> None:
        for round_number in range(3):
            storage = LoneFolder(self.disk, FOLDER, LIMITS)
            try:
                for batch in range(5):
                    if batch == round_number:
                        self._find_no_room(storage)
                    self._commit(storage, round_number, batch)
                    self._flush_if_due(storage)
            finally:
                if round_number != 1:  # the second round ends like a killed process
                    storage.close()
            if round_number == 1:
                self.disk.next_process()

    def _commit(self, storage: LoneFolder, round_number: int, batch: int) -> None:
        edits = []
        for entry in range(1 + batch % 2):
            key = b"k%d" % ((batch + entry) % 3)
            value = b"%d/%d/%d" % (round_number, batch, entry)
            edits.append(Edit(puts=((key, value),)))
            index = len(self.models)
            self.models.append({**self.models[-1], key: Versioned(value, index)})
        storage.append(*edits)
        self.acknowledged = len(self.models) - 1
        for edit in edits:
            storage.apply(edit)

    def _find_no_room(self, storage: LoneFolder) -> None:
        """A refused edit leaves nothing behind that a later start could take for an entry."""
        refused = Edit(puts=((b"refused", bytes(50)),))
        self.disk.full = True
        try:
            with pytest.raises(NoSpaceError):
                storage.append(refused)
        finally:
            self.disk.full = False

    @staticmethod
    def _flush_if_due(storage: LoneFolder) -> None:
        if storage.flush_due:
            flush = storage.begin_flush()
            flush.write()
            storage.forget(flush.revision)

    def check(self, files: Files) -> None:
        """Open what is left; all that was acknowledged is there, nothing invented, and it goes on.

        Entries that were under way when the power went may be there, in order.
        """
        disk = Spareless(files)
        revision = self._found(disk)
        assert self.acknowledged <= revision < len(self.models)
        again = LoneFolder(disk, FOLDER, LIMITS)
        again.append(Edit(puts=((b"new", b""),)))
        again.close()
        last = LoneFolder(disk, FOLDER, LIMITS).machine
        expected = {**self.models[revision], b"new": Versioned(b"", revision + 1)}
        assert dict(last.scan(b"", b"")) == expected

    def _found(self, disk: SimulatedDisk) -> int:
        machine = LoneFolder(disk, FOLDER, LIMITS).machine
        assert dict(machine.scan(b"", b"")) == self.models[machine.revision]
        disk.next_process()
        return machine.revision


def run_until(operation: int) -> tuple[Workload, bool]:
    """Run the workload until its disk fails at `operation`; tell whether it came to that."""
    workload = Workload(Spareless())
    workload.disk.light(operation, Burns.HALFWAY)
    with suppress(StorageError):
        workload.run()
    return workload, workload.disk.dead


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
    kinds = {path.name.split("-")[0] for path in workload.disk.files()}
    assert kinds == {"journal", "db", "durable", "vote"}


@IN_SHARES
def test_whichever_operation_the_power_cut_hits_nothing_acknowledged_is_lost(every: int) -> None:
    chance = random.Random(1)
    states = 0
    for workload in share(every_operation(), every):
        # Many a cut leaves what another one does.
        left = dict.fromkeys(frozenset(cut.items()) for cut in workload.disk.moment().tears(chance))
        for files in left:
            workload.check(dict(files))
        states += len(left)
    assert states > 14_000 / every


def test_whichever_operation_the_process_dies_at_nothing_acknowledged_is_lost() -> None:
    for workload in every_operation():
        workload.check(workload.disk.files())


def test_a_power_cut_during_the_repair_after_a_power_cut_loses_nothing() -> None:
    chance = random.Random(2)
    repairs = 0
    for workload in every_operation():
        (files,) = chance.sample(list(workload.disk.moment().tears(chance)), 1)
        for disk in interrupted_repairs(files):
            for left in chance.sample(list(disk.moment().tears(chance)), 1):
                workload.check(left)
                repairs += 1
    assert repairs > 500


def interrupted_repairs(files: Files) -> Iterator[SimulatedDisk]:
    """Yield the disk after opening `files` failed at its first, second, ... operation."""
    operation = 1
    while True:
        disk = Spareless(files)
        disk.light(operation, Burns.HALFWAY)
        try:
            LoneFolder(disk, FOLDER, LIMITS)
        except StorageError:
            yield disk
        else:
            return
        operation += 1


def test_what_a_restart_has_shown_survives_a_power_cut_right_after_it() -> None:
    """A process that died between write and sync leaves entries that are readable, not durable."""
    chance = random.Random(3)
    more = 0
    for workload in every_operation():
        disk = workload.disk.next_process()
        revision = LoneFolder(disk, FOLDER, LIMITS).machine.revision
        more += revision > workload.acknowledged
        workload.acknowledged = revision
        for files in chance.sample(list(disk.moment().tears(chance)), 1):
            workload.check(files)
    assert more > 10


def test_a_flipped_bit_in_what_was_durable_is_refused_or_mended() -> None:
    workload, _ = run_until(1 << 60)
    files = workload.disk.files()
    refused = expected = 0
    for path, data in files.items():
        in_payloads = {at for each in payloads(data) for at in each}
        for bit in range(0, len(data) * 8, 7):
            broken = bytearray(data)
            broken[bit // 8] ^= 1 << bit % 8
            refused += is_refused({**files, path: bytes(broken)}, path, workload)
            # A mark that does not check is one that was being written.
            of_entries = path.name.startswith("journal") and bit // 8 in in_payloads
            expected += of_entries or path.name.startswith("db")
    assert refused >= expected > 90


def is_refused(files: Files, path: Path, workload: Workload) -> bool:
    """Tell whether the damage is refused by name; if it is not, nothing may be missing."""
    try:
        workload.check(files)
    except CorruptionError as error:
        message = str(error)
    else:
        return False
    return str(path) in message and "\n" not in message


@pytest.mark.parametrize("position", ["first", "last"])
def test_a_missing_segment_is_refused(position: str) -> None:
    disk = Spareless()
    for _ in range(3):
        storage = LoneFolder(disk, FOLDER, Limits(1, 1 << 30))
        storage.append(Edit(puts=((b"k", b"v"),)))
        storage.close()
    files = disk.files()
    segments = sorted(path for path in files if path.name.startswith("journal"))
    missing = {"first": segments[0], "last": segments[1]}[position]
    del files[missing]
    with pytest.raises(CorruptionError, match="missing"):
        LoneFolder(Spareless(files), FOLDER)


def test_what_is_behind_the_end_of_a_segment_does_not_count() -> None:
    """A torn tail stays there, and the next segment says where the records end."""
    disk = Spareless()
    for _ in range(2):
        storage = LoneFolder(disk, FOLDER, Limits(1, 1 << 30))
        storage.append(Edit(puts=((b"k", b"v"),)))
        storage.close()
    files = disk.files()
    first = min(path for path in files if path.name.startswith("journal"))
    files[first] += b"\1\2\3"
    assert LoneFolder(Spareless(files), FOLDER).machine.revision == 2

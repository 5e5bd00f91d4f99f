"""The files of a log: refusals leave nothing, a sync counts what it covers, gaps are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from paxosblock.datanode.store.small_records import FORMAT, SmallNames
from paxosblock.errors import NoSpaceError, StorageError
from paxosblock.host.disk import FileHandle
from paxosblock.journal.durable_mark import DurableTo, read_mark
from paxosblock.journal.record_log import MARK_NAME, RecordLog
from paxosblock.journal.segment import FIRST_OWN_KIND, HEADER_BYTES, RECORD_BYTES
from tests.disks.faults import Fault
from tests.disks.simulated import SimulatedDisk

FOLDER = Path("/log")
KIND = FIRST_OWN_KIND
LONG = 1 << 20


class Found:
    """A log, and what it lost."""

    def __init__(self, disk: SimulatedDisk, boot: str | None = None) -> None:
        self.lost: list[tuple[int, str]] = []
        names = SmallNames(FOLDER)
        self.log = RecordLog(disk, names, FORMAT, boot, lambda at, _, why: self.note(at, why))
        self.segments = [*self.log.open(), self.log.last]
        self.keys = [each.key for each in self.log.last_records() if each.kind >= KIND]

    def note(self, number: int, why: str) -> None:
        self.lost.append((number, why))


def begun(disk: SimulatedDisk) -> RecordLog:
    log = Found(disk).log
    log.begin_segment(LONG)
    return log


def marked(disk: SimulatedDisk) -> DurableTo | None:
    return read_mark(disk, FOLDER / MARK_NAME, FORMAT)


def segment(disk: SimulatedDisk, number: int = 1) -> bytes:
    return disk.files()[FOLDER / f"log_{number}"]


def test_a_record_for_which_there_is_no_room_leaves_nothing() -> None:
    disk = SimulatedDisk()
    log = begun(disk)
    log.append(KIND, 1, b"first")
    before = segment(disk)
    disk.full = True
    with pytest.raises(NoSpaceError):
        log.append(KIND, 2, bytes(100))
    assert segment(disk) == before
    assert log.highest == 1
    disk.full = False
    log.append(KIND, 3, b"third")
    log.sync()
    assert Found(disk.next_process()).keys == [1, 3]


def test_after_a_write_that_failed_nothing_is_made_durable() -> None:
    disk = SimulatedDisk()
    log = begun(disk)
    disk.breaks(Fault(("write",), "log_1", "EIO"))
    with pytest.raises(StorageError):
        log.append(KIND, 1, b"first")
    disk.mend()
    log.append(KIND, 2, b"second")
    with pytest.raises(StorageError, match="Input/output error"):
        log.sync()


def test_the_mark_counts_no_record_whose_sync_failed() -> None:
    disk = SimulatedDisk()
    log = begun(disk)
    before = marked(disk)
    log.append(KIND, 1, b"first")
    disk.breaks(Fault(("sync",), "log_1", "EIO"))
    with pytest.raises(StorageError):
        log.sync()
    assert marked(disk) == before


def test_a_sync_counts_only_what_was_appended_before_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    log, sync = begun(disk), disk.sync
    log.append(KIND, 1, b"first")
    end = len(segment(disk))

    def append_meanwhile(file: FileHandle) -> None:
        ended = disk.begin_sync(file)
        log.append(KIND, 2, b"second")
        ended()

    monkeypatch.setattr(disk, "sync", append_meanwhile)
    log.sync()
    assert marked(disk) == DurableTo(1, end, 1)
    monkeypatch.setattr(disk, "sync", sync)
    log.sync()
    assert marked(disk) == DurableTo(1, end + RECORD_BYTES + len(b"second"), 2)


def test_a_sync_that_ends_late_takes_nothing_back_from_the_mark() -> None:
    """It noted how far the log was before another thread began to sync more."""
    disk = SimulatedDisk()
    log = begun(disk)
    log.append(KIND, 1)
    taking, early = log.taking, DurableTo(1, len(segment(disk)), 1)
    assert taking is not None
    log.append(KIND, 2)
    log.sync()
    latest = marked(disk)
    log._note_synced(taking, early)
    assert marked(disk) == latest
    assert taking.synced == taking.end


def test_a_new_segment_begins_when_all_before_is_durable_and_says_where_that_ended() -> None:
    disk = SimulatedDisk()
    log = begun(disk)
    log.append(KIND, 1)
    log.begin_segment(1)
    log.append(KIND, 2)
    assert marked(disk) == DurableTo(1, len(segment(disk)), 1)
    left = disk.files()
    left[FOLDER / "log_1"] += b"torn"
    found = Found(SimulatedDisk(left))
    assert (found.segments, found.keys, found.lost) == ([1, 2], [2], [])
    assert [each.key for each in found.log.records_of(1)] == [1]


def test_a_segment_that_was_only_begun_is_begun_again() -> None:
    disk = SimulatedDisk()
    log = begun(disk)
    log.append(KIND, 1)
    log.begin_segment(1)
    left = disk.files()
    left[FOLDER / "log_2"] = left[FOLDER / "log_2"][:HEADER_BYTES]
    again = SimulatedDisk(left)
    found = Found(again)
    assert (found.segments, found.keys, found.lost) == ([1], [1], [])
    found.log.begin_segment(LONG)
    found.log.append(KIND, 2)
    found.log.sync()
    assert Found(again.next_process()).segments == [1, 2]


@pytest.mark.parametrize("records", [0, 1])
def test_a_missing_segment_is_told_by_the_one_behind_it(records: int) -> None:
    """By its header, which is durable before any record: there may be none yet, and no mark."""
    disk = SimulatedDisk()
    log = begun(disk)
    for key in (1, 2):
        log.append(KIND, key)
        log.begin_segment(1)
    for key in range(records):
        log.append(KIND, 3 + key)
    left = disk.files()
    if not records:
        left[FOLDER / "log_3"] = left[FOLDER / "log_3"][:HEADER_BYTES]
    del left[FOLDER / "log_2"], left[FOLDER / MARK_NAME]
    lost = Found(SimulatedDisk(left)).lost
    assert set(lost) == {(2, f"{FOLDER / 'log_2'} is missing")}


def test_a_segment_under_the_name_of_another_one_is_not_read() -> None:
    disk = SimulatedDisk()
    log = begun(disk)
    log.append(KIND, 1)
    log.sync()
    left = disk.files()
    left[FOLDER / "log_7"] = left.pop(FOLDER / "log_1")
    found = Found(SimulatedDisk(left))
    assert found.keys == []
    assert found.lost == [(7, f"{FOLDER / 'log_7'} is another segment, under a wrong name")]

"""A member's files on disk: the vote, the log with its cuts, the snapshot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from paxosblock.errors import ConfigError, CorruptionError, NoSpaceError, StorageError
from paxosblock.host.disk import OsDisk
from paxosblock.journal.record_log import MARK_NAME
from paxosblock.journal.segment import HEADER_BYTES
from paxosblock.namenode.kv.codec import decode_edit, encode_edit
from paxosblock.namenode.kv.interface import Committed, Edit, Versioned
from paxosblock.namenode.kv.rocks_table import ROCKS
from paxosblock.namenode.raft.entry import Entry, EntryKind, encode_entry
from paxosblock.namenode.raft.log import RaftLog
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.namenode.raft.member_folder import OpenedFolder, open_folder
from paxosblock.namenode.raft.vote_file import ElectionVote, VoteFile
from tests.disks.simulated import SimulatedDisk
from tests.journal.records import entries_in, payloads
from tests.memory_table import MEMORY, MemoryTable
from tests.raft.rig import stream_of
from tests.waiting import wait_until_async

FOLDER = Path("/member")
SEGMENT_BYTES = 300


def entry(term: int, text: str = "") -> Entry:
    return Entry(term, EntryKind.EDIT, text.encode())


def put(key: bytes, value: bytes) -> bytes:
    return encode_edit(Edit(puts=((key, value),)))


def install(opened: OpenedFolder, machine: ReplicatedMachine) -> None:
    """Make the map of another member that of the next start."""
    receiver = opened.receive()
    receiver.write(stream_of(machine))
    assert receiver.check() == machine.revision
    receiver.install()


class OpenLog:
    """A folder, its log, and a flushing task to be awaited."""

    def __init__(self, opened: OpenedFolder, executor: ThreadPoolExecutor) -> None:
        self.opened = opened
        self.log = RaftLog(opened.tail, opened.journal, executor)
        self.synced = asyncio.Event()
        self.refused: list[NoSpaceError | None] = []

    async def flushed(self) -> None:
        while self.log.durable_index < self.log.last_log_index:
            self.synced.clear()
            await self.synced.wait()

    def terms(self) -> list[int | None]:
        first, last = self.log.base_index + 1, self.log.last_log_index
        return [self.log.term_at(index) for index in range(first, last + 1)]


@asynccontextmanager
async def opened_log(folder: Path, term: int = 9) -> AsyncIterator[OpenLog]:
    with ThreadPoolExecutor(1) as executor:
        opened = open_folder(OsDisk(), folder, SEGMENT_BYTES, MEMORY)
        if opened.votes.vote.term < term:
            opened.votes.write(ElectionVote(term, None))
        work = OpenLog(opened, executor)
        flushing = asyncio.create_task(work.log.flush(work.synced.set, work.refused.append))
        try:
            yield work
            await work.flushed()
        finally:
            flushing.cancel()
            opened.close()


async def test_records_are_written_while_others_hear_that_those_before_are_durable(
    tmp_path: Path,
) -> None:
    with ThreadPoolExecutor(1) as executor:
        opened = open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, MEMORY)
        log, told = RaftLog(opened.tail, opened.journal, executor), list[tuple[int, int]]()
        everything = asyncio.Event()

        def on_durable() -> None:
            told.append((log.durable_index, log.bytes_written))
            if log.durable_index == 1:
                log.append(entry(9, "queued later"))
            elif log.durable_index == 3:
                everything.set()

        flushing = asyncio.create_task(log.flush(on_durable, lambda _: None))
        before = log.bytes_written
        log.append(entry(9, "first"))
        await asyncio.sleep(0)
        assert log.bytes_written > before, "it is being written"
        first = log.bytes_written
        log.append(entry(9, "second"))  # while the first is being written
        await asyncio.wait_for(everything.wait(), 30)
        assert told[0][0] == 1
        assert told[0][1] > first, "the second was given to the disk before the first was told of"
        flushing.cancel()
        opened.close()


def test_s5_term_and_vote_are_one_record_that_survives(tmp_path: Path) -> None:
    VoteFile(OsDisk(), tmp_path).write(ElectionVote(7, "a:1"))
    assert VoteFile(OsDisk(), tmp_path).vote == ElectionVote(7, "a:1")


@pytest.mark.parametrize(
    "after", [ElectionVote(4, None), ElectionVote(5, "b:1"), ElectionVote(5, None)]
)
def test_a_vote_is_neither_changed_nor_forgotten_nor_of_an_older_term(
    tmp_path: Path, after: ElectionVote
) -> None:
    votes = VoteFile(OsDisk(), tmp_path)
    votes.write(ElectionVote(5, "a:1"))
    with pytest.raises(AssertionError, match="second vote"):
        votes.write(after)
    assert VoteFile(OsDisk(), tmp_path).vote == ElectionVote(5, "a:1")


def test_s4_a_crash_at_any_operation_leaves_the_old_vote_or_the_new_one() -> None:
    found = set()
    for fuse in range(1, 8):
        for seed in range(20):
            disk = SimulatedDisk()
            VoteFile(disk, FOLDER).write(ElectionVote(5, "a:1"))
            disk.light(fuse)
            with suppress(StorageError):
                VoteFile(disk, FOLDER).write(ElectionVote(6, "b:1"))
            found.add(VoteFile(disk.power_cut(random.Random(seed)), FOLDER).vote)
    assert found == {ElectionVote(5, "a:1"), ElectionVote(6, "b:1")}


def test_a_damaged_vote_stops_the_start(tmp_path: Path) -> None:
    VoteFile(OsDisk(), tmp_path).write(ElectionVote(7, "a:1"))
    file = tmp_path / "vote"
    data = bytearray(file.read_bytes())
    data[9] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptionError, match=rf"^{file}: damaged; replace .* never by an older"):
        open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, MEMORY)


def test_a_folder_is_open_once_at_a_time(tmp_path: Path) -> None:
    opened = open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, MEMORY)
    with pytest.raises(ConfigError, match="in use by another process"):
        open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, MEMORY)
    opened.close()
    open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, MEMORY).close()


async def test_s1_s2_entries_of_any_term_with_any_bytes_come_back(tmp_path: Path) -> None:
    texts = ["", "\n", "10\n\n", "\x00"]
    async with opened_log(tmp_path, term=11) as work:
        for term in (1, 10, 10, 11):
            work.log.append(entry(term, texts[work.log.last_log_index]))
    async with opened_log(tmp_path, term=11) as work:
        assert work.terms() == [1, 10, 10, 11]
        assert work.log.durable_index == 4
        assert [work.log.entry(index + 1).payload.decode() for index in range(4)] == texts


async def test_s6_s7_appending_and_applying_read_and_rewrite_nothing(tmp_path: Path) -> None:
    async with opened_log(tmp_path) as work:
        sizes = []
        for _ in range(3):
            before = work.log.bytes_written
            for _ in range(50):
                index = work.log.append(Entry(1, EntryKind.EDIT, put(b"k", b"v")))
                await work.flushed()
                work.opened.machine.apply(index, decode_edit(work.log.entry(index).payload))
            sizes.append(work.log.bytes_written - before)
        assert sizes == [sizes[0]] * 3
        assert not list(tmp_path.glob("db-*"))


async def test_s6b_cutting_a_tail_writes_only_what_replaces_it(tmp_path: Path) -> None:
    async with opened_log(tmp_path) as work:
        for _ in range(500):
            work.log.append(entry(1, "text"))
        await work.flushed()
        before = work.log.bytes_written
        work.log.cut_from(400)
        work.log.append(entry(2, "text"))
        await work.flushed()
        assert work.log.bytes_written - before < 50


def test_s9_reading_touches_no_disk() -> None:
    disk = SimulatedDisk()
    opened = open_folder(disk, FOLDER, 1 << 20, MEMORY)
    disk.die()
    assert not opened.machine.get(b"absent").exists


def test_s10_everything_of_a_member_lies_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a:1"
    open_folder(OsDisk(), folder, SEGMENT_BYTES, MEMORY).close()
    assert [path.name for path in tmp_path.iterdir()] == ["a:1"]


async def test_s6b_a_tail_that_was_cut_and_replaced_stays_replaced(tmp_path: Path) -> None:
    async with opened_log(tmp_path) as work:
        for _ in range(5):
            work.log.append(entry(1))
        await work.flushed()
        work.log.cut_from(3)
        assert work.log.durable_index == 2
        work.log.append(entry(2))
        assert work.log.durable_index == 2
    async with opened_log(tmp_path) as work:
        assert work.terms() == [1, 1, 2]


async def test_an_entry_counts_as_durable_only_when_it_is_the_one_that_was_written(
    tmp_path: Path,
) -> None:
    async with opened_log(tmp_path) as work:
        work.log.append(entry(1))
        work.log.append(entry(1))
        work.log.cut_from(2)  # before anything was flushed
        work.log.append(entry(2))
        assert work.log.durable_index == 0
        await work.flushed()
        assert work.log.durable_index == 2
    async with opened_log(tmp_path) as work:
        assert work.terms() == [1, 2]


def test_a_garbled_tail_that_was_never_synced_is_cut_off() -> None:
    disk = SimulatedDisk()
    opened = open_folder(disk, FOLDER, 1 << 20, MEMORY)
    opened.votes.write(ElectionVote(1, None))
    opened.journal.append([encode_entry(1, entry(1, "kept"))])
    disk.light(2)
    with pytest.raises(OSError, match="power"):
        opened.journal.append([encode_entry(2, entry(1, "garbled"))])
    files = disk.files()
    segment = next(path for path in files if path.name.startswith("journal"))
    files[segment] = files[segment][:-1] + bytes([files[segment][-1] ^ 1])
    tail = open_folder(SimulatedDisk(files), FOLDER, 1 << 20, MEMORY).tail
    assert tail.entries == [entry(1, "kept")]


async def test_compaction_removes_segments_and_the_rest_follows_the_snapshot(
    tmp_path: Path,
) -> None:
    machine = ReplicatedMachine(MemoryTable())
    async with opened_log(tmp_path) as work:
        for number in range(40):
            index = work.log.append(Entry(1, EntryKind.EDIT, put(b"k", b"%d" % number)))
            await work.flushed()
            if index <= 30:
                machine.apply(index, decode_edit(work.log.entry(index).payload), 1)
        before = len(list(tmp_path.glob("journal-*")))
        install(work.opened, machine)
        work.log.compact(30, 30 - 4)
        assert work.log.base_index == 25
        await wait_until_async(lambda: len(list(tmp_path.glob("journal-*"))) < before / 2)
    async with opened_log(tmp_path) as work:
        assert work.opened.machine.revision == 30
        assert work.log.last_log_index == 40
        assert work.opened.machine.get(b"k") == Versioned(b"29", 30)


async def test_a_start_removes_what_the_snapshot_covers_and_reads_none_of_it(
    tmp_path: Path,
) -> None:
    """The crash came before it was removed."""
    machine = ReplicatedMachine(MemoryTable())
    async with opened_log(tmp_path) as work:
        for index in range(1, 41):
            work.log.append(Entry(1, EntryKind.NOOP, b"some bytes"))
            await work.flushed()
            if index <= 30:
                machine.apply(index, Edit(), 1)
        install(work.opened, machine)
    segments = sorted(tmp_path.glob("journal-*"))
    before = len(segments)
    for path in [path for path in segments if int(path.name[-20:]) < 25]:
        data = path.read_bytes()
        path.write_bytes(data[: HEADER_BYTES + 80] + bytes(len(data) - HEADER_BYTES - 80))
    for _ in range(2):
        async with opened_log(tmp_path) as work:
            assert (work.log.base_index, work.log.last_log_index) == (30, 40)
            assert len(list(tmp_path.glob("journal-*"))) < before / 2


async def test_a_log_replaced_by_a_snapshot_does_not_come_back(tmp_path: Path) -> None:
    machine = ReplicatedMachine(MemoryTable())
    for index in range(1, 11):
        machine.apply(index, Edit(), 3)
    async with opened_log(tmp_path) as work:
        for _ in range(12):
            work.log.append(entry(1))
        await work.flushed()
        install(work.opened, machine)
        work.log.reset(10, 3)
        work.log.append(entry(3))
    async with opened_log(tmp_path) as work:
        assert (work.log.base_index, work.terms()) == (10, [3])


@pytest.mark.parametrize("index", range(5, 18))
async def test_entries_that_a_snapshot_replaced_do_not_follow_it(
    tmp_path: Path, index: int
) -> None:
    """Wherever a segment begins: the first one that is kept may begin with a void entry."""
    machine = ReplicatedMachine(MemoryTable())
    for each in range(1, index + 1):
        machine.apply(each, Edit(), 3)
    async with opened_log(tmp_path) as work:
        for _ in range(18):
            work.log.append(entry(1))
            await work.flushed()
        before = len(list(tmp_path.glob("journal-*")))
        install(work.opened, machine)
        work.log.reset(index, 3)
        await wait_until_async(lambda: len(list(tmp_path.glob("journal-*"))) < before)
    async with opened_log(tmp_path) as work:
        assert (work.log.base_index, work.log.term_at(index), work.terms()) == (index, 3, [])


@pytest.mark.parametrize("index", range(5, 18))
async def test_a_crash_before_the_base_was_written_loses_only_what_the_snapshot_replaced(
    tmp_path: Path, index: int
) -> None:
    """Wherever a segment begins: the record of the table's entry may be the last one before it, and
    it alone tells that those that follow do not continue the table."""
    machine = ReplicatedMachine(MemoryTable())
    for each in range(1, index + 1):
        machine.apply(each, Edit(), 3)
    async with opened_log(tmp_path) as work:
        for _ in range(18):
            work.log.append(entry(1))
            await work.flushed()
        install(work.opened, machine)
    async with opened_log(tmp_path) as work:
        assert (work.log.base_index, work.terms()) == (index, [])
        work.log.append(entry(4))
    async with opened_log(tmp_path) as work:
        assert (work.log.base_index, work.terms()) == (index, [4])


def test_a_journal_that_lost_what_it_had_confirmed_stops_the_start() -> None:
    disk = SimulatedDisk()
    opened = open_folder(disk, FOLDER, SEGMENT_BYTES, MEMORY)
    opened.votes.write(ElectionVote(1, None))
    for index in range(1, 4):
        opened.journal.append([encode_entry(index, entry(1, "some bytes"))])
    files = disk.files()
    (segment,) = (path for path in files if path.name.startswith("journal"))
    files[segment] = files[segment][: len(files[segment]) // 2]
    advice = "replace the folder as `paxosblock help operations` says, never by an older copy"
    with pytest.raises(
        CorruptionError,
        match=f"is damaged at .* 3, which had been durable, cannot be read; {advice}",
    ):
        open_folder(SimulatedDisk(files), FOLDER, SEGMENT_BYTES, MEMORY)


async def test_a_missing_segment_stops_the_start(tmp_path: Path) -> None:
    async with opened_log(tmp_path) as work:
        for _ in range(30):
            work.log.append(entry(1, "some text"))
            await work.flushed()
    segments = sorted(tmp_path.glob("journal-*"))
    assert len(segments) > 2
    segments[0].unlink()
    with pytest.raises(CorruptionError, match=r"entries 1 to \d+ are missing"):
        open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, MEMORY)


async def test_a_missing_journal_stops_the_start(tmp_path: Path) -> None:
    async with opened_log(tmp_path) as work:
        work.log.append(entry(1))
    for segment in tmp_path.glob("journal-*"):
        segment.unlink()
    with pytest.raises(CorruptionError, match="the journal is missing"):
        open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, MEMORY)


async def test_a_log_that_knows_a_later_term_than_the_vote_stops_the_start(tmp_path: Path) -> None:
    async with opened_log(tmp_path) as work:
        work.log.append(entry(9))
    (tmp_path / "vote").unlink()
    with pytest.raises(CorruptionError, match="the log knows term 9, the vote only 0"):
        open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, MEMORY)


def test_a_snapshot_comes_back_as_it_was(tmp_path: Path) -> None:
    opened = open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, MEMORY)
    opened.votes.write(ElectionVote(7, None))
    opened.machine.apply(1, Edit(puts=((b"k", b"value"),)), 7)
    opened.machine.flush().write()
    opened.close()
    opened = open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, MEMORY)
    machine = opened.machine
    assert (machine.revision, machine.term, opened.tail.base_term) == (1, 7, 7)
    assert machine.get(b"k") == Versioned(b"value", 1)
    assert machine.apply(2, Edit(puts=((b"k", b"more"),)), 7) == Committed(2)
    opened.close()


def test_opening_does_not_depend_on_what_a_crash_left_of_drafts(tmp_path: Path) -> None:
    open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, MEMORY).close()
    (tmp_path / "vote.tmp").write_bytes(b"half")
    (tmp_path / f"db-{7:020d}.tmp").write_bytes(b"half")
    open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, MEMORY).close()
    assert list(tmp_path.glob("*.tmp")) == []


@pytest.mark.parametrize("applied", [2, 3])
@pytest.mark.parametrize("known", [2, 3])
def test_a_stop_keeps_records_of_entries_that_the_map_lacks_or_the_log_in_memory(
    tmp_path: Path, applied: int, known: int
) -> None:
    """Three entries are durable; it knows of two or three of them, and has applied as many."""
    opened = open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, ROCKS, alone=True)
    opened.votes.write(ElectionVote(1, None))
    for index in range(1, 4):
        each = Entry(1, EntryKind.EDIT, put(b"k%d" % index, b"v"))
        opened.journal.append([encode_entry(index, each)])
        if index <= known:
            opened.tail.entries.append(each)
            opened.tail.positions.append(index)
        if index <= applied:
            opened.machine.apply_whole(index, each)
    opened.close()
    assert bool(entries_in(tmp_path)) is not (applied == known == 3)
    opened = open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, ROCKS, alone=True)
    assert (opened.machine.revision, len(opened.machine)) == (3, 3)
    opened.close()


def test_a_first_record_of_the_last_segment_that_was_torn_makes_none_before_it_needless(
    tmp_path: Path,
) -> None:
    """Its head is whole, and zeros behind that would say that it is of an entry before all."""
    opened = open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, ROCKS, alone=True)
    opened.votes.write(ElectionVote(1, None))
    for index in range(1, 5):
        each = Entry(1, EntryKind.EDIT, put(b"k%d" % index, b"v"))
        opened.journal.append([encode_entry(index, each)])
        (last,) = sorted(tmp_path.glob("journal-*"))[-1:]
        if index == 3:
            opened.journal.log.begin_segment(0)
    opened.close()
    data = last.read_bytes()
    ((begin, *_, end),) = payloads(data)
    last.write_bytes(data[:begin] + bytes(end + 1 - begin))
    (tmp_path / MARK_NAME).unlink()
    opened = open_folder(OsDisk(), tmp_path, SEGMENT_BYTES, ROCKS, alone=True)
    assert (opened.machine.revision, len(opened.machine)) == (3, 3)
    opened.close()

"""A member's map in RocksDB: killed between any two steps, it has all that was durable."""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Rdict

from paxosblock.base.checksum import crc32c
from paxosblock.errors import (
    ConfigError,
    CorruptionError,
    NoSpaceError,
    StorageError,
    UnavailableError,
)
from paxosblock.host.disk import OsDisk
from paxosblock.namenode.kv import rocks_table
from paxosblock.namenode.kv.codec import encode_edit
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit, Expect, Versioned
from paxosblock.namenode.kv.rocks_table import ROCKS, RocksTable, check_apart
from paxosblock.namenode.kv.table import pieces
from paxosblock.namenode.raft.entry import Entry, EntryKind, encode_entry
from paxosblock.namenode.raft.machine import ReplicatedMachine, Slices
from paxosblock.namenode.raft.member_folder import OpenedFolder, open_folder
from paxosblock.namenode.raft.vote_file import ElectionVote
from tests.disks.cut_short import CutShort
from tests.services.small_disk import small_disk

SEGMENT_BYTES = 100
TERM = 3


def edit(index: int) -> Edit:
    """One that, done twice or on another state, ends as a conflict."""
    return Edit((Expect(b"k", index - 1),), ((b"k", b"%d" % index), (b"%d" % index, b"")))


def map_after(index: int) -> dict[bytes, Versioned]:
    found = {b"%d" % each: Versioned(b"", each) for each in range(1, index + 1)}
    return found | ({b"k": Versioned(b"%d" % index, index)} if index else {})


def entry(index: int) -> Entry:
    return Entry(TERM, EntryKind.EDIT, encode_edit(edit(index)))


def opened(folder: Path, disk: OsDisk | None = None) -> OpenedFolder:
    return open_folder(disk or OsDisk(), folder, SEGMENT_BYTES)


def log_to(member: OpenedFolder, index: int) -> None:
    """Write the entries up to `index`, each as a batch of its own."""
    if member.votes.vote.term < TERM:
        member.votes.write(ElectionVote(TERM, None))
    for each in range(member.tail.last_index + 1, index + 1):
        member.tail.positions.append(member.journal.next_index)
        member.tail.entries.append(entry(each))
        member.journal.append([encode_entry(each, entry(each))])


def finish(applied: Committed | Conflict | Slices) -> None:
    if not isinstance(applied, Committed | Conflict):
        for _ in applied:
            pass


def apply_to(member: OpenedFolder, index: int) -> None:
    for each in range(member.machine.revision + 1, index + 1):
        finish(member.machine.apply_entry(each, entry(each)))


def left_by_a_crash(folder: Path) -> Path:
    """The files as they are while the process goes on: what one that is killed leaves.

    They are those of one moment: RocksDB may merge its files meanwhile, and remove some.
    """
    left = folder.with_name(f"{folder.name}-left")
    while True:
        shutil.rmtree(left, ignore_errors=True)
        with suppress(shutil.Error):
            shutil.copytree(folder, left)
            if names(left) == names(folder):
                return left


def names(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


def check_left(folder: Path, logged: int, installed: int = 0) -> int:
    """Start on what is left, and go on; return after which entry the map was."""
    left = left_by_a_crash(folder)
    with closing(opened(left)) as member:
        found = member.machine.revision
        assert found in range(logged + 1) or found == installed
        assert dict(member.machine.scan(b"", b"")) == map_after(found)
        assert member.machine.term == (TERM if found else 0)
        assert member.tail.base_index == found, "the log goes on where the map ends"
        assert member.tail.last_index == max(found, logged)
        log_to(member, member.tail.last_index + 1)
        apply_to(member, member.tail.last_index)
        assert dict(member.machine.scan(b"", b"")) == map_after(member.tail.last_index)
    return found


def test_between_apply_flush_and_the_cut_of_the_log_nothing_is_lost_or_done_twice(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "member"
    flushed = set()
    with closing(opened(folder)) as member:
        for index in range(1, 7):
            log_to(member, index)
            check_left(folder, index)
            apply_to(member, index)
            flushed.add(check_left(folder, index))
            if index % 2 == 0:
                flush = member.machine.flush()
                flush.write()
                assert check_left(folder, index) >= index
                member.journal.remove_through(member.tail.positions[index - 1])
                assert check_left(folder, index) >= index
    assert flushed >= {0, 2, 4}, "some were killed before the flush"


def test_a_flush_ahead_of_the_own_log_is_gone_on_from(tmp_path: Path) -> None:
    """RocksDB flushes by itself what a majority has, when this disk has not yet got it."""
    folder = tmp_path / "member"
    with closing(opened(folder)) as member:
        log_to(member, 3)
        apply_to(member, 5)  # the others have 4 and 5
        member.machine.flush().write()
        left = left_by_a_crash(folder)
    with closing(opened(left)) as again:
        assert (again.machine.revision, again.machine.term) == (5, TERM)
        assert (again.tail.base_index, again.tail.base_term, again.tail.entries) == (5, TERM, [])
        log_to(again, 6)
    with closing(opened(left)) as again:
        assert (again.machine.revision, again.tail.last_index) == (5, 6)


# -- the table of another member -------------------------------------------------------------------


def stream_after(index: int, folder: Path) -> bytes:
    """Return what a member that has applied `index` entries sends."""
    with closing(opened(folder)) as member:
        apply_to(member, index)
        checkpoint = member.machine.checkpoint().make()
        with closing(checkpoint):
            return b"".join(pieces(checkpoint, 1000))


def install(member: OpenedFolder, stream: bytes) -> None:
    """Do with the folder as `RaftNode` does when a leader sends its table."""
    receiver = member.receive()
    for begin in range(0, len(stream), 10_000):
        receiver.write(stream[begin : begin + 10_000])
    receiver.check()
    before = member.machine.adopt(receiver.install())
    before.discard()


def test_killed_anywhere_while_it_takes_the_leaders_table_it_has_that_one_or_its_own(
    tmp_path: Path,
) -> None:
    stream = stream_after(9, tmp_path / "leader")
    with closing(opened(tmp_path / "before")) as member:
        log_to(member, 5)
        apply_to(member, 4)
    found, done = [], False
    for steps in range(100):
        folder, disk = tmp_path / f"{steps}", CutShort()
        shutil.copytree(tmp_path / "before", folder)
        with closing(opened(folder, disk)) as member:
            disk.left = steps
            done = True
            try:
                install(member, stream)
            except StorageError:
                done = False
            found.append(check_left(folder, 5, installed=9))
            disk.left = 1 << 30
        shutil.rmtree(folder)
        if done:
            break
    assert found == sorted(found), "once it has the leader's, it keeps that"
    assert found.count(4) > 5
    assert found.count(9) >= 3
    assert done


def test_after_the_leaders_table_was_taken_nothing_of_the_one_before_is_left(
    tmp_path: Path,
) -> None:
    with closing(opened(tmp_path / "member")) as member:
        log_to(member, 5)
        for index in (9, 12):
            install(member, stream_after(index, tmp_path / f"leader-{index}"))
            names = {path.name for path in (tmp_path / "member").iterdir() if path.is_dir()}
            assert names == {f"db-{index:020d}"}
            assert dict(member.machine.scan(b"", b"")) == map_after(index)
    assert not list(tmp_path.glob("leader-*/db.*")), "a checkpoint leaves nothing behind"
    with closing(opened(tmp_path / "member")) as member:
        assert member.machine.revision == 12


def test_after_the_leaders_table_was_taken_a_look_at_a_key_finds_what_is_there(
    tmp_path: Path,
) -> None:
    with closing(opened(tmp_path / "member")) as member:
        apply_to(member, 4)
        install(member, stream_after(9, tmp_path / "leader"))
        wanted = map_after(9)
        assert {key: member.machine.get(key) for key in wanted} == wanted


def test_a_table_for_which_there_is_no_room_is_given_up_and_the_own_one_stays(
    tmp_path: Path,
) -> None:
    stream = stream_after(9, tmp_path / "leader")
    (tmp_path / "small").mkdir()
    with small_disk(tmp_path / "small") as disk:
        if disk is None:
            pytest.skip("no small file system can be made here")
        with closing(opened(disk.folder / "member")) as member:
            log_to(member, 5)
            apply_to(member, 5)
            disk.fill()
            with pytest.raises(NoSpaceError):
                member.machine.checkpoint().make()
            receiver = member.receive()
            with pytest.raises(NoSpaceError):
                receiver.write(stream)
            receiver.discard()
            disk.empty()
            apply_to(member, 6)
            member.machine.flush().write()
            names = {path.name for path in (disk.folder / "member").iterdir() if path.is_dir()}
            assert names == {"db"}
            assert check_left(disk.folder / "member", 5, installed=6) == 6


@pytest.mark.parametrize("place", ["head", "list", "file", "end", "more"])
def test_a_table_that_is_damaged_on_its_way_is_refused_and_the_own_one_stays(
    tmp_path: Path, place: str
) -> None:
    stream = bytearray(stream_after(9, tmp_path / "leader"))
    match place:
        case "head":
            stream[9] ^= 1
        case "list":
            stream[30] ^= 1
        case "file":
            stream[stream.index(b"\0\0\0\0\0\0\0\t9")] ^= 1
        case "end":
            del stream[-1:]
        case _:
            stream += b"more"
    folder = tmp_path / "member"
    with closing(opened(folder)) as member:
        log_to(member, 5)
        with pytest.raises(CorruptionError):
            install(member, bytes(stream))
        assert check_left(folder, 5) == 0
        member.receive().discard()
        assert not (folder / "db.new").exists()


@pytest.mark.parametrize("name", ["../vote", "/vote", "", ".", "a/b", "a\nb"])
def test_a_list_of_files_that_points_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    from paxosblock.namenode.kv import rocks_files  # noqa: PLC0415 - what it makes is private

    listed = rocks_files._ENCODER.encode([(name, 1)])
    head = rocks_files._HEAD.pack(rocks_files._MAGIC, len(listed))
    crcs = [rocks_files._CRC.pack(crc32c(each)) for each in (head, listed)]
    with closing(opened(tmp_path / "member")) as member:
        receiver = member.receive()
        with pytest.raises(CorruptionError, match="the list of files that came is damaged"):
            receiver.write(head + crcs[0] + listed + crcs[1] + b"x")
        receiver.discard()


def test_a_checkpoint_is_the_map_after_an_entry_while_files_come_and_go(tmp_path: Path) -> None:
    """The files are compacted while they get their second names."""
    folder = tmp_path / "member"
    with closing(opened(folder)) as member:
        for index in range(1, 41):
            apply_to(member, index)
            copy = member.machine.checkpoint()
            assert copy.revision == index
            with closing(copy.make()) as checkpoint:
                stream = b"".join(pieces(checkpoint, 1 << 20))
            if index % 20 == 0:
                receiver = ROCKS.receive(OsDisk(), tmp_path)
                receiver.write(stream)
                assert receiver.check() == index
                receiver.discard()
        assert len(list((folder / "db").glob("*.sst"))) < 20, "some were compacted"


def test_a_file_that_a_compaction_has_only_begun_keeps_nobody_from_a_checkpoint(
    tmp_path: Path,
) -> None:
    with closing(opened(tmp_path / "leader")) as member:
        apply_to(member, 3)
        (tmp_path / "leader" / "db" / "999999.sst").touch()
        with closing(member.machine.checkpoint().make()) as checkpoint:
            stream = b"".join(pieces(checkpoint, 1 << 20))
    receiver = ROCKS.receive(OsDisk(), tmp_path)
    receiver.write(stream)
    assert receiver.check() == 3


def test_what_a_leader_sent_is_read_in_another_process_and_opened_here_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening it holds the interpreter, and the event loop with it."""
    stream = stream_after(9, tmp_path / "leader")
    here = []

    def count(path: str, *about: Any, **more: Any) -> Rdict:
        here.append(Path(path).name)
        return Rdict(path, *about, **more)

    monkeypatch.setattr(rocks_table, "Rdict", count)
    with closing(opened(tmp_path / "member")) as member:
        install(member, stream)
    assert here == ["db.new", "db", f"db-{9:020d}"], "the first two were its own"


def test_a_copy_brings_the_name_of_the_database_so_that_no_open_writes_one(
    tmp_path: Path,
) -> None:
    """The event loop would wait for its sync."""
    stream = stream_after(9, tmp_path / "leader")
    receiver = ROCKS.receive(OsDisk(), tmp_path)
    receiver.write(stream)
    receiver.check()
    known = (tmp_path / "leader" / "db" / "IDENTITY").read_bytes()
    assert (tmp_path / "db.new" / "IDENTITY").read_bytes() == known


def test_who_reads_a_table_apart_says_what_is_wrong_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks_table, "_FORMAT", 2)
    with closing(RocksTable(OsDisk(), tmp_path / "db", new=True)) as table:
        table.write(1, {b"a": Versioned(b"", 1)})
    before = {path.name: path.read_bytes() for path in (tmp_path / "db").glob("[!L]*")}
    with pytest.raises(ConfigError, match=r"db is of format 2, .* start the newer one"):
        check_apart(tmp_path / "db")
    assert {path.name: path.read_bytes() for path in (tmp_path / "db").glob("[!L]*")} == before
    with pytest.raises(CorruptionError, match="none: damaged: "):
        check_apart(tmp_path / "none")
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    with pytest.raises(NoSpaceError, match="cannot start a process that reads it"):
        check_apart(tmp_path / "db")


@pytest.mark.parametrize(
    ("program", "end"),
    [
        ("kill -9 $$", r"was ended by signal 9 \(Killed\)"),
        ("echo MemoryError >&2; exit 1", "ended with code 1 MemoryError"),
    ],
)
def test_who_is_killed_while_it_reads_a_table_has_not_called_it_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, end: str
) -> None:
    RocksTable(OsDisk(), tmp_path / "db", new=True).close()
    reader = tmp_path / "reader"
    reader.write_text(f"#!/bin/sh\n{program}\n")
    reader.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", str(reader))
        with pytest.raises(UnavailableError, match=f"db: .* {end}; nothing is known of"):
            check_apart(tmp_path / "db")
    assert check_apart(tmp_path / "db") == 0


def test_reading_all_of_a_table_finds_keys_that_are_missing(tmp_path: Path) -> None:
    with closing(RocksTable(OsDisk(), tmp_path / "db", new=True)) as table:
        table.write(1, {b"a": Versioned(b"", 1), b"b": Versioned(b"", 1)})
        table.check()
        del table._db[b"a"]
        with pytest.raises(CorruptionError, match="1 keys of 2"):
            table.check()


# -- folders of the version before -----------------------------------------------------------------


def test_the_machine_of_a_member_knows_the_term_of_its_last_entry(tmp_path: Path) -> None:
    """Also when that was long, or changed nothing."""
    long = Edit(puts=tuple((b"%d" % number, b"") for number in range(3000)))
    with closing(RocksTable(OsDisk(), tmp_path / "db", new=True)) as table:
        machine = ReplicatedMachine(table)
        for index, payload in enumerate((edit(1), long, edit(9)), 1):
            data = encode_edit(payload)
            finish(machine.apply_entry(index, Entry(index, EntryKind.EDIT, data)))
            assert (machine.revision, machine.term) == (index, index)
            table.flush().write()
            left = left_by_a_crash(tmp_path / "db")
            with closing(RocksTable(OsDisk(), left)) as again:
                assert (again.revision, again.term) == (index, index)

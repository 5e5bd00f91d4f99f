"""The two tables answer alike, and what RocksDB has on the disk is the map after some entry."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import count, islice
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paxosblock.base.units import KIB, MIB
from paxosblock.errors import (
    ConfigError,
    CorruptionError,
    NoSpaceError,
    OutcomeUnknownError,
    StorageError,
    UnavailableError,
)
from paxosblock.host.disk import OsDisk, Room
from paxosblock.namenode.kv import empty_ranges, rocks_options, rocks_table, state_machine
from paxosblock.namenode.kv.interface import (
    ABSENT,
    Committed,
    Conflict,
    Edit,
    Expect,
    ExpectEmpty,
    Versioned,
    prefix_range,
)
from paxosblock.namenode.kv.rocks_table import ROCKS, RocksTable
from paxosblock.namenode.kv.state_machine import StateMachine
from paxosblock.namenode.kv.table import SLICE_KEYS
from paxosblock.namenode.raft.member_folder import Limits, open_folder
from paxosblock.namenode.raft.store import ReplicatedStore
from tests import memory_table
from tests.disks.cut_short import CutShort
from tests.memory_table import MemoryTable
from tests.namenode.test_kv_state import next_or_result
from tests.raft.alone import LoneFolder, alone, opened
from tests.raft.members import node_of
from tests.services.small_disk import SmallDisk, small_disk
from tests.waiting import wait_until, wait_until_async

KEYS = [b"\0", b"a", b"a\0", b"a/b", b"b", b"b\xff", b"c", b"\xff", b"\xff\xff"]
keys = st.sampled_from(KEYS)
bounds = st.just(b"") | keys
ranges = st.tuples(bounds, bounds)
long_or_short = st.binary(max_size=3) | st.just(bytes(rocks_table.CACHED_VALUE_BYTES + 1))
edits = st.builds(
    Edit,
    expect=st.lists(
        st.builds(Expect, keys, st.integers(0, 12)) | st.builds(ExpectEmpty, bounds, bounds),
        max_size=1,
    ).map(tuple),
    puts=st.lists(st.tuples(keys, long_or_short), max_size=5).map(tuple),
    deletes=st.lists(keys, max_size=5).map(tuple),
)


@pytest.fixture(scope="module")
def new_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Names a folder that is not there yet."""
    folder, numbers = tmp_path_factory.mktemp("tables"), count()
    return lambda: folder / f"{next(numbers)}"


def put(key: bytes, value: bytes = b"v") -> Edit:
    return Edit(puts=((key, value),))


def everything(machine: StateMachine) -> dict[bytes, Versioned]:
    return dict(machine.scan(b"", b""))


# -- both alike ------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    log=st.lists(st.tuples(edits, st.booleans(), st.booleans()), max_size=12),
    asked=st.lists(st.tuples(ranges, st.booleans(), st.none() | st.integers(0, 3)), max_size=6),
    cached=st.integers(1, 4),
    owner_bytes=st.integers(1, 2),
)
def test_both_tables_give_the_same_answers_whatever_the_log(
    new_path: Callable[[], Path],
    log: list[tuple[Edit, bool, bool]],
    asked: list[tuple[tuple[bytes, bytes], bool, int | None]],
    cached: int,
    owner_bytes: int,
) -> None:
    """Also when a long entry is applied in slices, when keys leave the cache, and after a flush."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (state_machine, memory_table, rocks_table):
            patch.setattr(module, "SLICE_KEYS", 2)
        patch.setattr(rocks_table, "CACHED_KEYS", cached)
        patch.setattr(empty_ranges, "OWNER_BYTES", owner_bytes)
        patch.setattr(empty_ranges, "EMPTY_MAX", 2)
        ours, theirs = StateMachine(MemoryTable()), StateMachine(new_table(new_path()))
        with closing(theirs):
            for index, (edit, in_slices, flushed) in enumerate(log, 1):
                before = everything(ours)
                assert apply(ours, index, edit, in_slices, before) == apply(
                    theirs, index, edit, in_slices, before
                )
                if flushed:
                    assert theirs.flush().revision == index
                    theirs.flush().write()
                for span, reverse, limit in asked:  # what one finds helps the next one
                    found = list(theirs.scan(*span, limit, reverse))
                    assert found == list(ours.scan(*span, limit, reverse))
                assert [theirs.get(key) for key in KEYS] == [ours.get(key) for key in KEYS]
            assert (theirs.revision, len(theirs)) == (ours.revision, len(ours))
            for key in KEYS:
                assert theirs.count(key[:1]) == ours.count(key[:1])
            assert list(theirs) == list(ours)


def new_table(path: Path) -> RocksTable:
    return RocksTable(OsDisk(), path, new=True)


def apply(
    machine: StateMachine,
    index: int,
    edit: Edit,
    in_slices: bool,
    before: dict[bytes, Versioned],
) -> Committed | Conflict:
    """Apply an entry at once, or in slices after one attempt that was given up half-way."""
    if not in_slices:
        return machine.apply(index, edit)
    steps = machine.apply_in_slices(index, edit)
    result = next_or_result(steps)
    if result is None:
        steps.close()
        assert everything(machine) == before, "it was given up"
        steps = machine.apply_in_slices(index, edit)
    while result is None:
        assert (machine.revision, everything(machine)) == (index - 1, before)
        result = next_or_result(steps)
    return result


def test_the_cache_is_bounded_and_forgets_no_change(
    new_path: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks_table, "CACHED_KEYS", 3)
    table = new_table(new_path())
    long = Versioned(bytes(rocks_table.CACHED_VALUE_BYTES + 1), 2)
    with closing(table):
        table.write(1, {b"a": Versioned(b"1", 1)})
        table.write(2, {b"a": long})
        assert table.get(b"a") == long
        for number in range(20):
            table.write(3 + number, {b"%d" % number: Versioned(b"v", 3 + number)})
            assert len(table._values) <= 3
            assert len(table._values.earlier) <= 3
        table.write(30, {b"a": ABSENT})
        assert [table.get(b"a"), table.get(b"5")] == [ABSENT, Versioned(b"v", 8)]


def test_a_range_that_was_found_empty_is_not_looked_at_again_until_it_gets_a_key(
    new_path: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = b"e" + bytes(7)
    one, other = prefix_range(owner + b"\1"), prefix_range(owner + b"\2")
    with closing(new_table(new_path())) as table:
        table.write(1, {other[0] + b"a": Versioned(b"v", 1)})
        for reverse in (False, True):
            assert [key for key, _ in table.scan(*one, reverse)] == []
            with monkeypatch.context() as patch:
                patch.setattr(table, "_settle", lambda: pytest.fail("it looks"))
                assert list(table.scan(*one)) == list(table.scan(*one, reverse=True)) == []
                assert list(table.scan(one[0] + b"b", one[1])) == []
            table.write(table.revision + 1, {one[0] + b"a": Versioned(b"v", 2)})
            assert [key for key, _ in table.scan(*one, reverse)] == [one[0] + b"a"]
            table.write(table.revision + 1, {one[0] + b"a": ABSENT})
        assert list(table.scan(one[0] + b"b", one[1])) == []
        table.write(table.revision + 1, {one[0] + b"a": Versioned(b"v", 2)})
        assert [key for key, _ in table.scan(*one)] == [one[0] + b"a"]


def test_nobody_looks_behind_the_last_key_of_a_kind(
    new_path: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file has a greater number than all with blocks, and it is known to have none."""
    owners = [b"f" + number.to_bytes(8) for number in range(5)]
    spans = [prefix_range(owner) for owner in owners]
    with closing(new_table(new_path())) as table:
        table.write(1, {owners[1] + b"a": Versioned(b"v", 1), b"g": Versioned(b"v", 1)})
        assert [key for key, _ in table.scan(*spans[1], reverse=True)] == [owners[1] + b"a"]
        with monkeypatch.context() as patch:
            patch.setattr(table, "_settle", lambda: pytest.fail("it looks"))
            assert list(table.scan(*spans[2], reverse=True)) == list(table.scan(*spans[3])) == []
        table.write(2, {owners[3] + b"a": Versioned(b"v", 2)})
        assert [key for key, _ in table.scan(*spans[3])] == [owners[3] + b"a"]
        with monkeypatch.context() as patch:
            patch.setattr(table, "_settle", lambda: pytest.fail("it looks"))
            assert list(table.scan(*spans[2])) == [], "this was asked before"
            assert list(table.scan(*spans[4])) == []
        table.write(3, {owners[2] + b"a": Versioned(b"v", 3), owners[3] + b"a": ABSENT})
        assert [key for key, _ in table.scan(*spans[2])] == [owners[2] + b"a"]
        assert list(table.scan(*spans[3])) == list(table.scan(*spans[4])) == []
        assert [key for key, _ in table.scan(b"f", b"h")] == [
            owners[1] + b"a",
            owners[2] + b"a",
            b"g",
        ]


@pytest.mark.parametrize("in_slices", [False, True])
def test_the_database_is_not_asked_for_a_key_behind_all_of_its_kind(
    new_path: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, in_slices: bool
) -> None:
    """New files and blocks have greater numbers than all before; of other keys it may know."""
    path, value = new_path(), Versioned(b"v", 1)
    with closing(new_table(path)) as table:
        table.write(1, {b"b1": value, b"i3": value})
    with closing(RocksTable(OsDisk(), path)) as table:
        table.write(2, {b"b2": value, b"i4": value})  # it finds out the last ones
        if in_slices:
            list(table.write_in_slices(3, {b"b5": value, b"i1": value}))
        else:
            table.write(3, {b"b5": value, b"i1": value})
        found = {key: table.get(key).exists for key in (b"b1", b"b3", b"b4", b"b5", b"i1", b"i3")}
        assert found == {
            b"b1": True,
            b"b3": False,
            b"b4": False,
            b"b5": True,
            b"i1": True,
            b"i3": True,
        }
        with monkeypatch.context() as patch:
            patch.setattr(table, "_stored", lambda _: pytest.fail("it asks"))
            table.write(4, {b"b6": value, b"i5": value})
            assert not table.get(b"b7").exists
        assert table.get(b"b6") == value
        assert [key for key, _ in table.scan(b"b", b"c")] == [b"b1", b"b2", b"b5", b"b6"]


def test_what_a_sweeper_removed_is_passed_once(new_path: Callable[[], Path]) -> None:
    """Else each look for the first keys would take longer than the one before."""
    with closing(new_table(new_path())) as table:
        table.write(1, {b"g%05d" % number: Versioned(b"", 1) for number in range(100)})
        for index in range(2, 12):
            first = [key for key, _ in islice(table.scan(b"g", b"h"), 10)]
            assert first[0] == b"g%05d" % (10 * (index - 2))
            assert table._gaps.behind(b"g") == first[0]
            table.write(index, dict.fromkeys(first, ABSENT))
        assert list(table.scan(b"g", b"h")) == []
        assert table._gaps.behind(b"g") == b"h"
        table.write(12, {b"g00042": Versioned(b"", 12)})
        assert [key for key, _ in table.scan(b"g", b"h")] == [b"g00042"]


# -- what is on the disk ---------------------------------------------------------------------------


def left_by_a_crash(folder: Path, to: Path) -> Path:
    """The files as they are while the store goes on: what a process that is killed leaves."""
    shutil.copytree(folder, to)
    return to


def test_whatever_reached_the_disk_is_the_map_after_an_entry_which_it_names(
    tmp_path: Path,
) -> None:
    """Killed between any two of apply, flush, cut of the log: nothing is lost or done twice."""
    disk, folder = OsDisk(), tmp_path / "member"
    store = LoneFolder(disk, folder, Limits(segment_bytes=100), ROCKS)
    maps = [everything(store.machine)]
    with closing(store):
        for index in range(1, 7):  # so few flushes that nothing is compacted while it is copied
            # Done twice, or on another state, it would end as a conflict, or leave another value.
            edit = Edit((Expect(b"k", index - 1),), ((b"k", b"%d" % index),))
            store.append(edit)
            check_left(folder, tmp_path / f"{index}-appended", [*maps, {b"k": value(index)}])
            assert store.apply(edit) == Committed(index)
            maps.append(everything(store.machine))
            if index % 3 == 0:
                flush = store.begin_flush()
                check_left(folder, tmp_path / f"{index}-applied", maps)
                flush.write()
                check_left(folder, tmp_path / f"{index}-flushed", maps)
                store.forget(flush.revision)
                check_left(folder, tmp_path / f"{index}-forgotten", maps)
                assert int(min(folder.glob("journal-*")).name[-20:]) > index - 3


def check_left(folder: Path, to: Path, maps: list[dict[bytes, Versioned]]) -> None:
    left = left_by_a_crash(folder, to)
    for _ in range(2):
        store = LoneFolder(OsDisk(), left, tables=ROCKS)
        assert everything(store.machine) == maps[-1]
        assert store.machine.revision == len(maps) - 1
        store.close()


def value(index: int) -> Versioned:
    return Versioned(b"%d" % index, index)


def test_a_batch_of_the_database_that_flushes_by_itself_is_the_map_after_an_entry_too(
    new_path: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No caller asked for a flush; it came because there were enough changes in memory."""
    monkeypatch.setattr(rocks_options, "MEMTABLE_BYTES", 1 << 16)
    path = new_path()
    table = new_table(path)
    with closing(table):
        before = set(path.glob("*.sst"))
        index = 0
        while not set(path.glob("*.sst")) - before:
            index += 1
            changes = {b"%d" % number: Versioned(b"%0200d" % index, index) for number in range(5)}
            table.write(index, changes)
            table.flush()  # is not begun
        wait_until(lambda: not table._db.property_int_value("rocksdb.num-running-flushes"))
        left = RocksTable(OsDisk(), left_by_a_crash(path, path.with_name(f"{path.name}-left")))
    with closing(left):
        assert 0 < left.revision < index
        index = left.revision
        assert set(dict(left.scan(b"", b"")).values()) == {Versioned(b"%0200d" % index, index)}
        assert (len(left), left.count(b"3")) == (5, 1)


def test_a_database_whose_making_was_cut_short_is_made_again(tmp_path: Path) -> None:
    steps = 0
    while True:
        folder = tmp_path / f"{steps}"
        try:
            open_folder(CutShort(steps), folder, Limits().segment_bytes, ROCKS).close()
            break
        except StorageError:
            pass
        with closing(LoneFolder(OsDisk(), folder, tables=ROCKS)) as store:
            assert (store.machine.revision, everything(store.machine)) == (0, {})
        assert (folder / "db").exists()
        assert not (folder / "db.new").exists()
        steps += 1
    assert steps > 5


@pytest.mark.parametrize("lost", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_a_database_that_lacks_a_file_is_refused_in_one_line_and_left_as_it_is(
    tmp_path: Path, lost: str
) -> None:
    with closing(LoneFolder(OsDisk(), tmp_path, tables=ROCKS)) as store:
        store.apply(put(b"k"))
    min((tmp_path / "db").glob(lost)).unlink()
    before = {path.name for path in (tmp_path / "db").glob("*.sst")}
    for _ in range(2):
        with pytest.raises((CorruptionError, StorageError)) as refused:
            LoneFolder(OsDisk(), tmp_path, tables=ROCKS)
        assert str(tmp_path / "db") in str(refused.value)
        assert "\n" not in str(refused.value)
        assert {path.name for path in (tmp_path / "db").glob("*.sst")} == before


def test_a_database_that_is_gone_is_no_empty_one(tmp_path: Path) -> None:
    with closing(LoneFolder(OsDisk(), tmp_path, Limits(segment_bytes=40), ROCKS)) as store:
        for _ in range(2):
            store.commit(put(b"k"))
        store.begin_flush().write()
        store.forget(2)
        store.append(put(b"k"))
    shutil.rmtree(tmp_path / "db")
    with pytest.raises(CorruptionError, match="entries 1 to 1 are missing"):
        LoneFolder(OsDisk(), tmp_path, tables=ROCKS)


def test_a_flipped_byte_of_the_database_is_never_served(new_path: Callable[[], Path]) -> None:
    path = new_path()
    with closing(new_table(path)) as table:
        keys = [b"%04d" % index for index in range(1, 2000)]
        for index, key in enumerate(keys, 1):
            table.write(index, {key: Versioned(bytes(100), index)})
    flip_middle(path)
    table = RocksTable(OsDisk(), path)
    with closing(table):
        unreadable = [key for key in keys if not readable(partial(table.get, key))]
        assert 0 < len(unreadable) < len(keys)
        for _ in range(2):  # what the first scan did not find is no gap for the second
            assert not readable(lambda: list(table.scan(b"", b"")))
            assert not readable(lambda: list(table.scan(unreadable[1], unreadable[2])))


def test_a_directory_in_a_damaged_part_of_the_database_is_never_taken_for_an_empty_one(
    new_path: Callable[[], Path],
) -> None:
    path, owners = new_path(), [b"e" + number.to_bytes(8, "big") for number in range(1, 2000)]
    with closing(new_table(path)) as table:
        for index, owner in enumerate(owners, 1):
            table.write(index, {owner + b"name": Versioned(bytes(100), index)})
    flip_middle(path)
    table = RocksTable(OsDisk(), path)
    with closing(table):
        ranges = [prefix_range(owner) for owner in owners]
        for _ in range(2):
            found = [list(table.scan(*each)) for each in ranges if readable_range(table, each)]
            assert 0 < len(found) < len(ranges)
            assert [len(each) for each in found] == [1] * len(found)


def test_damage_is_told_to_whoever_watches_and_readers_get_what_that_says(
    new_path: Callable[[], Path],
) -> None:
    path = new_path()
    keys = [b"%04d" % index for index in range(1, 2000)]
    with closing(new_table(path)) as table:
        for index, key in enumerate(keys, 1):
            table.write(index, {key: Versioned(bytes(100), index)})
    flip_middle(path)
    table = RocksTable(OsDisk(), path)
    told: list[CorruptionError] = []

    def elsewhere(damage: CorruptionError) -> UnavailableError:
        told.append(damage)
        return UnavailableError("ask another member")

    with closing(table):
        unreadable = next(key for key in keys if not readable(partial(table.get, key)))
        table.on_damage = elsewhere
        for read in (
            partial(table.get, unreadable),
            lambda: list(table.scan(b"", b"")),
            partial(read_all, table, 100),
            partial(table.write, 2001, {b"0": Versioned(b"", 2001), unreadable: ABSENT}),
        ):
            told.clear()
            with pytest.raises(UnavailableError, match="ask another member"):
                read()
            assert str(path) in str(told[0])
        with pytest.raises(StorageError, match="a change met damage"):
            table.flush()
    with closing(RocksTable(OsDisk(), path)) as again:
        assert again.revision == 1999, "nothing is written after a change that met damage"
        assert len(again) == 1999


def read_all(table: RocksTable, keys: int) -> list[bytes]:
    """Read all in parts; return where each part began."""
    begins, following = [], table.read_some(b"", keys)
    while following is not None:
        begins.append(following)
        following = table.read_some(following, keys)
    return begins


def test_reading_some_comes_to_the_end_and_leaves_out_none(new_path: Callable[[], Path]) -> None:
    with closing(new_table(new_path())) as table:
        keys = [b"%04d" % index for index in range(10)]
        for index, key in enumerate(keys, 1):
            table.write(index, {key: Versioned(b"v", index)})
        table.flush().write()
        assert read_all(table, 4) == [keys[4], keys[8]]
        assert read_all(table, 10) == []


def flip_middle(path: Path) -> None:
    """Change one bit in the middle of the only file of keys."""
    (file,) = path.glob("*.sst")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def readable_range(table: RocksTable, wanted: tuple[bytes, bytes]) -> bool:
    """True if a scan of this range comes to its end."""
    return readable(lambda: list(table.scan(*wanted)))


def readable(read: Callable[[], object]) -> bool:
    with suppress(CorruptionError):
        read()
        return True
    return False


def test_a_database_of_a_later_format_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(LoneFolder(OsDisk(), tmp_path, tables=ROCKS)) as store:
        store.apply(put(b"k"))
        table = store.machine._table
        assert isinstance(table, RocksTable)
        with monkeypatch.context() as later:
            later.setattr(rocks_table, "_FORMAT", 2)
            table.write(2, {})
            table.flush()
    with pytest.raises(ConfigError, match=r"is of format 2, and this version .* knows up to 1"):
        LoneFolder(OsDisk(), tmp_path, tables=ROCKS)


def test_a_database_whose_record_has_no_term_is_that_of_a_single_namenode(
    new_path: Callable[[], Path],
) -> None:
    """Versions before the table of members was one wrote it so."""
    path = new_path()
    with closing(new_table(path)) as table:
        table._db[b"k"] = bytes(7) + b"\5v"
        table._db[b""] = msgspec.msgpack.encode([1, 5, {ord("k"): 1}])
    with closing(RocksTable(OsDisk(), path)) as table:
        assert (table.revision, table.term, len(table)) == (5, 0, 1)
        assert table.get(b"k") == Versioned(b"v", 5)
        table.check()


def test_an_open_database_has_the_options_of_this_version(new_path: Callable[[], Path]) -> None:
    """Not those of the version that made it, with the cache that the binding would give it."""
    path = new_path()
    new_table(path).close()
    with closing(RocksTable(OsDisk(), path)) as table:
        bound = table._db.property_int_value("rocksdb.block-cache-capacity")
        assert bound == rocks_options.BLOCKS_BYTES


# -- a full disk -----------------------------------------------------------------------------------


class NoRoom(OsDisk):
    """Nothing is free."""

    def room(self, folder: Path) -> Room:
        return Room(1, 0)


def test_a_flush_for_which_there_is_no_room_is_not_begun(new_path: Callable[[], Path]) -> None:
    """RocksDB would take no writes after it."""
    table = RocksTable(NoRoom(), path := new_path(), new=True)
    with closing(table):
        table.write(1, {b"k": Versioned(b"v", 1)})
        with pytest.raises(NoSpaceError, match=rf"^{path}: less than \d+ bytes are free"):
            table.flush().write()
        table.write(2, {b"k": Versioned(b"w", 2)})
        assert table.get(b"k") == Versioned(b"w", 2)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallDisk]:
    (tmp_path / "small").mkdir()
    with small_disk(tmp_path / "small") as disk:
        if disk is None:
            pytest.skip("no small file system can be made here")
        yield disk


def leave(disk: SmallDisk, free_bytes: int) -> None:
    """Fill all of a small disk but so much."""
    disk.fill()
    ballast = disk.folder / "ballast"
    os.truncate(ballast, ballast.stat().st_size - free_bytes)


def test_a_compaction_that_fills_the_disk_loses_nothing_and_is_tried_again(
    small: SmallDisk,
) -> None:
    table = RocksTable(OsDisk(), small.folder / "db", new=True)
    expected = {}
    with closing(table):
        leave(small, 13 * MIB)
        for index in range(1, 5):  # so many files of the first level are compacted
            for number in range(16):
                key, found = b"%d/%d" % (number, index), Versioned(os.urandom(128 * KIB), index)
                table.write(index, {key: found})
                expected[key] = found
            table.flush().write()
        errors = partial(table._db.property_int_value, "rocksdb.background-errors")
        wait_until(lambda: (errors() or 0) > 0)
        table.write(5, {b"k": Versioned(b"v", 5)})
        assert dict(table.scan(b"", b"")) == {**expected, b"k": Versioned(b"v", 5)}
        small.empty()
        wait_until(lambda: table._db.property_int_value("rocksdb.num-files-at-level0") == 0, 30)
        table.flush().write()
    with closing(RocksTable(OsDisk(), small.folder / "db")) as again:
        assert dict(again.scan(b"", b"")) == {**expected, b"k": Versioned(b"v", 5)}


async def fill(store: ReplicatedStore) -> int:
    """Commit until the disk is full; return how often."""
    for number in count():
        try:
            await store.commit(put(b"%d" % number, os.urandom(128 * KIB)))
        except NoSpaceError:
            return number
        # Before the journal fills the disk under its hands.
        await wait_until_async(lambda: node_of(store).free_for_table)
    raise AssertionError("the disk has an end")


async def test_a_disk_that_runs_full_stops_changes_and_nothing_else(
    small: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """The flush finds no room before the journal does; it is not begun, and the store goes on."""
    store = alone(small.folder / "member", limits=Limits(segment_bytes=MIB, flush_bytes=2 * MIB))
    await store.start()
    leave(small, 12 * MIB)
    written = await fill(store)
    assert written > 50
    assert "free for a flush" in caplog.text
    before = dict((await store.barrier()).scan(b"", b""))
    assert len(before) == written
    assert store.failure() is None
    small.empty()
    await wait_until_async(lambda: store.impaired() is None)
    await store.commit(put(b"after"))
    await store.close()
    async with opened(small.folder / "member") as again:
        assert dict(again.view().scan(b"", b"")) == {
            **before,
            b"after": Versioned(b"v", written + 2),
        }


async def test_a_database_that_takes_no_more_changes_stops_the_store_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a flush that failed. What was committed is in the journal."""

    def refuse(table: RocksTable, batch: object) -> None:
        raise StorageError(f"{tmp_path}: IO error")

    many = Edit(puts=tuple((b"%d" % number, b"v") for number in range(3 * SLICE_KEYS)))
    store = alone(tmp_path, limits=Limits(flush_bytes=1))
    await store.start()
    await store.commit(put(b"a"))
    with monkeypatch.context() as broken:
        broken.setattr(RocksTable, "_write", refuse)
        with pytest.raises(OutcomeUnknownError, match=r"IO error; whether .* after a restart"):
            await store.commit(many)
        with pytest.raises(StorageError, match="IO error"):
            await store.commit(put(b"b"))
        assert store.failure() is not None
        await store.close()
    async with opened(tmp_path) as again:
        found = {key for key, _ in again.view().scan(b"", b"")}
        assert found == {b"a", *(key for key, _ in many.puts)}


@settings(deadline=None)
@given(st.lists(edits, max_size=8), st.lists(edits, max_size=8), st.lists(ranges, max_size=4))
def test_a_moment_shows_the_map_as_it_was_whatever_comes_later(
    new_path: Callable[[], Path],
    before: list[Edit],
    later: list[Edit],
    asked: list[tuple[bytes, bytes]],
) -> None:
    with closing(new_table(new_path())) as table:
        machine = StateMachine(table)
        for edit in before:
            machine.apply(machine.revision + 1, edit)
        model = StateMachine(MemoryTable())
        for edit in before:
            model.apply(model.revision + 1, edit)
        moment = machine.moment()
        for edit in later:
            machine.apply(machine.revision + 1, edit)
        assert moment.revision == model.revision
        for key in KEYS:
            assert moment.get(key) == model.get(key)
        for start, end in [(b"", b""), *asked]:
            for limit, reverse in ((None, False), (2, False), (None, True), (1, True)):
                found = list(moment.scan(start, end, limit, reverse))
                assert found == list(model.scan(start, end, limit, reverse))


def test_a_table_that_is_closed_gives_up_its_moments_and_its_folder(
    new_path: Callable[[], Path],
) -> None:
    path = new_path()
    table = new_table(path)
    StateMachine(table).apply(1, put(b"a"))
    moment = table.moment()
    table.close()
    with pytest.raises(UnavailableError, match="given up"):
        moment.get(b"a")
    with pytest.raises(UnavailableError, match="given up"):
        list(moment.scan(b"", b""))
    with closing(RocksTable(OsDisk(), path)) as again:
        assert again.get(b"a").value == b"v"

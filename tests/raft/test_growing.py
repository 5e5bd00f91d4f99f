"""A cluster's only NameNode becomes the first of several: its folder, at every step of the way."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from paxosblock.config import NameNodeConfig
from paxosblock.errors import ConfigError, CorruptionError, NoSpaceError, StorageError
from paxosblock.host.disk import OsDisk
from paxosblock.namenode.growing import CONVERTED, Grown, grow, grow_folder
from paxosblock.namenode.kv.codec import encode_edit
from paxosblock.namenode.kv.folder import FolderLimits, open_store
from paxosblock.namenode.kv.interface import Edit, Versioned
from paxosblock.namenode.membership import Peers, alone, one_of
from paxosblock.namenode.raft.folder_admission import Lineage
from paxosblock.namenode.raft.member_folder import (
    check_member,
    open_folder,
    read_lineage,
    read_members,
)
from paxosblock.namenode.raft.planting import FIRST_TERM
from paxosblock.namenode.raft.vote_file import ElectionVote
from tests.disks.simulated import Burns, SimulatedDisk
from tests.memory_table import MEMORY

FOLDER = Path("/namenode")
KV, RAFT = FOLDER / "kv", FOLDER / "raft"
MEMBERS = ("nn1:1", "nn2:1", "nn3:1")
CATALOG = {b"k%d" % number: b"v" * number for number in range(25)}
SECRET = b"a secret of sixteen bytes"


def write_catalog(disk: SimulatedDisk | OsDisk, folder: Path) -> None:
    """A store of a single NameNode: a flush, entries behind it, some of them removals."""
    store = open_store(disk, folder, FolderLimits(segment_bytes=300), MEMORY.open)
    puts = [Edit(puts=((key, value),)) for key, value in CATALOG.items()]
    edits = [Edit(puts=((b"gone", b""),)), *puts, Edit(deletes=(b"gone",))]
    for index, edit in enumerate(edits, 1):
        store.journal.append([encode_edit(edit)])
        store.machine.apply(index, edit)
        if index == 20:
            store.begin_flush().write()
    store.close()


def catalog_of(disk: SimulatedDisk, *, replicated: bool) -> dict[bytes, bytes]:
    """Return what a start of either kind finds."""
    if not replicated:
        store = open_store(disk, KV, FolderLimits(), MEMORY.open)
        found = dict(store.machine.scan(b"", b""))
        store.close()
    else:
        member = open_folder(disk, RAFT, 1 << 20, MEMORY)
        assert member.votes.vote == ElectionVote(FIRST_TERM, None)
        assert member.tail.last_index == member.machine.revision == len(CATALOG) + 2
        assert member.tail.term_at(member.tail.last_index) == FIRST_TERM
        found = dict(member.machine.scan(b"", b""))
        member.close()
        assert read_members(disk, RAFT) == sorted(MEMBERS)
    return {key: each.value for key, each in found.items()}


def prepared() -> SimulatedDisk:
    disk = SimulatedDisk()
    write_catalog(disk, KV)
    return disk.next_process()


def test_the_catalog_is_the_same_afterwards_and_a_second_time_changes_nothing() -> None:
    disk = prepared()
    assert grow(disk, FOLDER, MEMBERS, "line", MEMORY) == Grown(len(CATALOG), len(CATALOG) + 2)
    assert catalog_of(disk, replicated=True) == CATALOG
    assert read_lineage(disk, RAFT) == Lineage("line", born=False)
    before = disk.files()
    assert grow(disk, FOLDER, MEMBERS, "another", MEMORY) == Grown()
    assert disk.files() == before


def test_revisions_stay_so_that_what_was_read_before_is_still_expected() -> None:
    disk = prepared()
    store = open_store(disk, KV, FolderLimits(), MEMORY.open)
    before: dict[bytes, Versioned] = dict(store.machine.scan(b"", b""))
    store.close()
    grow(disk, FOLDER, MEMBERS, "line", MEMORY)
    member = open_folder(disk, RAFT, 1 << 20, MEMORY)
    assert dict(member.machine.scan(b"", b"")) == before


def operations() -> int:
    disk = prepared()
    before = disk.operations
    grow(disk, FOLDER, MEMBERS, "line", MEMORY)
    return disk.operations - before


@pytest.mark.parametrize("burns", Burns)
def test_cut_short_anywhere_it_is_one_or_the_other_and_can_be_done_again(burns: Burns) -> None:
    """The power goes at each operation; what was not synced is there, or not, or garbled."""
    counted = {True: 0, False: 0}
    for fuse in range(1, operations() + 1):
        for seed in range(2):
            disk = prepared()
            disk.light(fuse, burns)
            with contextlib.suppress(StorageError, NoSpaceError):
                grow(disk, FOLDER, MEMBERS, "line", MEMORY)
            left = disk.power_cut(random.Random(f"{fuse} {seed}"))
            converted = CONVERTED in left.names(KV)
            assert catalog_of(left, replicated=converted) == CATALOG
            counted[converted] += 1
            grow(left.next_process(), FOLDER, MEMBERS, "line again", MEMORY)
            assert catalog_of(left, replicated=True) == CATALOG
    assert counted[False] > 50
    assert counted[True] >= (1 if burns is Burns.AFTER else 0)


def test_killed_anywhere_it_can_be_done_again() -> None:
    for fuse in range(1, operations() + 1):
        disk = prepared()
        disk.light(fuse, Burns.AFTER)
        with contextlib.suppress(StorageError, NoSpaceError):
            grow(disk, FOLDER, MEMBERS, "line", MEMORY)
        disk.next_process()
        grow(disk, FOLDER, MEMBERS, "line again", MEMORY)
        assert catalog_of(disk, replicated=True) == CATALOG


def test_on_a_full_disk_nothing_has_changed() -> None:
    disk = prepared()
    disk.full = True
    with pytest.raises(NoSpaceError):
        grow(disk, FOLDER, MEMBERS, "line", MEMORY)
    disk.full = False
    assert CONVERTED not in disk.names(KV)
    assert catalog_of(disk.next_process(), replicated=False) == CATALOG


def test_a_damaged_catalog_is_not_converted() -> None:
    disk = prepared()
    (snapshot,) = (path for path in disk.names_now if path.name.startswith("snapshot-"))
    disk.names_now[snapshot].data[60] ^= 1
    with pytest.raises(CorruptionError):
        grow(disk, FOLDER, MEMBERS, "line", MEMORY)
    assert not [path for path in disk.files() if path.parent == RAFT]


# --- what is refused, in a folder of this machine -------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_catalog(OsDisk(), tmp_path / "kv")
    return tmp_path


def peers(address: str = "nn1:1") -> Peers:
    return Peers(address, MEMBERS, SECRET)


def start_alone(folder: Path) -> None:
    alone(NameNodeConfig(), folder, "nn1:1")


async def start_with_peers(folder: Path) -> None:
    one_of(NameNodeConfig(), folder, peers())


async def test_each_kind_of_start_refuses_the_other_folder_and_says_what_to_do(
    folder: Path,
) -> None:
    with pytest.raises(ConfigError, match="only NameNode: `paxosblock admin grow` makes it"):
        await start_with_peers(folder)
    start_alone(folder)
    grow_folder(folder, MEMBERS)
    await start_with_peers(folder)
    with pytest.raises(ConfigError, match="one of several NameNodes: start it with --peers"):
        start_alone(folder)
    (folder / "raft").rename(folder / "elsewhere")
    with pytest.raises(ConfigError, match="one of several NameNodes: start it with --peers"):
        start_alone(folder)  # what is left of the single one is old


async def test_one_that_was_cut_short_says_to_do_it_again(folder: Path) -> None:
    grow_folder(folder, MEMBERS)
    (folder / "kv" / CONVERTED).unlink()
    with pytest.raises(ConfigError, match="run `paxosblock admin grow` again"):
        start_alone(folder)
    with pytest.raises(ConfigError, match="`paxosblock admin grow`"):
        await start_with_peers(folder)
    (folder / "raft" / "vote").unlink()
    start_alone(folder)  # nothing of it counts yet
    assert grow_folder(folder, MEMBERS) == Grown(len(CATALOG), len(CATALOG) + 2)


def test_a_folder_that_is_in_use_is_refused(folder: Path) -> None:
    store = open_store(OsDisk(), folder / "kv", FolderLimits())
    with pytest.raises(ConfigError, match="in use by another process"):
        grow_folder(folder, MEMBERS)
    store.close()
    assert not (folder / "raft").exists()


@pytest.mark.parametrize(
    "members", [("nn1:1",), MEMBERS[:2], (*MEMBERS, "nn4:1"), ("nn1:1", "nn1:1", "nn2:1")]
)
def test_a_list_of_members_that_makes_no_sense_is_refused(
    folder: Path, members: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match="name three or five NameNodes"):
        grow_folder(folder, members)
    assert not (folder / "raft").exists()


def test_another_list_than_before_is_refused(folder: Path) -> None:
    grow_folder(folder, MEMBERS)
    with pytest.raises(ConfigError, match="is that of one of nn1:1,nn2:1,nn3:1 already"):
        grow_folder(folder, ("nn1:1", "nn2:1", "nn9:1"))


def test_what_is_no_folder_of_a_single_namenode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only NameNode, but of none"):
        grow_folder(tmp_path / "nothing", MEMBERS)
    check_member(tmp_path / "raft", "nn1:1", MEMBERS, new_cluster=True)
    with pytest.raises(ConfigError, match="but of one of several NameNodes already"):
        grow_folder(tmp_path, MEMBERS)


def test_a_folder_without_a_catalog_is_refused(tmp_path: Path) -> None:
    open_store(OsDisk(), tmp_path / "kv", FolderLimits()).close()
    with pytest.raises(ConfigError, match="holds no catalog yet: start all with --new-cluster"):
        grow_folder(tmp_path, MEMBERS)

"""The folder of a cluster's only NameNode becomes that of the first of several."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from paxosblock.config import NameNodeConfig
from paxosblock.errors import ConfigError, CorruptionError, NoSpaceError, StorageError
from paxosblock.host.disk import Disk, OsDisk
from paxosblock.namenode.kv.interface import Edit, Versioned
from paxosblock.namenode.kv.rocks_table import ROCKS
from paxosblock.namenode.kv.table import Tables
from paxosblock.namenode.membership import Peers, engine_of
from paxosblock.namenode.raft.admissions_file import UNNAMED, read_admissions
from paxosblock.namenode.raft.folder_admission import Admissions, Lineage
from paxosblock.namenode.raft.list_change import Grown, grow, grow_folder
from paxosblock.namenode.raft.member_folder import (
    NEWBORN,
    check_member,
    check_owner,
    known_members,
    open_folder,
    read_lineage,
    write_members,
)
from tests.disks.simulated import Burns, SimulatedDisk
from tests.memory_table import MEMORY
from tests.raft.alone import LoneFolder

FOLDER = Path("/namenode/raft")
MEMBERS = ("nn1:1", "nn2:1", "nn3:1")
CATALOG = {b"k%d" % number: b"v" * number for number in range(25)}
SECRET = b"a secret of sixteen bytes"


def write_catalog(disk: Disk, folder: Path, tables: Tables = MEMORY) -> None:
    """Write what a cluster's only NameNode leaves: a flush, and entries and removals behind it."""
    check_member(folder, "nn1:1", (), new_cluster=False, disk=disk)
    store = LoneFolder(disk, folder, tables=tables)
    puts = [Edit(puts=((key, value),)) for key, value in CATALOG.items()]
    for number, edit in enumerate([Edit(puts=((b"gone", b""),)), *puts, Edit(deletes=(b"gone",))]):
        store.commit(edit)
        if number == 20:
            store.begin_flush().write()
    store.close()


def catalog_of(disk: SimulatedDisk) -> dict[bytes, bytes]:
    """Return what a start finds. One of several finds it in the map, which is what others get: it
    applies nothing of its log before it has heard of them."""
    alone = not known_members(disk, FOLDER)
    member = open_folder(disk, FOLDER, 1 << 20, MEMORY, alone=alone)
    found = dict(member.machine.scan(b"", b""))
    assert member.machine.revision == member.tail.last_index == len(CATALOG) + 2
    member.close()
    return {key: each.value for key, each in found.items()}


def prepared() -> SimulatedDisk:
    disk = SimulatedDisk()
    write_catalog(disk, FOLDER)
    return disk.next_process()


def test_the_catalog_is_the_same_afterwards_and_a_second_time_changes_nothing() -> None:
    disk = prepared()
    assert grow(disk, FOLDER, MEMBERS, "line", MEMORY) == Grown(len(CATALOG), len(CATALOG) + 2)
    assert known_members(disk, FOLDER) == sorted(MEMBERS)
    assert catalog_of(disk) == CATALOG
    assert read_lineage(disk, FOLDER) == Lineage("line", born=False)
    assert read_admissions(disk, FOLDER) == Admissions(UNNAMED, {})
    before = disk.files()
    assert grow(disk, FOLDER, MEMBERS, "another", MEMORY) == Grown()
    assert disk.files() == before


def test_revisions_stay_so_that_what_was_read_before_is_still_expected() -> None:
    disk = prepared()
    store = LoneFolder(disk, FOLDER)
    before: dict[bytes, Versioned] = dict(store.machine.scan(b"", b""))
    store.close()
    grow(disk, FOLDER, MEMBERS, "line", MEMORY)
    member = open_folder(disk, FOLDER, 1 << 20, MEMORY)
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
            has_grown = known_members(left, FOLDER) == sorted(MEMBERS)
            assert catalog_of(left) == CATALOG
            if has_grown:
                assert read_lineage(left, FOLDER) == Lineage("line", born=False)
                assert read_admissions(left, FOLDER) == Admissions(UNNAMED, {})
            counted[has_grown] += 1
            grow(left.next_process(), FOLDER, MEMBERS, "line again", MEMORY)
            assert known_members(left, FOLDER) == sorted(MEMBERS)
            assert catalog_of(left) == CATALOG
    assert counted[False] > 20
    assert counted[True] >= (1 if burns is Burns.AFTER else 0)


def test_on_a_full_disk_nothing_has_changed() -> None:
    disk = prepared()
    disk.full = True
    with pytest.raises(NoSpaceError):
        grow(disk, FOLDER, MEMBERS, "line", MEMORY)
    disk.full = False
    assert known_members(disk, FOLDER) == []
    assert catalog_of(disk.next_process()) == CATALOG


def test_a_damaged_catalog_gets_no_list() -> None:
    disk = prepared()
    (snapshot,) = (path for path in disk.names_now if path.name.startswith("db-"))
    disk.names_now[snapshot].data[60] ^= 1
    with pytest.raises(CorruptionError, match="restore the folder from a copy, or a backup"):
        grow(disk, FOLDER, MEMBERS, "line", MEMORY)
    assert known_members(disk, FOLDER) == []


def test_one_that_was_one_of_several_at_another_address_grows_again() -> None:
    """As after the list was changed by hand, which docs/operations.md describes."""
    disk = prepared()
    check_owner(disk, FOLDER, "earlier:1")
    grow(disk, FOLDER, MEMBERS, "line", MEMORY)
    check_member(FOLDER, "nn1:1", MEMBERS, new_cluster=False, disk=disk)


def test_the_log_of_one_of_several_is_never_taken_for_committed() -> None:
    disk = prepared()
    write_members(disk, FOLDER, MEMBERS)
    with pytest.raises(ConfigError, match="is that of one of nn1:1,nn2:1,nn3:1"):
        open_folder(disk, FOLDER, 1 << 20, MEMORY, alone=True)


# --- what is refused, in a folder of this machine -------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_catalog(OsDisk(), tmp_path / "raft", ROCKS)
    return tmp_path


async def start_alone(folder: Path) -> None:
    engine_of(NameNodeConfig(), folder, "nn1:1")


async def start_with_peers(folder: Path, *, new_cluster: bool = False) -> None:
    peers = Peers("nn1:1", MEMBERS, SECRET, new_cluster)
    engine_of(NameNodeConfig(), folder, "nn1:1", peers)


async def test_each_kind_of_start_refuses_the_other_folder_and_says_what_to_do(
    folder: Path,
) -> None:
    with pytest.raises(ConfigError, match="only NameNode: `paxosblock admin grow` makes it"):
        await start_with_peers(folder)
    with pytest.raises(ConfigError, match=r"--new-cluster: .* holds a member already"):
        await start_with_peers(folder, new_cluster=True)
    await start_alone(folder)
    grow_folder(folder, MEMBERS)
    await start_with_peers(folder)
    with pytest.raises(ConfigError, match="is that of one of nn1:1,nn2:1,nn3:1: start it with"):
        await start_alone(folder)


async def test_a_folder_on_its_way_into_a_cluster_of_several_begins_none_of_its_own(
    tmp_path: Path,
) -> None:
    await start_with_peers(tmp_path, new_cluster=True)
    assert (tmp_path / "raft" / NEWBORN).exists()
    with pytest.raises(ConfigError, match="is that of one of several NameNodes: start it with"):
        await start_alone(tmp_path)


@pytest.mark.parametrize("lost", ["vote", "journal"])
async def test_a_folder_that_lacks_a_part_is_no_new_one(folder: Path, lost: str) -> None:
    for path in (folder / "raft").glob(f"{lost}*"):
        path.unlink()
    if lost == "vote":
        with pytest.raises(ConfigError, match="lacks its vote, so entries may be missing"):
            await start_alone(folder)
    else:
        await start_alone(folder)
        with pytest.raises(CorruptionError, match="the journal is missing"):
            open_folder(OsDisk(), folder / "raft", 1 << 20, alone=True)


async def test_a_folder_of_the_version_before_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir()
    for start in (start_alone, start_with_peers):
        with pytest.raises(ConfigError, match="an earlier version, which kept its catalog in kv"):
            await start(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["kv"]


def test_a_folder_that_is_in_use_is_refused(folder: Path) -> None:
    store = LoneFolder(OsDisk(), folder / "raft", tables=ROCKS)
    with pytest.raises(ConfigError, match="in use by another process"):
        grow_folder(folder, MEMBERS)
    store.close()
    assert known_members(OsDisk(), folder / "raft") == []


@pytest.mark.parametrize(
    "members", [("nn1:1",), MEMBERS[:2], (*MEMBERS, "nn4:1"), ("nn1:1", "nn1:1", "nn2:1")]
)
def test_a_list_of_members_that_makes_no_sense_is_refused(
    folder: Path, members: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match="name three or five NameNodes"):
        grow_folder(folder, members)
    assert known_members(OsDisk(), folder / "raft") == []


def test_another_list_than_before_is_refused(folder: Path) -> None:
    grow_folder(folder, MEMBERS)
    with pytest.raises(ConfigError, match="is that of one of nn1:1,nn2:1,nn3:1"):
        grow_folder(folder, ("nn1:1", "nn2:1", "nn9:1"))


def test_what_is_no_folder_of_a_namenode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not the folder of a cluster's only NameNode"):
        grow_folder(tmp_path / "nothing", MEMBERS)
    check_member(tmp_path / "raft", "nn1:1", MEMBERS, new_cluster=True)
    with pytest.raises(ConfigError, match="is not the folder of a cluster's only NameNode"):
        grow_folder(tmp_path, MEMBERS)


def test_a_folder_without_a_catalog_is_refused(tmp_path: Path) -> None:
    check_member(tmp_path / "raft", "nn1:1", (), new_cluster=False)
    with pytest.raises(ConfigError, match="holds no catalog yet: start all with --new-cluster"):
        grow_folder(tmp_path, MEMBERS)

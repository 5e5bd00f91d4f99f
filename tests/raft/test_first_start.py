"""Folders that may take part: an empty one is a lost one, unless the operator says that the cluster
is new; one that went by other members counts other majorities.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paxosblock.config import NameNodeConfig
from paxosblock.errors import ConfigError, StorageError
from paxosblock.host.disk import OsDisk
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.folder_admission import Lineage, Newborn
from paxosblock.namenode.raft.member_folder import (
    check_member,
    first_list,
    make_member,
    open_folder,
    write_newborn,
    write_removed,
)
from paxosblock.namenode.raft.options import options_of
from paxosblock.namenode.raft.roster import ListEntry, Roster, encode_list
from paxosblock.namenode.raft.store import ReplicatedStore
from paxosblock.namenode.raft.vote_file import ElectionVote, VoteFile
from tests.raft.rig import Wire

MEMBERS = ("n1:1", "n2:1", "n3:1")


def become_member(folder: Path) -> None:
    """The first start of a member that is born."""
    assert check_member(folder, "n1:1", MEMBERS, new_cluster=True) is not None
    make_member(OsDisk(), folder, MEMBERS, Lineage("line", born=True), ElectionVote(0, None))


def test_the_first_start_makes_a_newborn_without_a_vote(tmp_path: Path) -> None:
    folder = tmp_path / "raft"
    newborn = check_member(folder, "n1:1", MEMBERS, new_cluster=True)
    assert newborn is not None
    assert newborn.chosen == ""
    assert sorted(each.name for each in folder.iterdir()) == ["newborn", "owner"]


@pytest.mark.parametrize("chosen", ["", "line"])
def test_a_birth_that_was_cut_short_goes_on_with_the_flag_and_without(
    tmp_path: Path, chosen: str
) -> None:
    newborn = check_member(tmp_path, "n1:1", MEMBERS, new_cluster=True)
    assert newborn is not None
    write_newborn(OsDisk(), tmp_path, Newborn(newborn.token, chosen))
    for flag in (True, False):
        found = check_member(tmp_path, "n1:1", MEMBERS, new_cluster=flag)
        assert found == Newborn(newborn.token, chosen)


def test_two_newborns_have_different_tokens(tmp_path: Path) -> None:
    tokens = {
        found.token
        for name in ("a", "b")
        if (found := check_member(tmp_path / name, "n1:1", MEMBERS, new_cluster=True)) is not None
    }
    assert len(tokens) == 2


def test_one_that_is_born_has_promised_nothing(tmp_path: Path) -> None:
    become_member(tmp_path)
    assert VoteFile(OsDisk(), tmp_path).vote == ElectionVote(0, None)
    assert check_member(tmp_path, "n1:1", MEMBERS, new_cluster=False) is None
    assert not (tmp_path / "newborn").exists()


def test_a_folder_without_a_lineage_is_refused(tmp_path: Path) -> None:
    """An earlier version made it, as it did for a member that lost one."""
    become_member(tmp_path)
    (tmp_path / "lineage").unlink()
    with pytest.raises(ConfigError, match="has no lineage, as an earlier version made it"):
        check_member(tmp_path, "n1:1", MEMBERS, new_cluster=False)


def test_an_empty_folder_is_refused_and_stays_empty(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no member of the cluster"):
        check_member(tmp_path / "raft", "n1:1", MEMBERS, new_cluster=False)
    assert list(tmp_path.iterdir()) == []


def test_a_member_is_never_made_anew(tmp_path: Path) -> None:
    become_member(tmp_path)
    VoteFile(OsDisk(), tmp_path).write(ElectionVote(7, "n1:1"))
    with pytest.raises(ConfigError, match="holds a member already"):
        check_member(tmp_path, "n1:1", MEMBERS, new_cluster=True)
    assert VoteFile(OsDisk(), tmp_path).vote == ElectionVote(7, "n1:1")


@pytest.mark.parametrize("left", ["journal-00000000000000000001", "db-00000000000000000007", "db"])
def test_what_is_left_of_a_member_is_not_taken_for_an_empty_folder(
    tmp_path: Path, left: str
) -> None:
    (tmp_path / left).touch()
    with pytest.raises(ConfigError, match="holds a member already"):
        check_member(tmp_path, "n1:1", MEMBERS, new_cluster=True)


def test_a_first_start_that_was_cut_short_can_be_repeated(tmp_path: Path) -> None:
    for name in ("lock", "vote.tmp", "newborn.tmp"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match="holds no member"):
        check_member(tmp_path, "n1:1", MEMBERS, new_cluster=False)
    become_member(tmp_path)
    (tmp_path / "members").unlink()
    check_member(tmp_path, "n1:1", MEMBERS, new_cluster=False)


@pytest.mark.parametrize(
    "changed", [("n1:1",), (*MEMBERS, "n4:1", "n5:1"), ("n1:1", "n2:1", "n4:1")]
)
async def test_the_list_in_the_folder_counts_whatever_the_flag_says(
    tmp_path: Path, changed: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    become_member(tmp_path)
    check_member(tmp_path, "n1:1", changed, new_cluster=False)
    store = ReplicatedStore(tmp_path, "n1:1", (*changed, "n9:1"), Wire())
    await store.start()
    assert sorted(store.members) == sorted(MEMBERS)
    await store.close()
    assert "but the NameNodes are n1:1,n2:1,n3:1: that is what counts" in caplog.text


async def test_without_the_list_in_its_folder_a_member_goes_by_the_new_one(
    tmp_path: Path,
) -> None:
    """So docs/operations.md changes the members: by copies of the leader's folder without it. What
    the log says of lists is older, and what it will say counts."""
    become_member(tmp_path)
    (tmp_path / "members").unlink()
    new = ("n1:1", "n4:1", "n5:1")
    check_member(tmp_path, "n1:1", new, new_cluster=False)
    opened = open_folder(OsDisk(), tmp_path, 1 << 20)
    for index in (1, 2):
        opened.machine.apply_whole(index, Entry(0, EntryKind.MEMBERS, encode_list(Roster(MEMBERS))))
    opened.tail.reset(2, 0)
    assert first_list(opened) == ListEntry(2, Roster(new))
    opened.machine.flush().write()
    opened.close()
    store = ReplicatedStore(tmp_path, "n1:1", new, Wire())
    await store.start()
    assert store.listed == ListEntry(2, Roster(new))
    await store.close()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Not a directory"):
        check_member(tmp_path / "file" / "raft", "n1:1", MEMBERS, new_cluster=True)


def test_the_configuration_sets_the_times_of_the_engine() -> None:
    config = NameNodeConfig(
        leader_heartbeat_s=0.02, election_min_s=0.1, election_max_s=0.3, snapshot_growth_bytes=1000
    )
    options = options_of(config)
    assert options.heartbeat_s == 0.02
    assert (options.election_min_s, options.election_max_s) == (0.1, 0.3)
    assert options.limits.flush_bytes == 1000


@pytest.mark.parametrize("born", [False, True])
def test_a_copy_of_another_members_folder_does_not_start(tmp_path: Path, born: bool) -> None:
    """Its vote and its entries would count twice."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    if born:
        become_member(original)
    else:
        check_member(original, "n1:1", MEMBERS, new_cluster=True)
    shutil.copytree(original, copy)
    with pytest.raises(ConfigError, match="is a copy of the folder of n1:1, not that of n2:1"):
        check_member(copy, "n2:1", MEMBERS, new_cluster=False)
    (copy / "owner").unlink()  # as the page of operations says
    found = check_member(copy, "n2:1", MEMBERS, new_cluster=False)
    assert found == check_member(original, "n1:1", MEMBERS, new_cluster=False)


def test_one_that_was_removed_does_not_start_again(tmp_path: Path) -> None:
    become_member(tmp_path)
    write_removed(OsDisk(), tmp_path)
    with pytest.raises(ConfigError, match="removed from the list: if it is to come back, empty it"):
        check_member(tmp_path, "n1:1", MEMBERS, new_cluster=False)

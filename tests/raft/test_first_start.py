"""An empty folder is a lost one, unless the operator says that the cluster is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from paxosblock.config import NameNodeConfig
from paxosblock.errors import ConfigError, StorageError
from paxosblock.namenode.kv.disk import OsDisk
from paxosblock.namenode.raft.options import options_of
from paxosblock.namenode.raft.vote_file import Vote, VoteFile, check_member


def test_the_first_start_makes_a_member_that_has_promised_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "raft"
    check_member(folder, new_cluster=True)
    assert VoteFile(OsDisk(), folder).vote == Vote(0, None)
    check_member(folder, new_cluster=False)


def test_an_empty_folder_is_refused_and_stays_empty(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no member of the cluster"):
        check_member(tmp_path / "raft", new_cluster=False)
    assert list(tmp_path.iterdir()) == []


def test_a_member_is_never_made_anew(tmp_path: Path) -> None:
    check_member(tmp_path, new_cluster=True)
    VoteFile(OsDisk(), tmp_path).write(Vote(7, "n1:1"))
    with pytest.raises(ConfigError, match="holds a member already"):
        check_member(tmp_path, new_cluster=True)
    assert VoteFile(OsDisk(), tmp_path).vote == Vote(7, "n1:1")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Not a directory"):
        check_member(tmp_path / "file" / "raft", new_cluster=True)


def test_the_configuration_sets_the_times_of_the_engine() -> None:
    config = NameNodeConfig(
        leader_heartbeat_s=0.02, election_min_s=0.1, election_max_s=0.3, snapshot_growth_bytes=1000
    )
    options = options_of(config)
    assert options.heartbeat_s == 0.02
    assert (options.election_min_s, options.election_max_s) == (0.1, 0.3)
    assert options.limits.snapshot_bytes == 1000

"""`paxosblock admin quota`, and what it makes other commands say, as `hdfs` says it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from tests.cli.conftest import Paxosblock, Result

HEADS = "       QUOTA       REM_QUOTA     SPACE_QUOTA REM_SPACE_QUOTA "


def write(client: Client, path: str) -> None:
    with client.create(path) as file:
        file.write(b"12345")


@pytest.fixture
def quota(
    cluster: LocalCluster, paxosblock: Paxosblock, folder: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Paxosblock]:
    """Run `paxosblock admin quota` on the shared cluster."""
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
    yield lambda *arguments: paxosblock("admin", "quota", *arguments)
    paxosblock("admin", "quota", "clear", folder)


def test_a_quota_of_names_is_set_shown_kept_and_cleared(
    quota: Paxosblock, fs: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/a")
    assert quota("set", "--names", "3", folder) == Result(0, "", "")
    assert quota("show", folder).out == (
        f"{HEADS}PATHNAME\n           3               1            none             inf {folder}\n"
    )
    assert f" {folder}\n" in quota("show").out
    assert fs("mkdir", f"{folder}/b").code == 0
    before = client.content_summary(folder)
    refused = fs("mkdir", f"{folder}/c")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        f"mkdir: The NameSpace quota (directories and files) of directory {folder} is exceeded: "
        "quota=3 file count=4\n"
    )
    assert client.content_summary(folder) == before
    counts = f"           2            1                  5 {folder}\n"
    assert fs("count", "-q", "-v", folder).out == (
        f"{HEADS}   DIR_COUNT   FILE_COUNT       CONTENT_SIZE PATHNAME\n"
        f"           3               0            none             inf {counts}"
    )
    assert json.loads(fs("count", "-q", "--json", folder).out)["quota"] == {
        "path": folder, "names_max": 3, "names": 3, "space_max": -1, "space": 15
    }  # fmt: skip
    assert quota("set", "--names", "2", folder).code == 0
    assert "           2              -1 " in quota("show", folder).out
    assert quota("clear", folder).code == 0
    none = "        none             inf            none             inf "
    assert none in quota("show", folder).out
    assert fs("mkdir", f"{folder}/c").code == 0


def test_a_put_without_room_is_refused_and_leaves_nothing(
    quota: Paxosblock, fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    fs("mkdir", folder)
    assert quota("set", "--space", "1MiB", folder).code == 0
    refused = fs("put", str(tmp_path / "a"), f"{folder}/a")
    assert refused.code == 1
    needed = 3 * client.config.block_size
    assert refused.err.splitlines()[-1] == (
        f"put: The DiskSpace quota of {folder} is exceeded: quota = 1048576 B = 1 MB but "
        f"diskspace consumed = {needed} B = {needed >> 20} MB"
    )
    assert client.ls(folder) == []
    assert quota("set", "--space", str(needed), folder).code == 0
    assert fs("put", str(tmp_path / "a"), f"{folder}/a").code == 0
    assert "             15 " not in quota("show", "-h", folder).out
    assert client.quota_usage(folder).space == 15


def test_counts_are_checked_by_fsck(
    quota: Paxosblock, paxosblock: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/a")
    assert quota("set", "--names", "9", "--space", "2g", folder).code == 0
    checked = paxosblock("fsck", "--quota", folder)
    assert checked.code == 0
    assert checked.out == f"'{folder}': 2 names, 15 bytes\n1 quota counted again\n"
    assert paxosblock("fsck", "--quota", "--repair", folder).code == 0
    for wrong in (("--repair",), ("--quota", "--delete-corrupt", "--yes")):
        refused = paxosblock("fsck", *wrong)
        assert refused.code == 2
        assert "--repair goes with --quota, and --quota without --delete-corrupt" in refused.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("set", "/none"), 2, "give --names or --space, or both"),
        (("set", "--names", "0", "/"), 1, "Invalid values for quota : 0 and unchanged"),
        (("set", "--space", "5 parsecs", "/"), 2, "5 parsecs"),
        (("clear", "/"), 1, "Cannot clear namespace quota on root"),
        (("set", "--names", "5", "/none"), 1, "'/none': no such file or directory"),
        (("show", "/none"), 1, "'/none': no such file or directory"),
    ],
)
def test_bad_input_is_one_line(
    quota: Paxosblock, words: tuple[str, ...], code: int, said: str
) -> None:
    refused = quota(*words)
    assert refused.code == code
    assert said in refused.err
    assert refused.out == ""

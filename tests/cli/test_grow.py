"""`paxosblock admin grow` and `cluster up --grow`: one NameNode becomes three."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from tests.cli.conftest import Paxosblock, Result


def test_cluster_up_says_how_and_does_it_when_asked(
    tmp_path: Path, paxosblock: Paxosblock, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: LocalCluster.at(tmp_path).close())
    with LocalCluster(1, 1, tmp_path) as cluster, Client(cluster.url) as fs:
        fs.mkdirs("/d")
    up = ("cluster", "up", "--path", tmp_path)
    refused = paxosblock(*up, "--namenodes", "3")
    told = (
        f"up: {tmp_path} holds a cluster of 1 NameNodes, not 3: `paxosblock cluster up --namenodes"
    )
    assert (refused.code, refused.err) == (1, f"{told} 3 --grow` makes them so many\n")
    grown = paxosblock(*up, "--namenodes", "3", "--grow")
    assert (grown.code, grown.err) == (0, "")
    assert [line.split()[0] for line in grown.out.splitlines()[:3]] == [
        "namenode-0",
        "namenode-1",
        "namenode-2",
    ]
    with Client(LocalCluster.at(tmp_path).url) as fs:
        assert fs.exists("/d")
    LocalCluster.at(tmp_path).wait_leader().kill()  # the first one, which has the longest log
    again = paxosblock(*up, "--namenodes", "3", "--grow")
    assert again.code == 0
    leader = LocalCluster.at(tmp_path).wait_leader()
    assert re.search(rf"(?m)^status page   https?://{leader.address}/$", again.out)
    wrong = paxosblock(*up, "--grow")
    assert (wrong.code, "--grow goes with --namenodes 3 or 5" in wrong.err) == (2, True)


def test_admin_grow_says_in_one_line_what_it_did_and_what_is_wrong(
    tmp_path: Path, paxosblock: Paxosblock
) -> None:
    three = "nn1:9870,nn2:9870,nn3:9870"
    with LocalCluster(1, 1, tmp_path) as cluster:
        folder = cluster.namenode.volumes[0]
        volume = cluster.datanodes[0].volumes[0]

        def grow(path: Path, peers: str = three) -> Result:
            return paxosblock("admin", "grow", "--path", path, "--peers", peers)

        in_use = grow(folder)
        assert in_use == Result(1, "", f"grow: {folder}/raft is in use by another process\n")
    none = f"grow: {volume} is not the folder of a cluster's only NameNode\n"
    assert grow(volume) == Result(1, "", none)
    two = grow(folder, "nn1:9870,nn2:9870")
    assert (two.code, two.out, two.err.count("\n")) == (1, "", 1)
    assert "name three or five NameNodes, each once" in two.err
    done = grow(folder)
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)
    assert done.out.startswith(f"{folder} is that of one of 3 NameNodes now: ")
    assert grow(folder) == Result(0, f"{folder} is that of one of 3 NameNodes already\n", "")


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (
            ("--path", "{new}", "--peers", "a:1,b:1,c:1"),
            1,
            "is not the folder of a cluster's only NameNode",
        ),
        (("--path", "{new}", "--peers", "a:x,b:1,c:1"), 1, "'x' is no port"),
        (("--path", "{new}", "--peers", ",,"), 1, "names no NameNode"),
        (("--path", "{new}", "--peers", "a:1,b:1"), 1, "name three or five NameNodes"),
        (("--path", "{file}", "--peers", "a:1,b:1,c:1"), 2, "is a file"),
        (("--peers", "a:1,b:1,c:1"), 2, "Missing option '--path'"),
        (("--path", "{new}"), 2, "Missing option '--peers'"),
    ],
)
def test_what_cannot_grow_is_one_line_and_nothing_is_made(
    words: tuple[str, ...], code: int, line: str, tmp_path: Path, paxosblock: Paxosblock
) -> None:
    (tmp_path / "file").write_text("")
    named = [word.format(new=tmp_path / "new", file=tmp_path / "file") for word in words]
    result = paxosblock("admin", "grow", *named)
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert line in result.err
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_folder_without_a_cluster_does_not_grow(tmp_path: Path, paxosblock: Paxosblock) -> None:
    new = tmp_path / "new"
    result = paxosblock("cluster", "up", "--path", new, "--namenodes", "3", "--grow")
    assert result == Result(1, "", f"up: '{new}': no cluster lives in this folder\n")
    assert not new.exists()

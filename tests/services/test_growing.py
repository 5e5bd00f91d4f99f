"""A cluster of one NameNode becomes one of three, with real processes; no file is copied."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.errors import ConfigError, NotFoundError
from paxosblock.local.cluster_folder import ClusterFolder
from paxosblock.local.node_process import Node
from tests.fork_server import ended
from tests.services.conftest import QUICK, wait_other_leader
from tests.services.content import content
from tests.waiting import wait_until

FILES = {f"/d/{number}": content(f"file {number}", 0, 1000 * number) for number in range(1, 9)}


def write_all(cluster: LocalCluster) -> None:
    with Client(cluster.url, QUICK) as fs:
        for path, data in FILES.items():
            with fs.create(path) as out:
                out.write(data)


def read_all(cluster: LocalCluster) -> None:
    with Client(cluster.url, QUICK) as fs:
        for path, data in FILES.items():
            with fs.open(path) as file:
                assert file.read() == data


@pytest.fixture
def of_one(tmp_path: Path) -> Path:
    """The folder of a cluster of one NameNode with files, which is down."""
    with LocalCluster(3, 1, tmp_path) as cluster:
        write_all(cluster)
    return tmp_path


def test_one_becomes_three_that_lose_any_one_of_them(of_one: Path) -> None:
    LocalCluster.grow(of_one, 3)
    with LocalCluster(3, 3, of_one) as cluster:
        read_all(cluster)
        leader = cluster.wait_leader()
        leader.kill()
        wait_other_leader(cluster, leader)
        read_all(cluster)
        with Client(cluster.url, QUICK) as fs:
            fs.mkdirs("/later")
        leader.start()
        cluster.wait_registered()
    with LocalCluster(3, 3, of_one) as cluster:  # without --join, like any other
        cluster.namenode.kill()
        read_all(cluster)
        with Client(cluster.url, QUICK) as fs:
            assert fs.exists("/later")


def test_a_cluster_that_runs_or_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        LocalCluster.grow(tmp_path / "nothing", 3)
    with LocalCluster(1, 1, tmp_path / "runs") as cluster:
        with pytest.raises(ConfigError, match="its cluster runs: `paxosblock cluster down` first"):
            LocalCluster.grow(cluster.path, 3)
        with pytest.raises(ConfigError, match="an odd number"):
            LocalCluster.grow(cluster.path, 2)


def test_each_start_that_does_not_fit_is_refused_in_one_line(of_one: Path) -> None:
    cluster = LocalCluster(3, 1, of_one)
    cluster.start()
    peers = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    secret = of_one / "secret"
    secret.write_text("a secret of sixteen bytes")
    secret.chmod(0o600)
    several = ("--peers", peers, "--advertise", "127.0.0.1:1", "--secret-file", str(secret))
    alone = cluster.command(cluster.namenode.member)
    cluster.close()
    refuses([*alone, *several], "only NameNode: `paxosblock admin grow` makes it the first")
    refuses([*alone, *several, "--join"], "holds a member already; start without it")
    refuses([*alone, *several, "--join", "--new-cluster"], "a cluster is new, or this one comes")
    secret.unlink()
    LocalCluster.grow(of_one, 3)
    with LocalCluster(3, 3, of_one) as grown:
        first, second, _ = grown.namenodes
        for node in (first, second):
            assert node.stop()
        refuses(alone, ": start it with --peers")
        again = grown.command(second.member)
        refuses([*again, "--join"], "holds a member already; start without it")
        shutil.rmtree(second.volumes[0] / "raft")
        refuses(again, "holds no member of the cluster")
        first.start()
        refuses([*again, "--join"], "has been a member of this cluster")
        read_all(grown)


def refuses(command: list[str], words: str, **settings: str) -> None:
    """A node ends at once, with one line that says why."""
    node = ended(command, env=os.environ | settings)
    assert (node.returncode, node.stdout) == (1, "")
    assert words in node.stderr
    assert node.stderr.count("\n") == 1


def test_one_that_lost_its_folder_is_not_let_in_by_one_that_never_heard_of_it(
    of_one: Path,
) -> None:
    """The third came while the second was down; the first, which let both in, is down now."""
    LocalCluster.grow(of_one, 3)
    with LocalCluster(3, 3, of_one) as cluster:
        first, second, third = cluster.namenodes
        for node in (first, second, third):
            node.kill()
        joined = third.volumes[0] / "raft" / "joined"
        joined.unlink(missing_ok=True)  # as if it had heard of no member
        shutil.rmtree(second.volumes[0] / "raft")
        third.launch()
        wait_until((third.volumes[0] / "address").exists, what="the third NameNode to listen")
        refuses(
            [*cluster.command(second.member), "--join"],
            "is not the one that had the catalog first, which lets others in",
            PAXOSBLOCK_NAMENODE_JOIN_WITHIN="5s",
        )
        assert cluster.leader is None
        first.start()
        read_all(cluster)


def has_said(node: Node, words: str) -> bool:
    return words in node.log_tail()


def has_ended(node: Node) -> bool:
    return not node.alive


def test_two_that_are_started_empty_do_not_make_a_cluster_with_the_one_that_is_not(
    of_one: Path,
) -> None:
    """With --new-cluster by mistake. They wait for the one that has the catalog, and hear of it."""
    LocalCluster.grow(of_one, 3)
    with LocalCluster(3, 3, of_one) as cluster:
        first, *others = cluster.namenodes
        for node in cluster.namenodes:
            assert node.stop()
        folder = ClusterFolder(of_one)
        mistaken = [
            Node(folder, node.member, lambda member: [*cluster.command(member), "--new-cluster"])
            for node in others
        ]
        for node in mistaken:
            shutil.rmtree(node.volumes[0] / "raft")
            node.launch()
        for node in mistaken:
            wait_until(partial(has_said, node, f"waits for {first.address}"))
        first.launch()
        for node in mistaken:
            wait_until(partial(has_said, node, "this cluster exists already, says "))
            wait_until(partial(has_ended, node))
        standing = wait_until(partial(cluster.namenode_status, first))
        assert not standing.serves

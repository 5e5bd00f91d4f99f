"""A NameNode that lost its folder and is started with a wrong flag, with real processes.

No name that was acknowledged is ever gone by that, whichever member is down meanwhile.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.cli.main import run
from paxosblock.local.cluster_folder import ClusterFolder
from paxosblock.local.node_process import Node
from tests.services.conftest import QUICK
from tests.services.test_changing_members import Changing, copy_folder
from tests.waiting import wait_until

NAMES = [f"/name-{number:02}" for number in range(50)]
LINES = {
    "--new-cluster": "this cluster exists already, says ",
    "--join": "has been a member of this cluster",
}


class Wrong(Node):
    """A NameNode that is started with one flag more; it may end at once."""

    def __init__(self, cluster: LocalCluster, node: Node, flag: str) -> None:
        super().__init__(
            ClusterFolder(cluster.path),
            node.member,
            lambda member: [*cluster.command(member), flag],
        )


def empty(node: Node) -> None:
    """The folder is lost, and with it votes and entries."""
    shutil.rmtree(node.volumes[0])
    node.volumes[0].mkdir()


@pytest.mark.parametrize("flag", LINES)
def test_one_that_lost_its_folder_helps_nobody_who_was_down_to_lead(
    tmp_path: Path, flag: str
) -> None:
    """Of three one was down while most names were made, and one that has them is down now."""
    with LocalCluster(1, 3, tmp_path) as cluster:
        stale, lost, whole = cluster.namenodes
        with Client(cluster.url, QUICK) as fs:
            for name in NAMES[:20]:
                fs.mkdirs(name)
            stale.kill()
            for name in NAMES[20:]:
                fs.mkdirs(name)
        lost.kill()
        whole.kill()
        empty(lost)
        stale.launch()
        wrong = Wrong(cluster, lost, flag)
        wrong.launch()
        wait_until(lambda: not wrong.alive or cluster.leader is not None)
        whole.start()
        cluster.wait_leader()
        with Client(cluster.url, QUICK) as fs:
            assert [name for name in NAMES if not fs.exists(name)] == []
        assert LINES[flag] in wrong.log_tail()


def test_a_catalog_that_is_restored_beside_a_member_that_lives_gets_no_majority(
    tmp_path: Path,
) -> None:
    """A backup goes onto the folder that one NameNode lost, by mistake, and a second one that lost
    its folder is started with --join. The third, which has all names, is down."""
    with Changing(1, 3, tmp_path / "cluster") as cluster:
        peers, backup = ",".join(cluster.addresses), str(tmp_path / "backup")
        with Client(cluster.url, QUICK) as fs:
            for name in NAMES[:20]:
                fs.mkdirs(name)
            assert run(["--namenodes", peers, "admin", "backup", backup]) == 0
            for name in NAMES[20:]:
                fs.mkdirs(name)
        whole = cluster.stop_namenodes()
        restored, lost = (node for node in cluster.namenodes if node is not whole)
        empty(restored)
        empty(lost)
        onto = ["--path", str(restored.volumes[0]), "--peers", peers, "--yes-lose-data"]
        assert run(["admin", "restore", backup, *onto]) == 0
        restored.launch()
        joins = Wrong(cluster, lost, "--join")
        joins.launch()
        waits = f"{restored.address} waits for {whole.address}: "
        wait_until(lambda: waits in joins.log_tail() or cluster.leader is not None)
        assert cluster.leader is None
        for node in (restored, joins):  # nothing is lost: the procedure of docs/operations.md
            node.kill()
            copy_folder(whole, node)
        for node in cluster.namenodes:
            node.launch()
        cluster.wait_leader()
        with Client(cluster.url, QUICK) as fs:
            assert [name for name in NAMES if not fs.exists(name)] == []

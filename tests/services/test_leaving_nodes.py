"""Replicas that move because an operator said so: setrep, decommission, maintenance.

Real processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.namenode import BlockView
from paxosblock.base.units import KIB
from paxosblock.cli.main import run
from paxosblock.local.node_process import Node
from paxosblock.net.calls.control import BlockingNameNodes
from tests.files import read
from tests.waiting import wait_until

QUICK = {
    "namenode": {
        "heartbeat_interval": "200ms",
        "datanode_stale_after": "1s",
        "datanode_dead_after": "2s",
        "replicate_after": "0s",
        "safe_mode_extension": "0s",
    },
    "datanode": {"heartbeat_interval": "200ms"},
}
"""Settings by which that takes seconds which otherwise takes a minute."""
WITHIN_S = 90.0
"""On a machine that is busy."""

MakeCluster = Callable[..., LocalCluster]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeCluster]:
    """Start a cluster for one test; commands find it by the environment."""
    made: list[LocalCluster] = []

    def start(datanodes: int, namenodes: int = 1) -> LocalCluster:
        cluster = LocalCluster(datanodes=datanodes, namenodes=namenodes, settings=QUICK)
        made.append(cluster)
        cluster.start()
        monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
        return cluster

    yield start
    for cluster in made:
        cluster.close()


def blocks(cluster: LocalCluster, path: str) -> tuple[BlockView, ...]:
    """The blocks of a short file, as the NameNodes know them."""
    return BlockingNameNodes(cluster.addresses).call(GET_FILE, GetFile(path)).blocks


def nodes(cluster: LocalCluster, path: str) -> set[str]:
    """The DataNodes that a file has members on."""
    return {member.node for block in blocks(cluster, path) for member in block.members}


def live(cluster: LocalCluster, path: str) -> list[int]:
    """Return how many live members each block of a file has."""
    return [sum(member.live for member in block.members) for block in blocks(cluster, path)]


def write(fs: Client, path: str, *, pieces: int = 3) -> bytes:
    """A file of several chunks."""
    data = os.urandom(pieces * 300 * KIB)
    with fs.create(path) as out:
        out.write(data)
    return data


def named(cluster: LocalCluster, name: str) -> Node:
    return next(node for node in cluster.datanodes if node.name == name)


def test_setrep_waits_until_replicas_have_come_or_gone(make: MakeCluster) -> None:
    cluster = make(datanodes=4)
    with Client(cluster.url) as fs:
        data = write(fs, "/big")
        for wanted in (2, 4, 1, 3):
            assert run(["fs", "setrep", "-w", str(wanted), "/big"]) == 0
            assert live(cluster, "/big") == [wanted]
            assert len(nodes(cluster, "/big")) == wanted
            assert read(fs, "/big") == data


def test_a_node_leaves_through_kills_and_a_fail_over_and_no_block_has_too_few(
    make: MakeCluster,
) -> None:
    """The leader is killed when the decommission has just begun, and the node that leaves too."""
    cluster = make(datanodes=5, namenodes=3)
    with Client(cluster.url) as fs:
        data = {f"/f{number}": write(fs, f"/f{number}", pieces=1) for number in range(20)}
        leaves = max(cluster.datanodes, key=lambda node: on(cluster, data, node.name))
        held = [path for path in data if leaves.name in nodes(cluster, path)]
        assert held
        with fs.create("/open") as out:
            out.write(b"begun ")
            out.hflush()
            assert run(["admin", "decommission", leaves.name]) == 0
            leader = cluster.leader
            assert leader is not None
            leader.kill()
            leaves.kill()
            leaves.start()
            cluster.wait_leader()
            leader.start()
            wait_until(
                lambda: leaves.name not in nodes_of_last(cluster, "/open"),
                timeout_s=WITHIN_S,
                what="the writer to leave its block",
            )
            out.write(b"ended")
        assert run(["admin", "decommission", "--wait", leaves.name]) == 0
        assert leaves.name not in nodes_of_last(cluster, "/open")
        leaves.kill()
        wait_until(
            lambda: all(is_whole_without(cluster, path, leaves.name) for path in data),
            timeout_s=WITHIN_S,
            what=f"all files to have three members, none of them on {leaves.name}",
        )
        assert all(read(fs, path) == content for path, content in data.items())
        assert read(fs, "/open") == b"begun ended"
        leaves.start()
        assert run(["admin", "recommission", leaves.name]) == 0


def on(cluster: LocalCluster, paths: dict[str, bytes], name: str) -> int:
    """Return how many of these files a DataNode holds."""
    return sum(name in nodes(cluster, path) for path in paths)


def is_whole_without(cluster: LocalCluster, path: str, name: str) -> bool:
    """True if a file of one block has three live members, and none on this DataNode."""
    return live(cluster, path) == [3] and name not in nodes(cluster, path)


def nodes_of_last(cluster: LocalCluster, path: str) -> set[str]:
    """The DataNodes of a file's last block."""
    return {member.node for member in blocks(cluster, path)[-1].members}


def test_a_node_in_maintenance_costs_no_copy_and_one_that_died_beside_it_costs_one(
    make: MakeCluster,
) -> None:
    cluster = make(datanodes=5)
    with Client(cluster.url) as fs:
        data = write(fs, "/f")
        before = nodes(cluster, "/f")
        rests, dies, stays = sorted(before)
        assert run(["admin", "maintenance", "--for", "1h", "--wait", rests]) == 0
        named(cluster, rests).kill()
        named(cluster, dies).kill()
        wait_until(
            lambda: live(cluster, "/f") == [2] and len(nodes(cluster, "/f") - before) == 1,
            timeout_s=WITHIN_S,
            what="a copy in the place of the node that died",
        )
        # The one that died is no member any more if it counted as dead before the one that rests.
        assert {rests, stays} < nodes(cluster, "/f")
        assert run(["admin", "recommission", rests]) == 0
        wait_until(
            lambda: live(cluster, "/f") == [3] and not {rests, dies} & nodes(cluster, "/f"),
            timeout_s=WITHIN_S,
            what="a copy in the place of the node that is not in maintenance any more",
        )
        assert read(fs, "/f") == data

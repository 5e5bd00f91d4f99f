"""The members of a cluster are changed by hand, as docs/operations.md says, with real processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.local.node_process import Node
from tests.services.conftest import QUICK
from tests.services.content import content
from tests.waiting import wait_until


class Changing(LocalCluster):
    """A cluster of five NameNodes, of which only the first `members` have been heard of."""

    members = 5

    @property
    def namenodes(self) -> tuple[Node, ...]:
        return super().namenodes[: self.members]

    def terms(self) -> set[int]:
        """Return the terms that those that answer tell, as in `paxosblock admin report`."""
        seen = (self.namenode_status(node) for node in self.namenodes)
        return {each.term for each in seen if each is not None}

    def stop_namenodes(self) -> Node:
        """Stop all of them, the leader last; again when another one may have led meanwhile."""
        while (leader := self._stop_followers()) is None:
            for node in self.namenodes:
                if not node.alive:
                    node.start()
        assert leader.stop()
        return leader

    def _stop_followers(self) -> Node | None:
        leader, term = self.wait_leader(), self.terms()
        for node in self.namenodes:
            if node is not leader:
                assert node.stop()
                if len(term) != 1 or self.terms() != term:
                    return None
        return leader


def copy_folder(source: Node, target: Node) -> None:
    """The folder of the one, `vote` included, without the list of members and its owner."""
    shutil.rmtree(target.volumes[0], ignore_errors=True)
    without = shutil.ignore_patterns("members", "owner")
    shutil.copytree(source.volumes[0] / "raft", target.volumes[0] / "raft", ignore=without)


@pytest.mark.parametrize(("before", "after"), [(3, 5), (5, 3)])
def test_a_cluster_gets_other_members_and_keeps_everything(
    tmp_path: Path, before: int, after: int
) -> None:
    cluster = Changing(1, 5, tmp_path)
    cluster.members = before
    with cluster:
        data = content("kept", 0, 100_000)
        with Client(cluster.url, QUICK) as fs, fs.create("/kept") as out:
            out.write(data)
        leader = cluster.stop_namenodes()
        (leader.volumes[0] / "raft" / "members").unlink()
        cluster.members = after
        for node in cluster.namenodes:
            if node is not leader:
                copy_folder(leader, node)
        for node in cluster.namenodes:
            node.launch()
        for node in cluster.namenodes:
            node.wait_ready()
        for node in cluster.datanodes:
            assert node.stop()
            node.start()
        cluster.wait_registered()
        for node in cluster.namenodes[: after // 2]:  # as many as it can lose
            node.kill()
        with Client(cluster.url, QUICK) as fs, fs.open("/kept") as file:
            assert file.read() == data


def test_a_namenode_goes_by_its_folder_when_it_is_told_another_list(tmp_path: Path) -> None:
    """Members that took a new list one after the other would make two majorities."""
    cluster = Changing(1, 5, tmp_path)
    cluster.members = 3
    with cluster:
        leader = cluster.wait_leader()
        first, second = (node for node in cluster.namenodes if node is not leader)
        assert first.stop()
        cluster.members = 5
        first.start()
        cluster.members = 3
        wait_until(lambda: "that is what counts" in first.log.read_text())
        seen = cluster.namenode_status(first)
        assert seen is not None
        assert sorted(seen.members) == sorted(cluster.addresses)
        assert second.stop()
        with Client(cluster.url, QUICK) as fs:
            fs.mkdirs("/with-the-first-one")

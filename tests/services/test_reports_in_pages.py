"""Real nodes whose reports are longer than a page: all is known, and what is lost is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.local.node_process import Node
from tests.waiting import wait_until

FILES = 7
"""Each of one block; three pages and a rest."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {"datanode": {"block_report_page": 2}, "client": {"replication": 2}}
    with LocalCluster(datanodes=2, settings=settings) as cluster:
        with Client(cluster.url) as fs:
            for number in range(FILES):
                with fs.create(f"/{number}", replication=2) as out:
                    out.write(b"%d" % number)
                    out.hflush()  # so that it has files of its own
        yield cluster


def known(cluster: LocalCluster) -> list[int]:
    """Return how many finalized replicas of each DataNode the NameNode knows."""
    return [node.blocks for node in cluster.status().datanodes]


def wait_all_known(cluster: LocalCluster) -> None:
    wait_until(lambda: known(cluster) == [FILES, FILES], 30, f"{FILES} blocks at each DataNode")


def test_a_namenode_that_starts_hears_of_every_page(cluster: LocalCluster) -> None:
    cluster.namenode.kill()
    cluster.namenode.start()
    wait_all_known(cluster)
    assert known(cluster) == [FILES, FILES]


def test_a_replica_that_no_page_names_any_more_is_copied_again(cluster: LocalCluster) -> None:
    wait_all_known(cluster)
    node = cluster.datanodes[0]
    node.kill()
    data = sorted(finalized(node))[FILES // 2]
    size_bytes = data.stat().st_size
    for file in data.parent.glob(f"{data.name}*"):
        file.unlink()
    assert len(finalized(node)) == FILES - 1
    node.start()
    wait_until(lambda: len(finalized(node)) == FILES, 60, "the lost replica is there again")
    assert data.stat().st_size == size_bytes
    wait_all_known(cluster)
    with Client(cluster.url) as fs:
        assert [fs.open(f"/{number}").read() for number in range(FILES)] == [
            b"%d" % number for number in range(FILES)
        ]


def finalized(node: Node) -> list[Path]:
    """The data files of the replicas that are finalized."""
    return [path for path in (node.volumes[0] / "current").iterdir() if path.suffix != ".meta"]

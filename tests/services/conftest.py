"""A cluster that loses NameNodes and goes on, for the tests of what clients see meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.config import ClientConfig
from paxosblock.local.node_process import Node
from tests.waiting import wait_until

QUICK = ClientConfig(rpc_timeout_s=2.0, retry_for_s=20.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three NameNodes and three DataNodes; a test that takes one away brings it back."""
    with LocalCluster(3, 3, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def fs(cluster: LocalCluster) -> Iterator[Client]:
    """A client that asks the next NameNode soon, and for a long time."""
    with Client(cluster.url, QUICK) as fs:
        yield fs


def wait_other_leader(cluster: LocalCluster, than: Node) -> Node:
    """Wait until another NameNode serves."""

    def other() -> Node | None:
        leader = cluster.leader
        return leader if leader is not than else None

    found = wait_until(other, what="another leader")
    assert found is not None
    return found
